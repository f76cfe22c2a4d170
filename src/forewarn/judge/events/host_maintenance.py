"""Judges host maintenance: the events of all groups have one NotBefore and start together.

They start early only if every enabled group has approved. The approval of a disabled group, or for
an event that was withdrawn, is not needed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from forewarn.judge.answers.sightings import Sightings
from forewarn.judge.findings import Findings
from forewarn.judge.reading.facts import Facts
from forewarn.judge.reading.fleet import RECORD_SLACK
from forewarn.judge.reading.gaps import Gaps
from forewarn.judge.reading.order import TOLERANCE, Order
from forewarn.judge.reading.pauses import Pauses
from forewarn.judge.reading.records import Impact, Trace

from .approvals import EarliestApprovals
from .joints import Joints

_Ids = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _StartProof:
    """Proof that an event had started by `t`."""

    t: float
    event: str


class HostMaintenance:
    def __init__(
        self,
        trace: Trace,
        order: Order,
        gaps: Gaps,
        approvals: EarliestApprovals,
        pauses: Pauses,
        findings: Findings,
    ) -> None:
        self._order = order
        self._gaps = gaps
        self._approvals = approvals
        self._pauses = pauses
        self._findings = findings
        self._margin = TOLERANCE + trace.clock_error
        self._slack = 0.0 if trace.complete else RECORD_SLACK
        self._postponed = trace.postponed
        self._moves = trace.moves
        self._recorded = trace.recorded

    def judge(
        self, joints: Joints, sightings: Sightings, impacts: Iterable[Impact], facts: Facts
    ) -> None:
        if not joints.all:
            return
        impact_times: dict[str, float] = {}
        for impact in impacts:
            impact_times[impact.event] = min(impact.t, impact_times.get(impact.event, impact.t))
        for ids in joints.all:
            self._judge_start(ids, sightings, impact_times)
            due = self._not_before(ids, facts)
            if due is not None:
                self._judge_approvals(ids, due, sightings, impact_times)

    def _not_before(self, ids: _Ids, facts: Facts) -> int | None:
        """Return the common NotBefore; report if there are two. None: it is not known."""
        times: dict[str, int] = {}
        for id in ids:
            facts_of_event = facts.events.get(id)
            if facts_of_event is not None and facts_of_event.not_before is not None:
                times[id] = facts_of_event.not_before
        if not self._postponed.keys().isdisjoint(ids):
            # One that was withdrawn before the others were postponed has kept its time.
            times = {id: t for id, t in times.items() if "withdraw" not in self._moves.get(id, ())}
            if self._may_hide_postponement(ids):
                return None
        if len(set(times.values())) > 1:
            first, *others = times
            other = next(id for id in others if times[id] != times[first])
            difference = abs(times[other] - times[first])
            message = f"Its NotBefore is {difference} s from that of {first}, with which it starts."
            seen, group = facts.events[other].seen, min(facts.events[other].groups, default=None)
            self._findings.add("joint-not-before", message, t=seen, event=other, group=group)
            return None
        return next(iter(times.values()), None)

    def _may_hide_postponement(self, ids: _Ids) -> bool:
        """Return whether the lines of all of them about a postponement may not have been written:
        it is one commit, and a line for each."""
        recorded = [event for id in ids if (event := self._recorded.get(id)) is not None]
        begin = min((event.raised for event in recorded if event.raised is not None), default=0.0)
        end = min((event.started for event in recorded if event.started is not None), default=inf)
        return self._gaps.hide(begin, end)

    def _judge_start(
        self, ids: _Ids, sightings: Sightings, impact_times: Mapping[str, float]
    ) -> None:
        for late in ids:
            waiting = sightings.last_scheduled.get(late)
            if waiting is None:
                continue
            for id in ids:
                started = sightings.started.get(id)
                if id == late:
                    continue
                if started is not None and self._order.before(started.exchange, waiting.exchange):
                    message = (
                        f"It was still Scheduled after {id}, with which it starts, was Started."
                    )
                elif (
                    id in impact_times
                    and impact_times[id] + self._margin + self._slack < waiting.exchange.asked
                ):
                    message = (
                        f"It was still Scheduled after {id}, with which it starts, was carried out."
                    )
                else:
                    continue
                self._findings.add_seen("joint-start", message, waiting, late)
                break

    def _judge_approvals(
        self, ids: _Ids, due: int, sightings: Sightings, impact_times: Mapping[str, float]
    ) -> None:
        proofs = [
            _StartProof(sightings.started[id].exchange.t, id)
            for id in ids
            if id in sightings.started
        ]
        proofs += [_StartProof(impact_times[id], id) for id in ids if id in impact_times]
        if not proofs:
            return
        t = min(proof.t for proof in proofs)
        if all(self._approvals.certainly_unapproved(id, t) for id in ids):
            return  # each of them started early, which another rule reports
        started = {proof.event for proof in proofs}
        for id in ids:
            scheduled = sightings.last_scheduled.get(id)
            # Seen Scheduled: its group was enabled. Seen Started: it had not been withdrawn.
            if scheduled is None or id not in started or scheduled.exchange.asked > t:
                continue
            if not self._approvals.certainly_unapproved(id, t) or not self._pauses.was_enabled(
                scheduled, t
            ):
                continue
            if t + self._margin < due:
                message = f"It was started {due - t:.3f} s early, and its group had not approved."
                self._findings.add_seen("joint-approval", message, scheduled, id)
            elif (pause_start := self._pauses.pause_start(t, due, scheduled)) is not None:
                after = f"{t - pause_start:.3f} s after an interruption"
                message = f"It was started {after}, and its group had not approved."
                self._findings.add_seen("grace-start", message, scheduled, id)
