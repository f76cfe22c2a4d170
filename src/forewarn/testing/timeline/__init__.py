"""Timelines: a picture of what happened, with a lane for each machine.

Drawn from the lines of a trace alone, so that a running service, a test and a recording of any
endpoint look alike. `Lanes` collects the lines, `watch` those of a service; `live` draws on a
terminal while they are written, and `text` and `html` make documents.
"""

from forewarn.testing.timeline.lanes import Lanes, watch
from forewarn.testing.timeline.page import html
from forewarn.testing.timeline.terminal import live, text

__all__ = ["Lanes", "html", "live", "text", "watch"]
