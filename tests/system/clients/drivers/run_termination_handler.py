"""Runs termination-handler's check for Azure, unmodified.

It asks for /scheduledevents, without the leading /metadata, a path that the endpoint does not have:
whatever is pending, the answer must be 404 and the client must report nothing.

    run_termination_handler.py
    {"preempted": false}
"""

from __future__ import annotations

from tell import tell
from termination_handler.termination_handler import check_status  # type: ignore[import-not-found]

if __name__ == "__main__":
    tell(preempted=check_status("azure"))
