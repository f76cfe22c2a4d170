"""A picture of what happened: a lane for each machine, over time.

Drawn from the lines of a trace (docs/reference/traces.md) alone, so that a running service, a test
and a recording of any endpoint look alike. `Lanes` hears the lines, `watch` lets it hear a service;
`live` draws them on a terminal while they come, `text`, `svg` and `html` for whoever looks later.
"""

from forewarn.testing.timeline.drawing.picture import svg
from forewarn.testing.timeline.html_page import html
from forewarn.testing.timeline.lanes import Lanes
from forewarn.testing.timeline.terminal import live, text
from forewarn.testing.timeline.watching import watch

__all__ = ["Lanes", "html", "live", "svg", "text", "watch"]
