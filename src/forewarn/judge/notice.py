"""Notice: how long before its NotBefore an event was announced.

When an event was raised is not recorded, but a document that does not list it proves that it was
raised later. Such a document must be of the same group while it was enabled: events in the first
document after enabling may have been pending for a long time.
"""

import math

from .approvals import EarliestApprovals
from .dialect import FULL_SIGHT, NEVER_SUDDEN, NOTICE, SIGHT
from .document import Event
from .findings import Findings
from .fleet import RECORD_SLACK
from .order import TOLERANCE, Order, Period, Sighting
from .records import Trace
from .sightings import Sightings

# Seconds: in a complete trace, every document is requested within this time after each change. A
# busy machine may need a moment.
PROMPT = 5.0


class Notices:
    """Judges the notice of the events of one group."""

    def __init__(
        self,
        trace: Trace,
        order: Order,
        approvals: EarliestApprovals,
        sightings: Sightings,
        findings: Findings,
    ) -> None:
        # A recorder beside an endpoint knows its time only from the Date header, in whole seconds.
        beside = not trace.fleets or trace.partial
        self._margin = TOLERANCE + order.blur + (RECORD_SLACK if beside else 0.0)
        self._gapless = trace.gapless
        self._on_purpose = trace.short_notices
        self._speed = trace.speed
        self._approvals = approvals
        self._sightings = sightings
        self._findings = findings
        self._accused: set[str] = set()
        # By enabled period and sight: when the latest document was asked for that could show
        # events of that sight.
        self._asked: dict[Period, list[float]] = {}

    def minimum(self, type: str) -> float:
        """The least notice of a type, in seconds, at the speed of the service."""
        return NOTICE[type] / self._speed

    def settle(self, sighting: Sighting) -> None:
        if sighting.period is None:
            return
        asked = self._asked.setdefault(sighting.period, [-math.inf] * (FULL_SIGHT + 1))
        for sight in range(sighting.document.version.sight + 1):
            asked[sight] = max(asked[sight], sighting.exchange.asked)

    def judge(self, event: Event, sighting: Sighting) -> None:
        """Judge an event that no document before this one lists."""
        known = self._asked.get(sighting.period) if sighting.period is not None else None
        absent = -math.inf if known is None else known[SIGHT[event.type]]
        if absent == -math.inf or event.id in self._on_purpose or event.id in self._accused:
            return
        minimum = self.minimum(event.type)
        if event.not_before is not None:
            if self._gapless:
                absent = max(absent, sighting.exchange.asked - PROMPT)
            if event.not_before + self._margin < absent + minimum:
                most = max(0.0, event.not_before - absent)
                message = (
                    f"A {event.type} was announced at most {most:.0f} s before its NotBefore,"
                    f" not {minimum:g} s."
                )
                self._accuse("short-notice", message, event, sighting)
        elif event.type in NEVER_SUDDEN and event.id not in self._sightings.first_scheduled:
            t = sighting.exchange.t
            # Had it been raised after that document, it could not have become due yet.
            undue = self._gapless or t + self._margin < absent + minimum
            if undue and self._approvals.none(event.id, t):
                message = f"A {event.type} is Started that was never Scheduled."
                self._accuse("unscheduled-start", message, event, sighting)

    def _accuse(self, rule: str, message: str, event: Event, sighting: Sighting) -> None:
        self._accused.add(event.id)
        self._findings.add_seen(rule, message, sighting, event.id)
