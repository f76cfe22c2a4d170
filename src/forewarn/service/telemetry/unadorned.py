"""structlog, without the looks that it would give to tracebacks if it found rich.

We draw none: a log has one line for each thing. To find rich and all that it brings would take a
fifth of the time that a process takes to start, and 5 MiB in each. Only for processes of our own:
inside somebody's test structlog is as they have it.
"""

from __future__ import annotations

import sys

_hidden = "rich" not in sys.modules
if _hidden:
    sys.modules["rich"] = None  # type: ignore[assignment]  # which is how one says: not here
try:
    import structlog as structlog
finally:
    if _hidden:
        del sys.modules["rich"]
