"""Unannounced events: carried out without being listed, such as a delete without notification.

No document shows them, so their time is taken from their lines: from `unannounced` to `over`, with
the uncertainty of lines. Without an end they may last forever.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from forewarn.judge.findings import Findings
from forewarn.judge.reading.facts import Facts
from forewarn.judge.reading.fleet import RECORD_SLACK
from forewarn.judge.reading.order import TOLERANCE
from forewarn.judge.reading.records import Trace, Unannounced


class UnannouncedEvents:
    def __init__(self, trace: Trace) -> None:
        self._margin = TOLERANCE + trace.clock_error + (0.0 if trace.complete else RECORD_SLACK)
        self._lines = sorted(trace.unannounced, key=lambda line: line.t)
        self._end_times: dict[str, float] = {}
        for over in trace.overs:
            self._end_times[over.event] = max(over.t, self._end_times.get(over.event, over.t))
        # By event and group: the starts of what may hold it, and the latest end so far.
        self._holding: dict[tuple[str, str | None], tuple[list[float], list[float]]] = {}
        self.ids = frozenset(line.event for line in self._lines)

    def until(
        self,
        event: str,
        group: str | None,
        t: float,
        may_hold: Callable[[tuple[str, ...] | None], bool],
    ) -> float:
        """Return until when an unannounced event that began by `t` may have held the event."""
        if not self._lines:
            return -math.inf
        spans = self._holding.get((event, group))
        if spans is None:
            lines = [
                line for line in self._lines if _may_be_of(line, group) and may_hold(line.machines)
            ]
            ends = [self._end_times.get(line.event, math.inf) + self._margin for line in lines]
            begins = [line.t - self._margin for line in lines]
            spans = self._holding[event, group] = begins, list(accumulate(ends, max))
        begins, last = spans
        count = bisect_right(begins, t)
        return last[count - 1] if count else -math.inf


def _may_be_of(line: Unannounced, group: str | None) -> bool:
    return line.group is None or group is None or line.group == group


def judge_shown(
    trace: Trace, unannounced: UnannouncedEvents, facts: Facts, findings: Findings
) -> None:
    """Report documents that list unannounced events. What a user requests while the group is not
    enabled is one, whether the service has recorded it as such or not."""
    by_users = {
        id
        for id, event in trace.recorded.items()
        if event.unlisted
        and id in facts.events
        and "User" in (event.source, facts.events[id].facts.get("source"))
    }
    for id in sorted(by_users | (unannounced.ids & facts.events.keys())):
        group = min(facts.events[id].groups, default=None)
        message = "It was to be carried out unannounced, and a document lists it."
        findings.add("unannounced-shown", message, t=facts.events[id].seen, event=id, group=group)
