"""Events that are carried out and shown to nobody: a delete that nobody asked to be told of.

No document proves when one is there, so the lines about it do: from the one that names it to
the one that ends it, with the doubt that lines have. Without an end it may be there for ever.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from .facts import Facts
from .findings import Findings
from .fleet import RECORD_SLACK
from .order import TOLERANCE
from .records import Trace, Unannounced


class UnannouncedEvents:
    def __init__(self, trace: Trace) -> None:
        self._margin = TOLERANCE + trace.backstep + (0.0 if trace.complete else RECORD_SLACK)
        self._lines = sorted(trace.unannounced, key=lambda line: line.t)
        self._ends: dict[str, float] = {}
        for over in trace.overs:
            self._ends[over.event] = max(over.t, self._ends.get(over.event, over.t))
        # By event and group: when what was in its way began, and the latest end of all so far.
        self._ways: dict[tuple[str, str | None], tuple[list[float], list[float]]] = {}
        self.ids = frozenset(line.event for line in self._lines)

    def until(
        self,
        event: str,
        group: str | None,
        t: float,
        in_the_way: Callable[[tuple[str, ...] | None], bool],
    ) -> float:
        """How long, of those in the event's way by `t`, the last may have been there."""
        if not self._lines:
            return -math.inf
        way = self._ways.get((event, group))
        if way is None:
            lines = [e for e in self._lines if _may_be_of(e, group) and in_the_way(e.machines)]
            ends = [self._ends.get(line.event, math.inf) + self._margin for line in lines]
            begins = [line.t - self._margin for line in lines]
            way = self._ways[event, group] = begins, list(accumulate(ends, max))
        begins, last = way
        count = bisect_right(begins, t)
        return last[count - 1] if count else -math.inf


def _may_be_of(line: Unannounced, group: str | None) -> bool:
    return line.group is None or group is None or line.group == group


def judge_shown(hidden: UnannouncedEvents, facts: Facts, findings: Findings) -> None:
    """Accuse documents that list what nobody was to be shown."""
    for id in sorted(hidden.ids & facts.known.keys()):
        group = min(facts.known[id].groups, default=None)
        message = "It was to be carried out unannounced, and a document lists it."
        findings.add("unannounced-shown", message, t=facts.known[id].seen, event=id, group=group)
