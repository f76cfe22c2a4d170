"""Carrying out rollouts: does what `core/rollouts/next_step.py` decides.

A reconciler. All it keeps is derived from the events that rollouts have caused, and the results of
gates; after a crash the events are read again and the gates evaluated again. One task at a time
works on a rollout, woken by commits that change it or its machines, by an alarm, and by its gate.
How a step is announced is `announce.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from forewarn.core import Event, Group, Refused, Status
from forewarn.core import commands as c
from forewarn.core.changes import EventMoved, GroupDefined
from forewarn.core.refusal import Hint
from forewarn.core.registry import (
    ClockAccepted,
    ConfigurationPut,
    ConfigurationRemoved,
    HaltPut,
    HaltReleased,
    RolloutPut,
    RolloutRemoved,
)
from forewarn.core.retiming import Correction
from forewarn.core.rollouts.lanes import steps_of
from forewarn.core.rollouts.model import (
    BY_ITSELF,
    Action,
    Conflicts,
    Gate,
    Rollout,
    Step,
    Switch,
    caused,
)
from forewarn.core.rollouts.next_step import GateAnswer, Next, decide, uninformed
from forewarn.core.rollouts.progress import (
    Configurations,
    LaneProgress,
    RolloutProgress,
    covered,
)
from forewarn.core.time import Time
from forewarn.core.world import World
from forewarn.service.engine import otel
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.service.platform.hosts import Hosts
from forewarn.service.platform.platform import Platform
from forewarn.service.rollouts.announce import Announcer, AnnounceResult
from forewarn.service.rollouts.gates import GateResult, Gates
from forewarn.service.rollouts.host_work import HostWork
from forewarn.service.rollouts.step_machines import LanesByMachine, touched_by
from forewarn.store.port import Commit, States, Store, StoreFailed
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.text import listing

RETRY_AFTER = 1.0  # seconds of guard time before a failed commit is tried again

ABORTED = "the rollout was aborted"
CLOSED = "its window has closed; it is announced again for the next one"
UNINFORMED = "it is announced again, also to machines that have come to its host"
TOO_LATE = "the deadline of the rollout has passed"

log = logger("forewarn")


class RolloutReconciler:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        scheduler: Scheduler,
        platform: Platform,
        hosts: Hosts,
        gates: Gates,
        work: HostWork,
        ledger: Ledger,
        tasks: guard.Tasks,
    ) -> None:
        self._store = store
        self._writer = writer
        self._scheduler = scheduler
        self._announcer = Announcer(store, platform, hosts, work)
        self._gates = gates
        self._work_on_hosts = work
        self._ledger = ledger
        self._tasks = tasks
        self._tracked: dict[str, _Tracked] = {}  # rollouts that are not over, by id
        self._unread: set[str] = set()  # those whose events have not been read yet
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._evaluating: set[str] = set()
        store.on_own_commit(self._on_commit)
        hosts.on_reach(self._on_reach)

    async def resume(self) -> None:
        """Continue every rollout that is not over. While the events of one are still being read, it
        is not woken, since it would decide by incomplete information."""
        rollouts = [r for r in self._store.registry.rollouts.values() if r.ended_at is None]
        self._unread.update(rollout.id for rollout in rollouts)
        for rollout in rollouts:
            self._track(rollout)
            stored = await self._store.events_by_cause(rollout.prefix)
            tracked = self._tracked[rollout.id]
            newer = {event.id: event for event in tracked.events}
            events = {**{event.id: event for event in stored}, **newer}
            tracked.rebuild(self._store.registry.rollouts[rollout.id], events.values())
            self._unread.discard(rollout.id)
            self._work_on_hosts.resume(self._store.registry.rollouts[rollout.id])
            self.wake(rollout.id)

    async def next_step(self, rollout: Rollout) -> Next:
        """Return the progress of a rollout and what it does next."""
        tracked = self._tracked.get(rollout.id)
        if tracked is None:
            tracked = _Tracked(self._announcer, rollout, await self.events(rollout))
        return tracked.next_step(rollout, self._writer.now())

    async def events(self, rollout: Rollout) -> Sequence[Event]:
        """Return the events that a rollout has caused."""
        tracked = self._tracked.get(rollout.id)
        if tracked is None or rollout.id in self._unread:
            return await self._store.events_by_cause(rollout.prefix)
        return tracked.events

    def progress_of(self, rollout: Rollout) -> Sequence[LaneProgress]:
        """Return the progress of a rollout that is not over. One that is just being started has
        none yet, and while its events are still being read, not all of it is known."""
        tracked = self._tracked.get(rollout.id) or _Tracked(self._announcer, rollout, ())
        return tracked.next_step(rollout, self._writer.now()).lanes

    def _track(self, rollout: Rollout) -> None:
        if rollout.id not in self._tracked:
            self._tracked[rollout.id] = _Tracked(self._announcer, rollout, ())

    def withdrawn_at(self, rollout: Rollout, at: Time) -> tuple[str, ...]:
        """Return the events that were withdrawn at this very instant, but by an earlier commit."""
        tracked = self._tracked.get(rollout.id)
        return () if tracked is None else covered(rollout, tracked.events, at)

    def configurations_by_cause(self, rollout: Rollout) -> dict[str, Configurations]:
        """Return the maintenance configurations that the steps of a rollout have to obey."""
        machines = self._announcer.step_machines(rollout)
        return machines.configurations_by_cause(rollout, self._writer.now())

    def unreachable(self, rollout: Rollout, now: World) -> tuple[str, ...]:
        """Return the hosts of a rollout's machines that cannot be reached now."""
        if not now.unreachable:
            return ()
        machines = self._announcer.step_machines(rollout)
        return tuple(
            sorted({host for step in rollout.steps for host in machines.unreachable(step, now)})
        )

    def targets(self, rollout: Rollout, steps: Iterable[Step]) -> dict[str, dict[str, str]]:
        """Return where these steps of a rollout would move machines now."""
        return self._announcer.targets(rollout, steps)

    # Waking.

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        touched: dict[str, None] = {}
        for put in commit.puts:
            match put:
                case ClockAccepted(before=before):
                    self._correct(Correction(commit.at, before - commit.at))
                    touched |= dict.fromkeys(self._tracked)
                case ConfigurationPut() | ConfigurationRemoved() | HaltPut() | HaltReleased():
                    touched |= dict.fromkeys(self._tracked)
                case RolloutPut(rollout=rollout) if rollout.ended_at is None:
                    self._track(rollout)
                    touched[rollout.id] = None
                case RolloutPut(rollout=Rollout(id=rollout_id)) | RolloutRemoved(id=rollout_id):
                    self._forget(rollout_id)
        for entry in commit.entries:
            for item in entry.items:
                if isinstance(item, GroupDefined):  # its windows and labels may be others now
                    touched |= dict.fromkeys(self._tracked)
                    for tracked in self._tracked.values():
                        if tracked.rollout.exclusions.labels:
                            tracked.progress.machines_changed(range(len(tracked.rollout.lanes)))
                owner = caused(item.event.cause) if isinstance(item, EventMoved) else None
                if isinstance(item, EventMoved) and owner is not None and owner in self._tracked:
                    self._tracked[owner].progress.put(item.event)
                    touched[owner] = None
        if machines := touched_by(commit):
            for rollout_id, tracked in self._tracked.items():
                if lanes := tracked.lanes.touched(machines):
                    tracked.progress.machines_changed(lanes)
                    touched[rollout_id] = None
        for rollout_id in touched:
            self.wake(rollout_id)

    def _on_reach(self, host: str) -> None:
        """Look again at the rollouts: a host can be reached now, or no longer."""
        del host
        for rollout_id in self._tracked:
            self.wake(rollout_id)

    def _correct(self, clock: Correction) -> None:
        """Correct times that were noted by a wrong clock, and evaluate gates again."""
        for id, tracked in self._tracked.items():
            events = tracked.events
            if clock.error > 0:
                events = [clock.event(event) for event in events]
            tracked.gate_answers.clear()
            tracked.rebuild(self._store.registry.rollouts.get(id, tracked.rollout), events)

    def _forget(self, id: str) -> None:
        self._tracked.pop(id, None)
        self._scheduler.alarm(_alarm(id), None, _nothing)

    def wake(self, id: str) -> None:
        """Start to work on a rollout; if that is under way, once more afterwards."""
        if id in self._unread:
            return
        if id in self._working:
            self._again.add(id)
            return
        self._working.add(id)
        self._ledger.take(_alarm(id))
        self._tasks.start(self._work(id), _alarm(id))

    async def _work(self, id: str) -> None:
        try:
            while True:
                self._again.discard(id)
                try:
                    await self._reconcile(id)
                except StoreFailed as failure:
                    log.error("a rollout is waiting for the store", rollout=id, why=str(failure))
                    await guard.pause(RETRY_AFTER)
                    self._again.add(id)
                except Exception as error:
                    log.exception("unexpected error in a rollout", rollout=id)
                    await self._pause_after_error(id, error)
                if id not in self._again:
                    return
        finally:
            self._again.discard(id)
            self._working.discard(id)
            self._ledger.release(_alarm(id))

    async def _pause_after_error(self, id: str, error: Exception) -> None:
        """Pause a rollout after an unexpected error, so that the reason is visible."""
        rollout = self._store.registry.rollouts.get(id)
        if rollout is None or not rollout.running:
            return
        try:
            await self._pause(rollout, f"unexpected error in the service: {error!r}")
        except StoreFailed:
            await guard.pause(RETRY_AFTER)
            self._again.add(id)

    # Working.

    async def _reconcile(self, id: str) -> None:
        rollout = self._store.registry.rollouts.get(id)
        tracked = self._tracked.get(id)
        if rollout is None or rollout.ended_at is not None or tracked is None:
            return
        upcoming = tracked.next_step(rollout, self._writer.now())

        async def wake() -> None:
            self.wake(id)

        self._scheduler.alarm(_alarm(id), upcoming.wake, wake)
        if upcoming.over:
            await self._end(rollout, upcoming)
            return
        if upcoming.pause:
            await self._pause(rollout, upcoming.pause)
        if upcoming.returned:
            await self._record_returned(rollout, upcoming.returned)
        if upcoming.withdraw:
            await self._withdraw(rollout, upcoming.withdraw)
        if upcoming.work:
            await self._work_on_hosts.attempt(rollout, upcoming.work)
        await self._announce(rollout, upcoming.announce)
        if upcoming.ask and rollout.gate is not None and id not in self._evaluating:
            self._evaluating.add(id)
            self._ledger.take(_gate(id))
            self._tasks.start(self._evaluate_gate(id, rollout.gate, upcoming.ask), _gate(id))

    async def _evaluate_gate(self, id: str, gate: Gate, causes: Sequence[str]) -> None:
        """Evaluate the gate, for every step that waits for it."""
        try:
            result = await self._evaluate(gate)
            answer = GateAnswer(
                at=self._writer.now().at, passed=result.passed, message=result.message
            )
            if (tracked := self._tracked.get(id)) is not None:
                tracked.gate_answers.update(dict.fromkeys(causes, answer))
            self._evaluating.discard(id)
            self.wake(id)
        finally:
            self._evaluating.discard(id)
            self._ledger.release(_gate(id))

    async def _evaluate(self, gate: Gate) -> GateResult:
        try:
            return await self._gates.evaluate(gate)
        except Exception as error:
            log.exception("unexpected error in a gate", gate=gate.description)
            return GateResult(False, f"it could not be evaluated: {error!r}")

    async def _announce(self, rollout: Rollout, steps: Sequence[Step]) -> None:
        """Announce steps one after the other, until one fails or the rollout stops."""
        for wanted in steps:
            current = self._store.registry.rollouts.get(rollout.id)
            if current is None or not current.running:
                return
            attributes = {"forewarn.rollout": rollout.id, "forewarn.step": wanted.cause}
            with otel.span("rollout announce", **attributes):
                result = await self._announcer.announce(rollout, wanted)
            match result:
                case AnnounceResult.ANNOUNCED:
                    continue
                case AnnounceResult.OVERTAKEN:
                    self._again.add(rollout.id)
                case Refused(message=message, hint=Hint.EVACUATE) if _resolvable(rollout, wanted):
                    await self._resolve_conflict(rollout, wanted, message)
                    self._again.add(rollout.id)
                case Refused(message=message):
                    name = wanted.host or wanted.group
                    await self._pause(
                        rollout, f"the next step of {name} could not be announced: {message}"
                    )
            return

    async def _withdraw(self, rollout: Rollout, events: Sequence[Event]) -> None:
        """Withdraw those of the events that have not started by now."""
        now = self._writer.now()
        reasons: dict[tuple[str, str], dict[str, Event]] = {}
        for event in events:
            reasons.setdefault(_withdrawal(rollout, event, now), {})[event.id] = event
        await self._writer.commit(
            lambda states: CommitPlan(
                [
                    command
                    for (by, why), ids in reasons.items()
                    for command in withdrawals(states, ids, by, why)
                ]
            )
        )

    async def _resolve_conflict(self, rollout: Rollout, step: Step, why: str) -> None:
        """Skip, split or evacuate a host that has come to hold several update domains of one
        group."""

        def plan(states: States) -> CommitPlan:
            current = states.registry.rollouts.get(rollout.id)
            if current is None or not current.running or step.cause in current.skipped:
                return CommitPlan()
            note = f"host/{step.host}: {why}"
            conflicts = current.conflicts
            if conflicts is Conflicts.SKIP:
                changed = msgspec.structs.replace(current, skipped=(*current.skipped, step.cause))
                return CommitPlan(puts=[RolloutPut(changed, "skipped", BY_ITSELF, note)])
            steps = steps_of(current.id, step.host, states.values(), conflicts)
            lanes = tuple(
                msgspec.structs.replace(lane, steps=steps) if step in lane.steps else lane
                for lane in current.lanes
            )
            changed = msgspec.structs.replace(current, lanes=lanes)
            return CommitPlan(puts=[RolloutPut(changed, f"{conflicts.value} {note}", BY_ITSELF)])

        await self._writer.commit(plan)

    async def _record_returned(self, rollout: Rollout, hosts: Sequence[str]) -> None:
        """Record that hosts have been put back into service after work on them."""

        def plan(states: States) -> CommitPlan:
            current = states.registry.rollouts.get(rollout.id)
            if current is None:
                return CommitPlan()
            at = self._writer.now().at
            work = tuple(
                msgspec.structs.replace(item, returned_at=at)
                if item.host in hosts and item.returned_at is None
                else item
                for item in current.work
            )
            what = f"returned {listing([f'host/{name}' for name in hosts])}"
            changed = msgspec.structs.replace(current, work=work)
            return CommitPlan(puts=[RolloutPut(changed, what, BY_ITSELF)])

        await self._writer.commit(plan)

    async def _pause(self, rollout: Rollout, why: str) -> None:
        switch = Switch(by=BY_ITSELF, at=self._writer.now().at, why=why)

        def plan(states: States) -> CommitPlan:
            current = states.registry.rollouts.get(rollout.id)
            if current is None or not current.running:
                return CommitPlan()
            return CommitPlan(puts=[put(current, "paused", BY_ITSELF, paused=switch)])

        log.warning("a rollout has paused itself", rollout=rollout.id, why=why)
        await self._writer.commit(plan)

    async def _end(self, rollout: Rollout, upcoming: Next) -> None:
        over = sum(step.state.over for lane in upcoming.lanes for step in lane.steps)

        def plan(states: States) -> CommitPlan:
            current = states.registry.rollouts.get(rollout.id)
            if current is None or current.ended_at is not None:
                return CommitPlan()
            at = self._writer.now().at
            return CommitPlan(puts=[put(current, "ended", BY_ITSELF, ended_at=at, steps_over=over)])

        await self._writer.commit(plan)


class _Tracked:
    """What is known of a rollout that is not over: all of it is derived."""

    def __init__(self, announcer: Announcer, rollout: Rollout, events: Iterable[Event]) -> None:
        self._announcer = announcer
        self.gate_answers: dict[str, GateAnswer] = {}
        self.rebuild(rollout, events)

    def rebuild(self, rollout: Rollout, events: Iterable[Event]) -> None:
        self.rollout = rollout
        self.lanes = LanesByMachine(rollout)
        machines = self._announcer.step_machines(rollout, self.lanes.read)
        self.progress = RolloutProgress(
            rollout,
            by_cause(events),
            machines.present,
            partial(self._announcer.configurations_of, rollout),
            machines.excluded,
            machines.on_host,
            machines.halts,
            machines.unreachable,
        )

    @property
    def events(self) -> list[Event]:
        return [event for events in self.progress.events.values() for event in events]

    def next_step(self, rollout: Rollout, now: World) -> Next:
        if rollout is not self.rollout:
            self.rebuild(rollout, self.events)
        machines = self._announcer.step_machines(rollout, self.lanes.read)
        self.progress.machines_of, self.progress.excluded = machines.present, machines.excluded
        self.progress.on_host, self.progress.halts_of = machines.on_host, machines.halts
        self.progress.unreachable_of = machines.unreachable
        return decide(self.progress, self.gate_answers, now)


def _resolvable(rollout: Rollout, step: Step) -> bool:
    """Is it said what to do about a conflict on the host of a step? An evacuation after which the
    conflict is still there is not repeated."""
    if rollout.conflicts is not Conflicts.EVACUATE:
        return rollout.conflicts is not Conflicts.REFUSE
    return not any(
        other.host == step.host and other.action is Action.EVACUATION for other in rollout.steps
    )


def _withdrawal(rollout: Rollout, event: Event, now: World) -> tuple[str, str]:
    """Return who withdraws an event of a rollout, and why."""
    if rollout.aborted:
        return rollout.aborted.by, ABORTED
    if rollout.deadline is not None and now.at >= rollout.deadline:
        return rollout.name, TOO_LATE
    return rollout.name, UNINFORMED if uninformed(event, now) else CLOSED


def withdrawals(
    states: Mapping[str, Group], events: Mapping[str, Event], by: str, why: str
) -> list[tuple[str, c.Command]]:
    """Return commands that cancel those of the events that have not started in these states."""
    return [
        (name, c.Cancel(id=event.id, by=by, why=why, jointly=True))
        for name in dict.fromkeys(event.group for event in events.values())
        for event in states[name].events
        if event.id in events and event.status is Status.SCHEDULED
    ]


def put(rollout: Rollout, what: str, by: str, **switches: object) -> RolloutPut:
    return RolloutPut(msgspec.structs.replace(rollout, **switches), what, by)


def by_cause(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Group events by cause, in the order in which they were raised."""
    grouped: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.raised_at):
        grouped.setdefault(event.cause, []).append(event)
    return grouped


def _alarm(id: str) -> str:
    return f"rollout/{id}"


def _gate(id: str) -> str:
    return f"gate of rollout {id}"


async def _nothing() -> None:
    """The function of an alarm that is cleared."""
