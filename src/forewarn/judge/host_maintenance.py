"""A host is worked on for all its groups at once: one NotBefore, one start.

It starts early only with the approval of every group that listens. A group whose machines have
stopped asking has no vote, and an event that was withdrawn needs none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .approvals import EarliestApprovals
from .facts import Facts
from .findings import Findings
from .fleet import RECORD_SLACK
from .joints import Joints
from .order import TOLERANCE, Order
from .pauses import Pauses
from .records import Impact, Trace
from .sightings import Sightings

_Ids = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sign:
    """Of a start: by then it had happened."""

    t: float
    event: str


class HostMaintenance:
    def __init__(
        self,
        trace: Trace,
        order: Order,
        approvals: EarliestApprovals,
        pauses: Pauses,
        findings: Findings,
    ) -> None:
        self._order = order
        self._approvals = approvals
        self._pauses = pauses
        self._findings = findings
        self._margin = TOLERANCE + trace.backstep
        self._slack = 0.0 if trace.complete else RECORD_SLACK

    def judge(
        self, joints: Joints, sightings: Sightings, impacts: Iterable[Impact], facts: Facts
    ) -> None:
        if not joints.all:
            return
        struck: dict[str, float] = {}
        for impact in impacts:
            struck[impact.event] = min(impact.t, struck.get(impact.event, impact.t))
        for ids in joints.all:
            self._judge_start(ids, sightings, struck)
            due = self._not_before(ids, sightings, facts)
            if due is not None:
                self._judge_votes(ids, due, sightings, struck)

    def _not_before(self, ids: _Ids, sightings: Sightings, facts: Facts) -> int | None:
        """The one they all show. Accuses if there are two."""
        shown: dict[str, int] = {}
        for id in ids:
            known = facts.known.get(id)
            if known is not None and known.not_before is not None:
                shown[id] = known.not_before
        if len(set(shown.values())) > 1:
            one, *rest = shown
            other = next(id for id in rest if shown[id] != shown[one])
            apart = abs(shown[other] - shown[one])
            message = f"Its NotBefore is {apart} s from that of {one}, with which it starts."
            self._findings.add_seen(
                "joint-not-before", message, sightings.last_scheduled[other], other
            )
            return None
        return next(iter(shown.values()), None)

    def _judge_start(self, ids: _Ids, sightings: Sightings, struck: Mapping[str, float]) -> None:
        for late in ids:
            waiting = sightings.last_scheduled.get(late)
            if waiting is None:
                continue
            for id in ids:
                begun = sightings.started.get(id)
                if id == late:
                    continue
                if begun is not None and self._order.before(begun.exchange, waiting.exchange):
                    message = (
                        f"It was still Scheduled after {id}, with which it starts, was Started."
                    )
                elif (
                    id in struck
                    and struck[id] + self._margin + self._slack < waiting.exchange.asked
                ):
                    message = f"It was still Scheduled after {id}, with which it starts, was done."
                else:
                    continue
                self._findings.add_seen("joint-start", message, waiting, late)
                break

    def _judge_votes(
        self, ids: _Ids, due: int, sightings: Sightings, struck: Mapping[str, float]
    ) -> None:
        signs = [
            _Sign(sightings.started[id].exchange.t, id) for id in ids if id in sightings.started
        ]
        signs += [_Sign(struck[id], id) for id in ids if id in struck]
        if not signs:
            return
        t = min(sign.t for sign in signs)
        if all(self._approvals.none(id, t) for id in ids):
            return  # each of them started early, which is another matter
        begun = {sign.event for sign in signs}
        for id in ids:
            seen = sightings.last_scheduled.get(id)
            # Seen Scheduled, its group listened; seen Started, it was not withdrawn before.
            if seen is None or id not in begun or seen.exchange.asked > t:
                continue
            if not self._approvals.none(id, t) or not self._pauses.listening(seen, t):
                continue
            if t + self._margin < due:
                message = f"It was started {due - t:.3f} s early, and its group had not approved."
                self._findings.add_seen("joint-approval", message, seen, id)
            elif (began := self._pauses.began(t, due, seen)) is not None:
                after = f"{t - began:.3f} s after an interruption"
                message = f"It was started {after}, and its group had not approved."
                self._findings.add_seen("grace-start", message, seen, id)
