"""The operators' verbs for rollouts: plan, start, list, pause, resume, abort, explain.

They change a rollout's plan and switches; it is carried out by `reconciler.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from forewarn.core import Refused
from forewarn.core.deciding.holds import Hold
from forewarn.core.events import Event, Status
from forewarn.core.refusal import conflict, invalid, unknown
from forewarn.core.registry import RolloutPut, RolloutRemoved
from forewarn.core.rollouts.forecast import Forecast, Planned, forecast
from forewarn.core.rollouts.model import Action, Rollout, Switch, WorkBy
from forewarn.core.rollouts.next_step import Next, ending
from forewarn.core.rollouts.overlap import overlap_problem
from forewarn.core.rollouts.progress import StepState, Wait, WaitKind
from forewarn.core.rollouts.summary import WaitGroup, by_reason
from forewarn.core.time import MINUTE, Duration, Time
from forewarn.service.engine.writer import CommitPlan, RequestContext
from forewarn.service.platform.explain import summary
from forewarn.service.platform.platform import Platform
from forewarn.service.rollouts.gates import Gates
from forewarn.service.rollouts.host_work import HostWork
from forewarn.service.rollouts.reconciler import ABORTED, RolloutReconciler, put, withdrawals
from forewarn.service.rollouts.request import (
    Draft,
    RolloutRequest,
    draft_rollout,
    never_allowed,
    reason_problem,
)
from forewarn.store.port import States, Store
from forewarn.support import guard
from forewarn.support.suggest import instead_of
from forewarn.support.text import listing

WITHDRAWN = "the rollout was paused"  # why its events were withdrawn
MAX_RUNNING = 100  # rollouts that are not over
MAX_ROLLOUTS = 1_000  # in all; the oldest that are over are removed
SKIPPED = "its step was skipped"
FORECAST_KEPT: Duration = 15 * MINUTE  # as often as calendars are read
EXPLAINED_EVENTS = 5  # for each reason
STATES = ("running", "paused", "blocked", "aborting", "aborted", "expired", "done")


class RolloutSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout, and how many of its steps are over."""

    rollout: Rollout
    state: str
    steps_over: int


class RolloutReport(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout, its progress, and its next step."""

    rollout: Rollout
    next: Next

    @property
    def summary(self) -> RolloutSummary:
        return RolloutSummary(rollout=self.rollout, state=self.state, steps_over=self.steps_over)

    @property
    def steps_over(self) -> int:
        """The number of steps that are over. For a rollout that has ended it is stored, since its
        events may have been pruned."""
        if self.rollout.steps_over is not None:
            return self.rollout.steps_over
        return sum(step.state.over for lane in self.next.lanes for step in lane.steps)

    @property
    def state(self) -> str:
        rollout = self.rollout
        if self.next.over:
            return self.next.over
        if rollout.aborted:
            return "aborting"
        if rollout.paused:
            return "paused"
        blocked = any(
            step.state is StepState.CANCELLED for lane in self.next.lanes for step in lane.steps
        ) or any(work.attempt is not None and work.attempt.stuck for work in rollout.work)
        return "blocked" if blocked else "running"


class ExplainedWait(msgspec.Struct, frozen=True, kw_only=True):
    """What lanes wait for, for the same reason, and what some of the events involved wait for."""

    group: WaitGroup
    events: tuple[tuple[Event, tuple[Hold, ...], str], ...] = ()


class RolloutExplanation(msgspec.Struct, frozen=True, kw_only=True):
    report: RolloutReport
    message: str
    waits: tuple[ExplainedWait, ...] = ()


class Rollouts:
    def __init__(
        self,
        store: Store,
        platform: Platform,
        reconciler: RolloutReconciler,
        gates: Gates,
        work: HostWork,
    ) -> None:
        self._store = store
        self._platform = platform
        self._writer = platform.writer
        self._reconciler = reconciler
        self._gates = gates
        self._work = work
        self._forecasts: dict[str, tuple[Rollout, int, Forecast]] = {}  # with their period

    def for_request(self, request: RequestContext) -> Rollouts:
        """Return the same verbs, whose commits carry the context of one request."""
        platform = self._platform.for_request(request)
        return Rollouts(self._store, platform, self._reconciler, self._gates, self._work)

    async def plan(self, wanted: RolloutRequest) -> tuple[Draft, Forecast] | Refused:
        """Forecast what would happen, and when, if the rollout were started now."""
        draft = self.draft(wanted)
        if isinstance(draft, Refused):
            return draft
        # A pure function that may take long, so it runs in a thread.
        now = self._writer.now()
        configurations = self._reconciler.configurations_by_cause(draft.rollout)
        expected = await asyncio.to_thread(forecast, draft.rollout, now, configurations)
        unreachable = self._reconciler.unreachable(draft.rollout, now)
        targets = self._reconciler.targets(draft.rollout, [item.step for item in expected.steps])
        return msgspec.structs.replace(draft, unreachable=unreachable, targets=targets), expected

    async def expected_end(self, report: RolloutReport) -> Time | None:
        """Forecast when a rollout that is under way ends, from what it has done so far; None if it
        waits for an operator, or would not complete."""
        return (await self._remaining(report)).done_at if report.state == "running" else None

    async def _remaining(self, report: RolloutReport) -> Forecast:
        rollout, now = report.rollout, self._writer.now()
        configurations = self._reconciler.configurations_by_cause(rollout)
        return await asyncio.to_thread(forecast, rollout, now, configurations, report.next.lanes)

    async def upcoming(self) -> Sequence[tuple[Rollout, Sequence[Planned]]]:
        """Return the steps that rollouts in progress are still to announce, and when they are
        expected to start. A forecast is used for FORECAST_KEPT, since it may take long."""
        kept: dict[str, tuple[Rollout, int, Forecast]] = {}
        upcoming = []
        for rollout in list(self._store.registry.rollouts.values()):
            if not rollout.running:
                continue
            report = await self._report(rollout.id)
            if report.state != "running":
                continue
            period = self._writer.now().at // FORECAST_KEPT
            known = self._forecasts.get(rollout.id)
            if known is None or known[:2] != (report.rollout, period):
                known = report.rollout, period, await self._remaining(report)
            kept[rollout.id] = known
            waiting = {
                step.step.cause
                for lane in report.next.lanes
                for step in lane.steps
                if step.state is StepState.WAITING
            }
            planned = [item for item in known[2].steps if item.step.cause in waiting]
            upcoming.append((report.rollout, planned))
        self._forecasts = kept
        return upcoming

    async def start(self, wanted: RolloutRequest, id: str = "") -> RolloutReport | Refused:
        """Start a rollout; one with this id that there is already is the same one."""
        if id in self._store.registry.rollouts:
            return await self._report(id)
        drafted = self.draft(wanted, id)
        if isinstance(drafted, Refused):
            return drafted
        if problem := drafted.problem:
            return problem
        draft = drafted.rollout

        def plan(states: States) -> CommitPlan | Refused:
            rollouts = states.registry.rollouts
            running = [rollout for rollout in rollouts.values() if rollout.ended_at is None]
            if len(running) >= MAX_RUNNING:
                return conflict(f"{MAX_RUNNING} rollouts are under way, which is the maximum")
            if problem := self._overlap(wanted, draft, running):  # one may have started meanwhile
                return problem
            over = sorted(
                (rollout.ended_at, id)
                for id, rollout in rollouts.items()
                if rollout.ended_at is not None
            )
            surplus = max(0, len(rollouts) + 1 - MAX_ROLLOUTS)
            removed = [RolloutRemoved(id) for _, id in over[:surplus]]
            return CommitPlan(puts=[RolloutPut(draft, "started", wanted.by), *removed])

        done = await self._writer.commit(plan)
        return done if isinstance(done, Refused) else await self._report(draft.id)

    async def pause(
        self, id: str, by: str, why: str = "", *, withdraw: bool = False
    ) -> RolloutReport | Refused:
        """Announce no further steps. With `withdraw`, also withdraw what has not started, in the
        same commit; it is announced again after the pause."""

        def paused(rollout: Rollout, switch: Switch) -> RolloutPut | Refused:
            if rollout.paused is not None and not withdraw:
                return conflict(f"rollout {rollout.id} is already paused, by {rollout.paused.by}")
            return put(rollout, "paused", by, paused=switch)

        return await self._switch(id, by, why, paused, withdraw=withdraw)

    async def resume(self, id: str, by: str) -> RolloutReport | Refused:
        """Continue after a pause, and announce again what an operator has cancelled."""
        existing = await self.find(id)
        if isinstance(existing, Refused):
            return existing
        report = await self._report(existing.id)
        if report.state == "running":
            self._reconciler.wake(existing.id)  # in case it missed a reason to continue
            return conflict(
                f"rollout {existing.id} is neither paused nor blocked; there is nothing to resume"
            )

        def resumed(rollout: Rollout, switch: Switch) -> RolloutPut:
            covers = self._reconciler.withdrawn_at(rollout, switch.at)
            confirmed = max(rollout.confirmed, report.next.wave)
            return put(
                rollout,
                "resumed",
                by,
                paused=None,
                resumed=switch,
                covers=covers,
                confirmed=confirmed,
                work=self._work.retry(rollout),
            )

        return await self._switch(existing.id, by, "", resumed)

    async def abort(self, id: str, by: str, why: str = "") -> RolloutReport | Refused:
        """Withdraw all events that have not started, in one commit; started ones continue."""
        existing = await self.find(id)
        if isinstance(existing, Refused):
            return existing

        def plan(states: States) -> CommitPlan | Refused:
            rollout = states.registry.rollouts.get(existing.id)
            if rollout is None or rollout.ended_at is not None or rollout.aborted is not None:
                return _over(rollout or existing)
            switch = Switch(by=by, at=self._writer.now().at, why=why)
            reason = f"{ABORTED}: {why}" if why else ABORTED
            commands = withdrawals(states, _caused(states, existing), by, reason)
            return CommitPlan(commands, [put(rollout, "aborted", by, aborted=switch)])

        done = reason_problem(why) or await self._writer.commit(plan)
        return done if isinstance(done, Refused) else await self._report(existing.id)

    async def skip(
        self,
        id: str,
        by: str,
        why: str = "",
        *,
        lanes: Sequence[str] = (),
        steps: Sequence[int] = (),
    ) -> RolloutReport | Refused:
        """Leave out steps that have not started: those of lanes, by the names of their hosts or
        groups, or single ones, by their numbers. What is announced is withdrawn in the same
        commit."""
        report = reason_problem(why) or await self.report(id)
        if isinstance(report, Refused):
            return report
        chosen = _chosen(report, lanes, steps)
        if isinstance(chosen, Refused):
            return chosen
        rollout_id, prefix = report.rollout.id, report.rollout.prefix

        def plan(states: States) -> CommitPlan | Refused:
            rollout = states.registry.rollouts.get(rollout_id)
            if rollout is None or rollout.ended_at is not None or rollout.aborted is not None:
                return _over(rollout or report.rollout)
            caused = [e for g in states.values() for e in g.events if e.cause.startswith(prefix)]
            started = {event.cause for event in caused if event.status is Status.STARTED}
            started |= {
                f"{prefix}host/{work.host}/{Action.WORK.value}"
                for work in rollout.work
                if work.under_way
            }
            causes = [cause for cause in chosen if cause not in started]
            if not causes:
                return conflict("these steps have started or are over; they cannot be skipped")
            reason = f"{SKIPPED}: {why}" if why else SKIPPED
            withdrawn = {event.id: event for event in caused if event.cause in causes}
            note = listing([cause.removeprefix(prefix) for cause in causes])
            skipped = (*rollout.skipped, *causes)
            changed = msgspec.structs.replace(rollout, skipped=skipped)
            history = f"{note}: {why}" if why else note
            commands = withdrawals(states, withdrawn, by, reason)
            return CommitPlan(commands, [RolloutPut(changed, "skipped", by, history)])

        done = await self._writer.commit(plan)
        return done if isinstance(done, Refused) else await self._report(rollout_id)

    # Queries.

    async def list(self) -> Sequence[RolloutSummary]:
        """Return all rollouts: those under way first, then the latest that are over."""
        rollouts = self._store.registry.rollouts.values()
        order = sorted(rollouts, key=lambda r: (r.ended_at is not None, -r.created_at))
        return [await self._summary(rollout) for rollout in order]

    async def find(self, id: str) -> Rollout | Refused:
        """Find a rollout by its id, or by the beginning of its id if only one has it."""
        wanted = id.strip().upper()
        if not wanted:
            return invalid("pass the ID of a rollout, or a prefix of it")
        rollouts = self._store.registry.rollouts
        matches = [rollout for rollout in rollouts.values() if rollout.id.startswith(wanted)]
        if not matches:
            return unknown(f"no rollout '{id}'; {instead_of(id, rollouts)}")
        if len(matches) > 1:
            return conflict(
                f"'{id}' is ambiguous; it could be {listing([rollout.id for rollout in matches])}"
            )
        return matches[0]

    async def report(self, id: str) -> RolloutReport | Refused:
        existing = await self.find(id)
        return existing if isinstance(existing, Refused) else await self._report(existing.id)

    async def explain(self, id: str, lane: str | None = None) -> RolloutExplanation | Refused:
        """Explain what a rollout or one of its lanes waits for, and what its events wait for."""
        report = await self.report(id)
        if isinstance(report, Refused):
            return report
        if lane is not None and all(lane != known.name for known in report.rollout.lanes):
            return _unknown_lane(lane, report.rollout)
        active = {event.id: event for known in report.next.lanes for event in known.active}
        waits = []
        for wait in report.next.waits:
            if lane is None or wait.lane in ("", lane):
                kinds = {
                    hold.kind.value for id in wait.events[:1] for hold in self._holds(active[id])
                }
                reason = ", ".join([wait.reason, *sorted(kinds)]) if kinds else wait.reason
                waits.append(
                    self._of_work(report.rollout, msgspec.structs.replace(wait, reason=reason))
                )
        return RolloutExplanation(
            report=report,
            message=_message(report),
            waits=tuple(self._explained(group, active) for group in by_reason(waits)),
        )

    def _of_work(self, rollout: Rollout, wait: Wait) -> Wait:
        """Return a wait for work with what the driver has said of the work so far."""
        works = (work for work in rollout.work if work.host == wait.lane)
        work = next(works, None) if wait.kind is WaitKind.WORK else None
        interim = self._work.interim(work) if work is not None else None
        if interim is None or not (interim.unseen or interim.progress):
            return wait
        progress = f"cannot be seen yet: {interim.unseen}" if interim.unseen else interim.progress
        return msgspec.structs.replace(wait, message=f"{wait.message}: {progress}")

    def _holds(self, event: Event | None) -> tuple[Hold, ...]:
        if event is None or event.status is not Status.SCHEDULED:
            return ()
        return self._platform.holds(event)

    def _explained(self, group: WaitGroup, active: Mapping[str, Event]) -> ExplainedWait:
        ids = [id for wait in group.examples for id in wait.events][:EXPLAINED_EVENTS]
        events = []
        for event in (active[id] for id in ids):
            holds = self._platform.holds(event)
            events.append((event, holds, summary(event, holds)))
        return ExplainedWait(group=group, events=tuple(events))

    async def events(self, rollout: Rollout) -> Sequence[Event]:
        """Return the events that a rollout has caused; of one that is under way they are known."""
        return await self._reconciler.events(rollout)

    def draft(self, wanted: RolloutRequest, id: str = "") -> Draft | Refused:
        """Return the rollout that would be started, without storing it."""
        now = self._writer.now()
        if wanted.work_by is WorkBy.DRIVER and not self._work.possible:
            return conflict(
                "the driver of this service cannot work on hosts; leave that to an operator"
            )
        draft = draft_rollout(wanted, id or self._platform.new_id(), self._store, self._gates, now)
        if isinstance(draft, Refused):
            return draft
        configurations = self._reconciler.configurations_by_cause(draft.rollout)
        overlap = self._overlap(wanted, draft.rollout, self._store.registry.rollouts.values())
        return never_allowed(draft.rollout, now, configurations) or msgspec.structs.replace(
            draft, overlap=overlap
        )

    def _overlap(
        self, wanted: RolloutRequest, draft: Rollout, rollouts: Iterable[Rollout]
    ) -> Refused | None:
        """Refuse a rollout if another one is still to do the same, unless that is wanted."""
        if wanted.allow_overlap:
            return None
        others = (rollout for rollout in rollouts if rollout.ended_at is None)
        return overlap_problem(draft, ((r, self._reconciler.progress_of(r)) for r in others))

    async def _summary(self, rollout: Rollout) -> RolloutSummary:
        """Summarise a rollout; one that is over needs no events for that."""
        if rollout.ended_at is not None and rollout.steps_over is not None:
            return RolloutSummary(
                rollout=rollout, state=ending(rollout), steps_over=rollout.steps_over
            )
        await guard.pause(0)  # each rollout takes a moment: let other tasks run in between
        report = RolloutReport(rollout=rollout, next=await self._reconciler.next_step(rollout))
        return report.summary

    async def _report(self, id: str) -> RolloutReport:
        rollout = self._store.registry.rollouts[id]
        return RolloutReport(rollout=rollout, next=await self._reconciler.next_step(rollout))

    async def _switch(
        self,
        id: str,
        by: str,
        why: str,
        change: Callable[[Rollout, Switch], RolloutPut | Refused],
        *,
        withdraw: bool = False,
    ) -> RolloutReport | Refused:
        existing = reason_problem(why) or await self.find(id)
        if isinstance(existing, Refused):
            return existing

        def plan(states: States) -> CommitPlan | Refused:
            rollout = states.registry.rollouts.get(existing.id)
            if rollout is None or rollout.ended_at is not None or rollout.aborted is not None:
                return _over(rollout or existing)
            changed = change(rollout, Switch(by=by, at=self._writer.now().at, why=why))
            if isinstance(changed, Refused):
                return changed
            events = _caused(states, existing) if withdraw else {}
            reason = f"{WITHDRAWN}: {why}" if why else WITHDRAWN
            return CommitPlan(withdrawals(states, events, by, reason), [changed])

        done = await self._writer.commit(plan)
        return done if isinstance(done, Refused) else await self._report(existing.id)


def _caused(states: States, rollout: Rollout) -> dict[str, Event]:
    """Return the active events of a rollout by id."""
    return {
        event.id: event
        for group in states.values()
        for event in group.events
        if event.cause.startswith(rollout.prefix)
    }


def _chosen(
    report: RolloutReport, lanes: Sequence[str], steps: Sequence[int]
) -> list[str] | Refused:
    """Return the causes of the steps in these lanes, and with these numbers, that are not over."""
    progress = {lane.lane.name: lane for lane in report.next.lanes}
    chosen: dict[str, None] = {}
    for name in lanes:
        if name not in progress:
            return _unknown_lane(name, report.rollout)
        chosen |= {s.step.cause: None for s in progress[name].steps if not s.state.over}
    every = [step for lane in report.next.lanes for step in lane.steps]
    for number in steps:
        if not 1 <= number <= len(every):
            return unknown(f"no step {number}; this rollout has steps 1 to {len(every)}")
        if not every[number - 1].state.over:
            chosen[every[number - 1].step.cause] = None
    if not lanes and not steps:
        return invalid("name the steps, groups or hosts to skip")
    if not chosen:
        return conflict("these steps have started or are over; they cannot be skipped")
    return list(chosen)


def _unknown_lane(name: str, rollout: Rollout) -> Refused:
    names = [lane.name for lane in rollout.lanes]
    return unknown(
        f"'{name}' is not one of this rollout's groups or hosts; {instead_of(name, names)}"
    )


def _over(rollout: Rollout) -> Refused:
    state = "was aborted" if rollout.aborted else "is over"
    return conflict(f"rollout {rollout.id} {state}; start a new one")


def _message(report: RolloutReport) -> str:
    rollout, steps = report.rollout, report.rollout.steps
    progress = f"{report.steps_over} of {len(steps)} steps are over"
    match report.state:
        case "done":
            return f"it is done: {progress}"
        case "expired":
            return f"its deadline has passed: {progress}"
        case "aborted" | "aborting" as state:
            assert rollout.aborted is not None
            why = f": {rollout.aborted.why}" if rollout.aborted.why else ""
            suffix = "" if state == "aborted" else "; events that have started continue"
            return f"aborted by {rollout.aborted.by}{why}; {progress}{suffix}"
        case "paused":
            return f"it is paused; {progress}"
        case "blocked":
            return f"one of its steps waits for an operator; {progress}"
    return f"it is under way; {progress}"
