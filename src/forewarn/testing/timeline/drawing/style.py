"""Style sheets of the drawing and the page, with colours for light and dark.

Every colour goes together with a shape or a pattern, and nothing is loaded from the network.
"""

from __future__ import annotations

_LIGHT = """
--paper:#ffffff;--ink:#1b1f24;--soft:#59636e;--line:#d8dee4;--band:#f6f8fa;
--scheduled:#f5d565;--scheduled-line:#8a6100;--unseen:#fff6d6;--started:#2563c9;--on-started:#fff;
--impact:#c2185b;--approved:#15803d;--fault:#8b2fc9;--refused:#c62828;--away:#8c959f;"""
_DARK = """
--paper:#0f141a;--ink:#e6edf3;--soft:#9aa6b2;--line:#2b333d;--band:#161c24;
--scheduled:#a87a10;--scheduled-line:#f0c04a;--unseen:#2e2812;--started:#5b9bff;--on-started:#06121f;
--impact:#ff6aa0;--approved:#3fb96a;--fault:#c58bff;--refused:#ff7b72;--away:#6e7985;"""

COLOURS = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
@media print{{:root{{color-scheme:light;{_LIGHT}}}}}
"""

PICTURE = """
.timeline{font:12px/1.3 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:var(--ink)}
.timeline .paper{fill:var(--paper)}
.timeline .title{font-size:19px;font-weight:650}
.timeline .soft,.timeline .axis{fill:var(--soft)}
.timeline .failed{fill:var(--refused);font-weight:650}
.timeline .axis{font-size:11px;font-variant-numeric:tabular-nums}
.timeline .grid{stroke:var(--line);stroke-width:1}
.timeline .fold{fill:none;stroke:var(--soft);stroke-width:1}
.timeline .folded{text-anchor:middle}
.timeline .before{text-anchor:end}
.timeline .group{font-weight:650;font-size:12px}
.timeline .band{fill:var(--band)}
.timeline .name{font-weight:600}
.timeline .small{font-size:10.5px;fill:var(--soft)}
.timeline .label{font-size:11px}
.timeline .unseen{fill:var(--unseen);stroke:var(--scheduled-line);stroke-width:1}
.timeline .seen{fill:url(#hatch);stroke:var(--scheduled-line);stroke-width:1}
.timeline .hatch{fill:var(--scheduled)}
.timeline .hatch-line{stroke:var(--scheduled-line);stroke-width:1.2;opacity:.4}
.timeline .withdrawn{stroke-dasharray:4 3}
.timeline .started{fill:var(--started);stroke:var(--started);stroke-width:1}
.timeline .impact{fill:var(--impact);stroke:var(--paper);stroke-width:1}
.timeline .struck{fill:var(--impact)}
.timeline .due{stroke:var(--ink);stroke-width:1.5;fill:var(--ink)}
.timeline .ahead{stroke:var(--scheduled-line);stroke-width:1.5;stroke-dasharray:2 4}
.timeline .sight{fill:var(--scheduled-line)}
.timeline .cross{stroke:var(--ink);stroke-width:2;fill:none}
.timeline .approved{fill:var(--approved);stroke:var(--paper);stroke-width:1}
.timeline .check{stroke:var(--paper);stroke-width:1.8;fill:none}
.timeline .fault{fill:var(--fault);stroke:var(--paper);stroke-width:1}
.timeline .refused{fill:var(--refused);stroke:var(--paper);stroke-width:1}
.timeline .ready{fill:var(--approved);stroke:var(--paper);stroke-width:1}
.timeline .sign{fill:var(--paper);font-size:10px;font-weight:700;text-anchor:middle}
.timeline .reach{stroke-width:2}
.timeline .reach.fault{stroke:var(--fault)}
.timeline .reach.refused{stroke:var(--refused)}
.timeline .reach.ready{stroke:var(--approved)}
.timeline .polls{stroke:var(--soft);stroke-width:1;fill:none}
.timeline .many{fill:var(--soft);opacity:.7}
.timeline .away{fill:url(#away)}
.timeline .disconnected{fill:var(--away);opacity:.25}
.timeline .away-line{stroke:var(--away);stroke-width:1.5;opacity:.6}
.timeline .now{stroke:var(--ink);stroke-width:1;stroke-dasharray:2 3}
.timeline .hit{fill:transparent}
"""

PAGE = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:82rem;margin:0 auto;padding:1.5rem clamp(.8rem,3vw,2.5rem) 3rem}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .2rem;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2.2rem 0 .6rem}
p{margin:.3rem 0}.soft{color:var(--soft)}
.result{display:inline-block;margin:.7rem .5rem 0 0;padding:.25rem .75rem;border-radius:1rem;
border:1.5px solid currentColor;font-weight:600}
.well{color:var(--approved)}.wrong{color:var(--refused)}
figure{margin:1.2rem 0 0;border:1px solid var(--line);border-radius:.6rem;overflow-x:auto}
figure svg{display:block;width:100%;min-width:64rem;height:auto}
ul.complaints{list-style:none;margin:0;padding:0}
.complaints li{border-left:4px solid var(--refused);background:var(--band);margin:0 0 .5rem;
padding:.5rem .9rem;border-radius:0 .4rem .4rem 0;overflow-wrap:anywhere}
.complaints.met li{border-color:var(--approved)}
.complaints li.note{border-color:var(--scheduled-line)}
.complaints b{font-weight:650}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:anywhere}
td,thead th{min-width:6rem}
thead th{color:var(--soft);font-weight:600;font-size:.85rem;border-bottom-width:2px}
tbody th{background:var(--band);font-weight:650}
tbody th .soft{font-weight:400}
code{font:.9em ui-monospace,"DejaVu Sans Mono",monospace}
.absent{color:var(--refused);font-weight:600}
footer{margin-top:2.5rem;color:var(--soft);font-size:.85rem}
@media (max-width:44rem){
body{font-size:14px}thead{display:none}tr,tbody,table{display:block}
tbody th{display:block}
td{display:grid;grid-template-columns:7.5rem 1fr;border:0;padding:.12rem .7rem}
td:empty{display:none}
td::before{content:attr(data-label);color:var(--soft)}
tr{padding:.3rem 0;border-bottom:1px solid var(--line)}}
@media print{main{max-width:none;padding:0}figure{border:0;overflow:visible}
figure svg{min-width:0}tr,li,figure{break-inside:avoid}}
"""
