"""When each event may first have been approved.

An approval without an answer may have arrived; so may one that could not be read.
"""

import math

from .fleet import RECORD_SLACK
from .records import Exchange, Trace
from .request import Request

# The answers after which an approval has, or may have, taken effect.
_EFFECTIVE = frozenset({200, 500, None})


class EarliestApprovals:
    def __init__(self, trace: Trace) -> None:
        self._blur = trace.backstep
        self._doubt = trace.doubt
        self._approved: dict[str, float] = {}  # the earliest moment it may have been
        slack = 0.0 if trace.complete else RECORD_SLACK
        for approval in trace.approvals:
            self._may_approve(approval.event, approval.t - slack)

    def note(self, exchange: Exchange, request: Request) -> None:
        """A POST, whatever came of it. A fault may hide an answer, not undo what was asked."""
        if exchange.status in _EFFECTIVE or exchange.fault:
            for id in request.mentions:
                self._may_approve(id, exchange.asked)

    def _may_approve(self, id: str, t: float) -> None:
        self._approved[id] = min(t, self._approved.get(id, math.inf))

    def named(self, id: str) -> bool:
        """Whether an approval of it is in the recording."""
        return id in self._approved

    def none(self, id: str, t: float) -> bool:
        """Whether nobody can have approved the event by then."""
        return t + self._blur < min(self._approved.get(id, math.inf), self._doubt)
