"""Where recordings have gaps, because a recorder was killed: what they hide is not judged.

The last lines of a recorder that is killed are missing: what was decided and done until then, and
requests that were not answered yet. A gap of control hides everything that control writes, until
it writes again what holds then; a gap of a node hides requests, and that it was disconnected.
"""

import math
from collections.abc import Sequence

from .document import Document
from .fleet import RECORD_SLACK, Caller
from .records import Disabled, Exchange, Gap, Trace
from .trace import MISSING_REACH


class Gaps:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._slack = RECORD_SLACK + trace.clock_error
        self._control = sorted(
            (gap for gap in trace.gaps if gap.host is None), key=lambda gap: gap.t
        )

    def hide(self, begin: float, end: float) -> bool:
        """Return whether lines of control may be missing in that time."""
        return any(gap.overlaps(begin - self._slack, end + self._slack) for gap in self._control)

    def may_hide_event(self, id: str) -> bool:
        """Return whether the lines about an event may all be missing."""
        return bool(self._control) and id not in self._trace.recorded

    def hidden_approval(self, id: str) -> float:
        """Return when an approval may first have come whose line is missing. What the service says
        itself about the approval of an event is believed if it may be in a gap."""
        event = self._trace.recorded.get(id)
        if event is not None and event.started is not None:
            at = event.approved
            hidden = at is not None and any(
                gap.overlaps(at - self._slack, at + MISSING_REACH) for gap in self._trace.gaps
            )
            return at - self._slack if at is not None and hidden else math.inf
        raised = -math.inf if event is None or event.raised is None else event.raised
        return min(
            (
                gap.t - MISSING_REACH
                for gap in self._trace.gaps
                if raised <= gap.until + self._slack
            ),
            default=math.inf,
        )

    def hidden_disables(
        self, reads: Sequence[tuple[Exchange, Caller, Document]]
    ) -> tuple[Disabled, ...]:
        """Return which groups were disabled in gaps: their documents start over, and the fleet that
        is written again does not rule it out."""
        by_group: dict[str, list[tuple[Exchange, Document]]] = {}
        for exchange, caller, document in reads if self._control else ():
            if caller.group is not None:
                by_group.setdefault(caller.group, []).append((exchange, document))
        ends = [*(gap.t for gap in self._control), math.inf][1:]
        return tuple(
            Disabled(-1, gap.t, group, hidden_until=gap.until)
            for gap, end in zip(self._control, ends, strict=True)
            for group, documents in by_group.items()
            if self._may_have_started_over(group, documents, gap, end)
        )

    def _may_have_started_over(
        self, group: str, documents: list[tuple[Exchange, Document]], gap: Gap, end: float
    ) -> bool:
        arrays = {
            document.incarnation: document.array
            for exchange, document in documents
            if exchange.asked <= gap.t + self._slack and document.incarnation is not None
        }
        highest = max(arrays, default=0)
        fleet = next(
            (line for line in self._trace.fleets if line.t + self._slack >= gap.until), None
        )
        if fleet is not None and fleet.shown.get(group, 0) < highest:
            return False
        return any(
            document.incarnation is not None
            and document.incarnation <= highest
            and (document.incarnation < highest or document.array != arrays[highest])
            for exchange, document in documents
            if gap.t - self._slack <= exchange.t <= end + self._slack
        )
