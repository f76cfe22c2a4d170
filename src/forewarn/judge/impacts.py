"""Starts and impacts against NotBefore, approvals and what the event announced.

Absent an approval that could have arrived, nothing starts early, nor in the pause after an
interruption.
"""

import math
from collections.abc import Iterable, Mapping

from .approvals import EarliestApprovals
from .facts import Facts, Known
from .findings import Findings
from .joints import Joints
from .order import TOLERANCE, Sighting
from .pauses import Pauses
from .records import Impact, Trace
from .sightings import Sightings


class Timing:
    def __init__(
        self,
        trace: Trace,
        approvals: EarliestApprovals,
        pauses: Pauses,
        joints: Joints,
        findings: Findings,
    ) -> None:
        self._findings = findings
        self._approvals = approvals
        self._pauses = pauses
        self._joints = joints
        self._blur = trace.backstep

    def judge(
        self,
        impacts: Iterable[Impact],
        sightings: Sightings,
        facts: Facts,
        gone: Mapping[str, float],
    ) -> None:
        for id, answered, asked in sightings.lives():
            self._pauses.note(id, answered, asked)
        for id, sighting in sightings.started.items():
            # First seen as Started and then as Scheduled: that went backwards, not early.
            together = self._joints.members(id)
            first = min(sightings.first_scheduled.get(one, math.inf) for one in together)
            if first <= sighting.exchange.t:
                self._judge_start(id, _due(id, together, facts), sighting, sightings)
        touched: set[tuple[str, str]] = set()
        for impact in impacts:
            known = facts.known.get(impact.event)
            if known is not None:
                self._pauses.note(impact.event, impact.t, impact.t)
                self._judge_impact(impact, known, sightings, facts, gone)
            for machine in impact.machines:
                if (impact.event, machine) in touched:
                    self._accuse("impact-twice", f"{machine} was touched a second time.", impact)
                touched.add((impact.event, machine))

    def _unapproved(self, id: str, t: float) -> bool:
        """Whether nobody can have approved it by then, nor any event that it starts with."""
        return all(self._approvals.none(one, t) for one in self._joints.members(id))

    def _judge_start(
        self, id: str, not_before: int | None, sighting: Sighting, sightings: Sightings
    ) -> None:
        t = sighting.exchange.t
        if not self._unapproved(id, t):
            return
        scheduled = sightings.last_scheduled.get(id)
        if not_before is not None and self._early(not_before, t):
            early = _seconds(not_before - t)
            rule = "early-start"
            message = f"It was Started {early} s before its NotBefore, and nobody had approved."
        elif (began := self._paused(not_before, t, scheduled)) is not None:
            rule = "grace-start"
            message = (
                f"It was Started {t - began:.3f} s after an interruption, and nobody had approved."
            )
        else:
            return
        self._findings.add_seen(rule, message, sighting, id, t=t)

    def _early(self, not_before: int, t: float) -> bool:
        return t + TOLERANCE + self._blur < not_before

    def _paused(self, not_before: int | None, t: float, scheduled: Sighting | None) -> float | None:
        if scheduled is None or t < scheduled.exchange.asked:
            return None  # it was still Scheduled after that, which is worse
        return self._pauses.began(t, not_before, scheduled)

    def _judge_impact(
        self,
        impact: Impact,
        known: Known,
        sightings: Sightings,
        facts: Facts,
        gone: Mapping[str, float],
    ) -> None:
        margin = TOLERANCE + self._blur
        scheduled = sightings.last_scheduled.get(impact.event)
        together = self._joints.members(impact.event)
        announced = any(one in sightings.last_scheduled for one in together)
        if announced and self._unapproved(impact.event, impact.t):
            self._judge_unapproved(impact, _due(impact.event, together, facts), scheduled)
        if scheduled is not None and impact.t + margin < scheduled.exchange.asked:
            message = "It was carried out, and after that it was still Scheduled."
            self._accuse("impact-while-scheduled", message, impact)
        if gone.get(impact.event, math.inf) + margin < impact.t:
            self._accuse("impact-after-gone", "It was gone, and then carried out.", impact)
        readings = known.machines()
        strays = [m for m in impact.machines if all(m not in names for names in readings)]
        if strays:
            message = f"{', '.join(strays)} was touched, which the event does not list."
            self._accuse("impact-stray", message, impact)
        if impact.type is not None and impact.type != known.facts["type"]:
            message = f"A {known.facts['type']} was announced, a {impact.type} was done."
            self._accuse("impact-type", message, impact)

    def _judge_unapproved(
        self, impact: Impact, not_before: int | None, scheduled: Sighting | None
    ) -> None:
        if not_before is not None and self._early(not_before, impact.t):
            early = _seconds(not_before - impact.t)
            message = f"It was carried out {early} s before its NotBefore, and nobody had approved."
            self._accuse("impact-early", message, impact)
        elif (began := self._paused(not_before, impact.t, scheduled)) is not None:
            after = f"{impact.t - began:.3f} s after an interruption"
            self._accuse(
                "grace-start", f"It was carried out {after}, and nobody had approved.", impact
            )

    def _accuse(self, rule: str, message: str, impact: Impact) -> None:
        machine = impact.machines[0] if impact.machines else None
        self._findings.add(rule, message, t=impact.t, event=impact.event, machine=machine)


def _due(id: str, together: Iterable[str], facts: Facts) -> int | None:
    """Its NotBefore. One that only the events show which it starts with is its own too."""
    for one in (id, *sorted(together)):
        known = facts.known.get(one)
        if known is not None and known.not_before is not None:
            return known.not_before
    return None


def _seconds(length: float) -> str:
    return f"{length:.3f}".rstrip("0").rstrip(".")
