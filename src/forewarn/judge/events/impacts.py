"""Judges starts and impacts by NotBefore, approvals and the facts of the event.

Without an approval that could have arrived, nothing starts early, nor in the pause after an
interruption. Early is by the clock of the service, as `Date` shows it; or by that of the host of
the node that answered, if the service's has jumped ahead of it and no step is recorded.
"""

import math
from collections.abc import Iterable, Mapping

from forewarn.judge.answers.sightings import Sightings
from forewarn.judge.findings import Findings
from forewarn.judge.reading.facts import EventFacts, Facts
from forewarn.judge.reading.gaps import Gaps
from forewarn.judge.reading.order import TOLERANCE, Sighting
from forewarn.judge.reading.pauses import Pauses
from forewarn.judge.reading.records import Impact, Trace

from .approvals import EarliestApprovals
from .joints import Joints

_JUMP = 5.0  # seconds by which the clocks of two control nodes never differ
_DRIFT = 0.001  # by which the clocks of two hosts may differ in speed


class Timing:
    def __init__(
        self,
        trace: Trace,
        gaps: Gaps,
        approvals: EarliestApprovals,
        pauses: Pauses,
        joints: Joints,
        findings: Findings,
    ) -> None:
        self._findings = findings
        self._gaps = gaps
        self._approvals = approvals
        self._pauses = pauses
        self._joints = joints
        self._clock_error = trace.clock_error
        self._trace = trace

    def judge(
        self,
        impacts: Iterable[Impact],
        sightings: Sightings,
        facts: Facts,
        delisted: Mapping[str, float],
    ) -> None:
        for id, answered, asked in sightings.lifetimes():
            self._pauses.add(id, answered, asked)
        reported: set[str] = set()
        for id, sighting in sightings.started.items():
            # First seen as Started and then as Scheduled: that went backwards, not early.
            members = self._joints.members(id)
            first = min(sightings.first_scheduled.get(member, math.inf) for member in members)
            if first <= sighting.exchange.t and self._judge_start(
                id, _due(id, members, facts), sighting, sightings
            ):
                reported.add(id)
        for id, scheduled, sighting in sightings.starts() if self._trace.wall else ():
            due = _due(id, self._joints.members(id), facts)
            if due is not None and id not in reported:
                reported |= self._judge_jump(id, due, scheduled, sighting)
        done: set[tuple[str, str]] = set()
        for impact in impacts:
            event_facts = facts.events.get(impact.event)
            if event_facts is not None:
                self._pauses.add(impact.event, impact.t, impact.t)
                self._judge_impact(impact, event_facts, sightings, facts, delisted)
            for machine in impact.machines:
                if (impact.event, machine) in done:
                    self._report("impact-twice", f"{machine} was affected a second time.", impact)
                done.add((impact.event, machine))

    def _unapproved(self, id: str, t: float) -> bool:
        """Return whether neither it nor an event it starts with can have been approved by then."""
        return all(
            self._approvals.certainly_unapproved(member, t) for member in self._joints.members(id)
        )

    def _judge_start(
        self, id: str, not_before: int | None, sighting: Sighting, sightings: Sightings
    ) -> bool:
        """Report a start that was too early. Returns whether it was."""
        t = sighting.exchange.t
        if not self._unapproved(id, t):
            return False
        scheduled = sightings.last_scheduled.get(id)
        if not_before is not None and self._early(not_before, t):
            early = _seconds(not_before - t)
            rule = "early-start"
            message = f"It was Started {early} s before its NotBefore, without an approval."
        elif (pause_start := self._paused(not_before, t, scheduled)) is not None:
            rule = "grace-start"
            after = f"{t - pause_start:.3f} s after an interruption"
            message = f"It was Started {after}, without an approval."
        else:
            return False
        self._findings.add_seen(rule, message, sighting, id, t=t)
        return True

    def _judge_jump(
        self, id: str, not_before: int, scheduled: Sighting, started: Sighting
    ) -> set[str]:
        """Report an event that was Started before its NotBefore, because the clock of the service
        had jumped ahead since it was Scheduled. Returns the event if it was."""
        before, after = scheduled.exchange, started.exchange
        if before.real is None or after.real is None or after.real < before.real:
            return set()
        if self._gaps.hide(before.t, after.t):  # a step, for example
            return set()
        t = before.t + after.real - before.real  # had the clock gone on as before
        margin = _JUMP + _DRIFT * (after.real - before.real) + self._clock_error
        if t + margin >= min(not_before, after.t) or not self._unapproved(id, after.t):
            return set()
        restarts = self._trace.node_ups.get(after.host or "", ())
        steps = [step.t for step in self._trace.steps if step.far(_JUMP) and step.seconds > 0]
        if any(before.t - margin < at < after.t + margin for at in (*restarts, *steps)):
            return set()
        message = (
            f"It was Started {_seconds(round(not_before - t))} s before its NotBefore, without an"
            f" approval: Date had jumped ahead by {_seconds(round(after.t - t))} s."
        )
        self._findings.add_seen("early-start", message, started, id, t=after.t)
        return {id}

    def _early(self, not_before: int, t: float) -> bool:
        return t + TOLERANCE + self._clock_error < not_before

    def _paused(self, not_before: int | None, t: float, scheduled: Sighting | None) -> float | None:
        if scheduled is None or t < scheduled.exchange.asked:
            return None  # it was still Scheduled after that, which another rule reports
        return self._pauses.pause_start(t, not_before, scheduled)

    def _judge_impact(
        self,
        impact: Impact,
        event_facts: EventFacts,
        sightings: Sightings,
        facts: Facts,
        delisted: Mapping[str, float],
    ) -> None:
        margin = TOLERANCE + self._clock_error
        scheduled = sightings.last_scheduled.get(impact.event)
        members = self._joints.members(impact.event)
        announced = any(member in sightings.last_scheduled for member in members)
        if announced and self._unapproved(impact.event, impact.t):
            self._judge_unapproved(impact, _due(impact.event, members, facts), scheduled)
        if scheduled is not None and impact.t + margin < scheduled.exchange.asked:
            message = "It was carried out, and after that it was still Scheduled."
            self._report("impact-while-scheduled", message, impact)
        if delisted.get(impact.event, math.inf) + margin < impact.t:
            self._report("impact-after-gone", "It was carried out after it had ended.", impact)
        readings = event_facts.machines()
        strays = [
            machine
            for machine in impact.machines
            if all(machine not in names for names in readings)
        ]
        if strays:
            message = f"{', '.join(strays)} was affected, but is not in the event's Resources."
            self._report("impact-stray", message, impact)
        if impact.type is not None and impact.type != event_facts.facts["type"]:
            message = (
                f"A {event_facts.facts['type']} was announced, but a {impact.type} was carried out."
            )
            self._report("impact-type", message, impact)

    def _judge_unapproved(
        self, impact: Impact, not_before: int | None, scheduled: Sighting | None
    ) -> None:
        if not_before is not None and self._early(not_before, impact.t):
            early = _seconds(not_before - impact.t)
            message = f"It was carried out {early} s before its NotBefore, without an approval."
            self._report("impact-early", message, impact)
        elif (pause_start := self._paused(not_before, impact.t, scheduled)) is not None:
            after = f"{impact.t - pause_start:.3f} s after an interruption"
            self._report("grace-start", f"It was carried out {after}, without an approval.", impact)

    def _report(self, rule: str, message: str, impact: Impact) -> None:
        machine = impact.machines[0] if impact.machines else None
        self._findings.add(rule, message, t=impact.t, event=impact.event, machine=machine)


def _due(id: str, members: Iterable[str], facts: Facts) -> int | None:
    """Return its NotBefore, or that of an event that it starts with."""
    for member in (id, *sorted(members)):
        event_facts = facts.events.get(member)
        if event_facts is not None and event_facts.not_before is not None:
            return event_facts.not_before
    return None


def _seconds(length: float) -> str:
    return f"{length:.3f}".rstrip("0").rstrip(".")
