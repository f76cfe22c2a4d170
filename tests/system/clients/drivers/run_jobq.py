"""Runs ai4s-jobq's own event handlers, unmodified: what a job worker does on a spot machine.

The ScheduledEventHandler builds a dataclass of exactly nine fields from every event; the
PreemptionEventHandler sets a shutdown event when the document holds a Preempt, and clears it when
that is gone. The driver reports both, whenever they change.

    run_jobq.py [POLL_SECONDS]
    {"events": [{"EventId": …}, …]}   {"shutdown": true}   {"shutdown": false}
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys

from ai4s.jobq.scheduled_events import (  # type: ignore[import-not-found]
    PreemptionEventHandler,
    ScheduledEvent,
    ScheduledEventHandler,
)
from tell import tell


class ReportedEvent(asyncio.Event):
    """An asyncio.Event that reports its changes."""

    def set(self) -> None:
        if not self.is_set():
            tell(shutdown=True)
        super().set()

    def clear(self) -> None:
        if self.is_set():
            tell(shutdown=False)
        super().clear()


async def main(poll_seconds: float) -> None:
    last: list[ScheduledEvent] | None = None

    async def report(events: list[ScheduledEvent]) -> None:
        nonlocal last
        if events != last:
            last = events
            tell(events=[dataclasses.asdict(event) for event in events])

    async with (
        ScheduledEventHandler(report, poll_interval_seconds=poll_seconds),
        PreemptionEventHandler(ReportedEvent(), poll_interval_seconds=poll_seconds),
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    os.environ.setdefault("AZ_BATCH_TASK_ID", "task")  # how the client knows it is on Azure
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))
