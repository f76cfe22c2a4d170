"""How the API's page looks: in the light and in the dark, on a phone and on a wide screen."""

STYLE = """
:root { color-scheme: light dark; --back: #fff; --fore: #1c2024; --soft: #60646c;
  --line: #d9dce1; --field: #f4f5f7; --link: #0b62c4; --get: #0b62c4; --post: #18794e;
  --put: #946800; --patch: #946800; --delete: #c62a2f; }
@media (prefers-color-scheme: dark) { :root { --back: #16181b; --fore: #edeef0; --soft: #a5abb5;
  --line: #33373d; --field: #1f2226; --link: #79b8ff; --get: #79b8ff; --post: #5fd0a0;
  --put: #e2b340; --patch: #e2b340; --delete: #ff8b8f; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; background: var(--back); color: var(--fore);
  font: 16px/1.5 system-ui, sans-serif; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
nav { padding: 1rem; border-bottom: 1px solid var(--line); font-size: .875rem;
  max-height: 40vh; overflow-y: auto; }
nav h2 { margin: 1rem 0 .25rem; font-size: .875rem; } nav .top { font-weight: 700; }
nav ul { margin: 0; padding: 0; list-style: none; } nav li { padding: .15rem 0; }
main { padding: 1rem; min-width: 0; max-width: 60rem; }
h1 { font-size: 1.6rem; line-height: 1.2; }
section > h2 { margin-top: 3rem; padding-bottom: .25rem; border-bottom: 2px solid var(--line);
  text-transform: capitalize; }
article { margin: 1.5rem 0; padding: 0 0 1rem; border-bottom: 1px solid var(--line); }
article:target, tr:target { background: var(--field); }
h3 { font-size: 1.05rem; overflow-wrap: anywhere; } h4 { margin: 1rem 0 .25rem; }
h3 .anchor { color: var(--soft); }
small { color: var(--soft); font-weight: 400; }
th small { display: block; }
.summary { font-weight: 600; } .role { color: var(--soft); font-size: .875rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .875em; }
pre { padding: .75rem; background: var(--field); border-radius: 6px; overflow-x: auto; }
.method { display: inline-block; min-width: 3.6em; font: 700 .75rem ui-monospace, monospace; }
.get { color: var(--get); } .post { color: var(--post); } .put { color: var(--put); }
.patch { color: var(--patch); } .delete { color: var(--delete); }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .875rem; }
th, td { padding: .35rem .75rem .35rem 0; border-top: 1px solid var(--line);
  text-align: left; vertical-align: top; overflow-wrap: anywhere; }
th { min-width: 8rem; font-weight: 500; } td:last-child { min-width: 10rem; }
dt { float: left; clear: left; width: 3rem; font-weight: 600; } dd { margin: 0 0 .5rem 3.5rem; }
@media (min-width: 60rem) { body { display: grid; grid-template-columns: 18rem minmax(0, 1fr); }
  nav { position: sticky; top: 0; height: 100vh; max-height: none; border-bottom: 0;
  border-right: 1px solid var(--line); } main { padding: 1rem 2rem; } }
"""
