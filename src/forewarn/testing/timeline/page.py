"""`html`: what a terminal shows of a run, and the verdict, on one page that loads nothing else."""

from __future__ import annotations

from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from forewarn.support.text import visible
from forewarn.testing.timeline.lanes import Lanes
from forewarn.testing.timeline.terminal import live

if TYPE_CHECKING:
    from forewarn.verdict.verdict import Verdict

TITLE = "Scheduled events"
WIDTH = 140  # characters
FORMAT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title><style>
{stylesheet}
body {{ color: {foreground}; background: {background}; margin: 1.5rem; }}
pre {{ font: 13px/1.35 Menlo, 'DejaVu Sans Mono', Consolas, monospace; overflow-x: auto; }}
</style></head><body><pre tabindex="0" aria-label="Timeline"><code>{code}</code></pre></body></html>
"""


def html(lanes: Lanes, verdict: Verdict | None = None, title: str = TITLE) -> str:
    """Return the timeline, and what a verdict says about it, as an HTML page.

    Args:
        lanes: What to draw.
        verdict: The verdict to show below it.
        title: The title of the page; by default `Scheduled events`.
    """
    from rich.console import Console
    from rich.text import Text

    from forewarn.verdict.rendering import details, headline

    console = Console(file=StringIO(), record=True, width=WIDTH)
    console.print(live(lanes, title, full=True))
    if verdict is not None:
        # Beside a scenario that failed nothing says that all is well.
        good = verdict.ok and all(scenario.ok for scenario in lanes.picture().scenarios)
        lines = [headline(verdict)] if good or not verdict.ok else []
        for line in "\n".join(["", *lines, *details(verdict)]).splitlines():
            console.print(Text(visible(line)))
    page = console.export_html(code_format=FORMAT)
    return page.replace("TITLE", escape(visible(title)), 1)
