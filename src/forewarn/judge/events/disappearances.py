"""Events that disappear: replaced by another id, or although they were approved.

A Scheduled event that is gone was withdrawn, or has started and ended unseen. Both can be correct,
so proof needs more: another event in its place that is the same except for its id, or a recording
that would contain a withdrawal and does not.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from forewarn.judge.answers.sightings import Sightings
from forewarn.judge.dialect import ALWAYS_ANNOUNCED
from forewarn.judge.findings import Findings
from forewarn.judge.reading.document import Document, Event
from forewarn.judge.reading.facts import Facts
from forewarn.judge.reading.fleet import RECORD_SLACK
from forewarn.judge.reading.gaps import Gaps
from forewarn.judge.reading.order import TOLERANCE, Order, Sighting
from forewarn.judge.reading.records import Trace

from .approvals import EarliestApprovals, WaitingEvents
from .notice import Notices

_CREATING_MOVES = frozenset({"raise", "strike"})  # the moves that create an event
_COMPARED = ("description", "source", "duration")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known from the whole recording before events are followed through it."""

    trace: Trace
    order: Order
    gaps: Gaps
    approvals: EarliestApprovals
    sightings: Sightings
    facts: Facts


class Disappearances:
    """Follows the events of one group."""

    def __init__(
        self, evidence: Evidence, notices: Notices, waits: WaitingEvents, findings: Findings
    ) -> None:
        self._trace = evidence.trace
        self._order = evidence.order
        self._gaps = evidence.gaps
        self._approvals = evidence.approvals
        self._sightings = evidence.sightings
        self._facts = evidence.facts
        self._notices = notices
        self._waits = waits
        self._findings = findings
        # Whether a withdrawal would be known: every document, or every step, was recorded.
        self._steps_recorded = bool(evidence.trace.moves)
        self._withdrawals_known = evidence.trace.gapless or self._steps_recorded
        self._just_gone: tuple[tuple[str, ...], Document | None] = ((), None)
        self._renamed: set[str] = set()
        self._vanished: dict[str, Sighting] = {}

    def judge(
        self, sighting: Sighting, missing: tuple[str, ...], newcomers: Iterable[Event]
    ) -> set[str]:
        """Return the ids of newcomers that are earlier events under a new id.

        `missing` are the ids that were listed before.
        """
        gone = [id for id in missing if self._unstarted(id, sighting)]
        before = [id for id in self._just_gone[0] if self._unstarted(id, sighting)]
        renamed: set[str] = set()
        for event in newcomers:
            if event.started:
                old = next(
                    (id for id in (*gone, *before) if self._is_renamed_start(id, event, sighting)),
                    "",
                )
            else:
                old = next((id for id in gone if self._is_renamed(id, event)), "")
            if old:
                renamed.add(event.id)
                self._renamed.add(old)
                message = f"It replaced {old}, which is the same event under another id."
                self._findings.add_seen("changed-id", message, sighting, event.id)
        for id in gone:
            if self._approval_lost(id, sighting):
                self._vanished.setdefault(id, sighting)
        return renamed

    def settle(self, sighting: Sighting, missing: tuple[str, ...]) -> None:
        if missing:
            self._just_gone = missing, sighting.document
        elif sighting.document is not self._just_gone[1]:
            self._just_gone = (), None

    def finish(self) -> None:
        for id, sighting in self._vanished.items():
            if id not in self._renamed:
                message = "It was approved and is gone without having been Started or withdrawn."
                self._findings.add_seen("vanished", message, sighting, id)

    def _moves(self, id: str) -> frozenset[str]:
        return self._trace.moves.get(id, frozenset())

    def _unstarted(self, id: str, sighting: Sighting) -> bool:
        """Whether it was last seen Scheduled, in the same enabled period, and not withdrawn."""
        last = self._sightings.last_scheduled.get(id)
        return (
            last is not None
            and last.period is not None
            and last.period == sighting.period
            and id not in self._sightings.started
            and id not in self._renamed
            and "withdraw" not in self._moves(id)
            and not self._gaps.hide(last.exchange.asked, sighting.exchange.t)
        )

    # The same event under another id.

    def _is_renamed_start(self, id: str, event: Event, sighting: Sighting) -> bool:
        """Whether the Started newcomer can only be the event that is gone."""
        last, old_facts = self._sightings.last_scheduled[id].exchange, self._facts.events[id]
        if event.id in self._sightings.first_scheduled or not self._same(id, event):
            return False
        if _CREATING_MOVES & self._moves(event.id):
            return False
        if event.id in self._trace.short_notices or self._approvals.is_recorded(event.id):
            return False
        t = sighting.exchange.t
        age = t - last.asked + TOLERANCE + self._order.clock_error
        if not self._trace.gapless and age >= self._notices.minimum(event.type):
            return False  # it may have been announced and become due in between
        # A failure of the same machine at that moment looks the same, unless the description or the
        # type rule out a failure, or the event that is gone was about to start.
        due = old_facts.not_before is not None and old_facts.not_before <= t
        return (
            event.type in ALWAYS_ANNOUNCED
            or due
            or bool(old_facts.facts.get("description") and event.description)
            or old_facts.facts.get("source") == "User"
            or self._waits.approved(id, sighting)
        )

    def _is_renamed(self, id: str, event: Event) -> bool:
        """Whether the Scheduled newcomer is the event that is gone."""
        return (
            self._withdrawals_known
            and self._same(id, event)
            and self._facts.events[id].not_before == event.not_before
            and not _CREATING_MOVES & self._moves(event.id)
        )

    def _same(self, id: str, event: Event) -> bool:
        old, new = self._facts.events[id], self._facts.events[event.id]
        if old.facts.get("type") != event.type or old.machines() != new.machines():
            return False
        return all(
            old.facts[name] == new.facts[name]
            for name in _COMPARED
            if name in old.facts and name in new.facts
        )

    # Approved, and gone.

    def _approval_lost(self, id: str, sighting: Sighting) -> bool:
        if not self._withdrawals_known or not self._waits.approved(id, sighting):
            return False
        last = self._sightings.last_scheduled[id]
        if not self._trace.gapless:
            carried_out = any(impact.event == id for impact in self._trace.impacts)
            interrupted = any(
                last.exchange.asked - RECORD_SLACK <= t <= sighting.exchange.t + RECORD_SLACK
                for t in self._trace.interruptions
            )
            if carried_out or interrupted or "finish" in self._moves(id):
                return False  # it may have ended too soon to be seen
        if self._steps_recorded:
            return True
        event = next(listed for listed in last.document.events or () if listed.id == id)
        return not self._waits.may_wait(event, last) and not self._may_be_moot(event)

    def _may_be_moot(self, event: Event) -> bool:
        """Return whether the event may have become pointless.

        That is by another event of one of its machines, or the removal of one.
        """
        machines = set(event.resources)
        if any(not machines <= line.machines.keys() for line in self._trace.fleets):
            return True
        return any(
            not machines.isdisjoint(names)
            for id, other in self._facts.events.items()
            if id != event.id
            for names in other.machines()
        )
