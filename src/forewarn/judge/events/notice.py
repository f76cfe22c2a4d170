"""Judges notice: how long before its NotBefore an event was announced.

A document that does not list an event proves that it was shown later; the service may have recorded
that it had decided it a moment before. Such a document must be of the same group while it was
enabled: events in the first document after enabling may have been pending for a long time.
"""

import math

from forewarn.judge.answers.sightings import Sightings
from forewarn.judge.dialect import ALWAYS_ANNOUNCED, LAST_WAVE, NOTICE, WAVE
from forewarn.judge.findings import Findings
from forewarn.judge.reading.document import Event
from forewarn.judge.reading.fleet import RECORD_SLACK
from forewarn.judge.reading.gaps import Gaps
from forewarn.judge.reading.order import TOLERANCE, Order, Period, Sighting
from forewarn.judge.reading.records import RecordedEvent, Trace

from .approvals import EarliestApprovals

# Seconds: in a complete trace, every document is requested within this time after each change. A
# busy machine may need a moment.
POLL_WITHIN = 5.0

# Seconds from the decision to announce an event, from which its notice counts, until it is durable
# and shown. A busy disk may need a moment.
SHOWN_WITHIN = 1.0


class Notices:
    """Judges the notice of the events of one group."""

    def __init__(
        self,
        trace: Trace,
        order: Order,
        gaps: Gaps,
        approvals: EarliestApprovals,
        sightings: Sightings,
        findings: Findings,
    ) -> None:
        # A recorder beside an endpoint knows its time only from the Date header, in whole seconds.
        by_client = not trace.fleets or trace.partial
        self._margin = TOLERANCE + order.clock_error + (RECORD_SLACK if by_client else 0.0)
        self._gaps = gaps
        self._gapless = trace.gapless
        self._allowed = trace.short_notices
        self._recorded = trace.recorded
        self._speed = trace.speed
        self._approvals = approvals
        self._sightings = sightings
        self._findings = findings
        self._reported: set[str] = set()
        # By enabled period and sight: when the latest document was asked for that could show
        # events of that sight.
        self._last_asked: dict[Period, list[float]] = {}

    def minimum(self, type: str) -> float:
        """Return the minimum notice of a type, in seconds, at the speed of the service."""
        return NOTICE[type] / self._speed

    def settle(self, sighting: Sighting) -> None:
        if sighting.period is None:
            return
        last_asked = self._last_asked.setdefault(sighting.period, [-math.inf] * (LAST_WAVE + 1))
        for wave in range(sighting.document.version.wave + 1):
            last_asked[wave] = max(last_asked[wave], sighting.exchange.asked)

    def judge(self, event: Event, sighting: Sighting) -> None:
        """Judge an event that no document before this one lists."""
        last_asked = self._last_asked.get(sighting.period) if sighting.period is not None else None
        absent_at = -math.inf if last_asked is None else last_asked[WAVE[event.type]]
        if absent_at == -math.inf or event.id in self._allowed or event.id in self._reported:
            return
        if self._gaps.may_hide_event(event.id) and self._gaps.hide(absent_at, sighting.exchange.t):
            return  # it may have less notice on purpose
        minimum = self.minimum(event.type)
        if event.not_before is not None:
            if self._gapless:
                absent_at = max(absent_at, sighting.exchange.asked - POLL_WITHIN)
            raised = self._recorded.get(event.id, RecordedEvent()).raised
            if raised is not None and raised <= absent_at <= raised + SHOWN_WITHIN:
                absent_at = raised
            if event.not_before + self._margin < absent_at + minimum:
                max_notice = max(0.0, event.not_before - absent_at)
                message = (
                    f"A {event.type} was announced at most {max_notice:.0f} s before its NotBefore,"
                    f" not {minimum:g} s."
                )
                self._report("short-notice", message, event, sighting)
        elif event.type in ALWAYS_ANNOUNCED and event.id not in self._sightings.first_scheduled:
            t = sighting.exchange.t
            # Had it been raised after that document, it could not have become due yet.
            cannot_be_due = self._gapless or t + self._margin < absent_at + minimum
            if cannot_be_due and self._approvals.certainly_unapproved(event.id, t):
                message = f"A {event.type} is Started that was never Scheduled."
                self._report("unscheduled-start", message, event, sighting)

    def _report(self, rule: str, message: str, event: Event, sighting: Sighting) -> None:
        self._reported.add(event.id)
        self._findings.add_seen(rule, message, sighting, event.id)
