"""Carries rollouts out: does what `core.rolling.step` says, and decides nothing itself.

A reconciler. It keeps no progress, only a copy of the events that rollouts have caused and what
gates have answered; after a crash the first is read again and the second asked again. One task
at a time works for a rollout, woken by commits that touch it, by an alarm, and by its gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from forewarn.core import Event, Group, Refused, Status
from forewarn.core import commands as c
from forewarn.core.changes import EventMoved
from forewarn.core.refusal import conflict
from forewarn.core.registry import RolloutPut, RolloutRemoved
from forewarn.core.rolling import Next, Seen, step
from forewarn.core.rollout import BY_ITSELF, Gate, Rollout, Step, Switch, caused
from forewarn.core.time import Now
from forewarn.service import guard
from forewarn.service.appointments import moved_on, when_to_start
from forewarn.service.gates import Gates
from forewarn.service.hosts import Hosts, How
from forewarn.service.ledger import Ledger
from forewarn.service.platform import Outcomes, Platform
from forewarn.service.scheduler import Scheduler
from forewarn.service.writer import Plan, Writer
from forewarn.store.port import Commit, States, Store, StoreFailed

RETRY_AFTER = 1.0  # seconds of guard time before what could not be stored is tried again

ABORTED = "the rollout was aborted"
CLOSED = "its window has closed; it is announced again for the next"

STOPPED = conflict("the rollout has been paused, aborted or overtaken meanwhile")

log = structlog.get_logger("forewarn")


class Conductor:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        scheduler: Scheduler,
        platform: Platform,
        hosts: Hosts,
        gates: Gates,
        ledger: Ledger,
        tasks: guard.Tasks,
    ) -> None:
        self._store = store
        self._writer = writer
        self._scheduler = scheduler
        self._platform = platform
        self._hosts = hosts
        self._gates = gates
        self._ledger = ledger
        self._tasks = tasks
        self._events: dict[str, dict[str, Event]] = {}  # of rollouts that are not over, by id
        self._seen: dict[str, dict[str, Seen]] = {}
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._asking: set[str] = set()
        store.attach(self._told)

    async def resume(self) -> None:
        """Take up every rollout that is not over."""
        for rollout in list(self._store.registry.rollouts.values()):
            if rollout.ended_at is None:
                told = self._events.setdefault(rollout.id, {})
                stored = await self._store.caused_under(rollout.prefix)
                self._events[rollout.id] = {**{event.id: event for event in stored}, **told}
                self._wake(rollout.id)

    async def look(self, rollout: Rollout) -> Next:
        """Where it stands and what it does next: what decides, for whoever wants to know."""
        known = self._events.get(rollout.id)
        if known is None:
            stored = await self._store.caused_under(rollout.prefix)
            known = {event.id: event for event in stored}
        seen = self._seen.get(rollout.id, {})
        return step(rollout, by_cause(known.values()), seen, self._presence(), self._writer.now())

    # Being woken.

    def _told(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        touched: dict[str, None] = {}
        for put in commit.puts:
            match put:
                case RolloutPut(rollout=rollout) if rollout.ended_at is None:
                    self._events.setdefault(rollout.id, {})
                    touched[rollout.id] = None
                case RolloutPut(rollout=Rollout(id=id)) | RolloutRemoved(id=id):
                    self._forget(id)
        for entry in commit.entries:
            for item in entry.items:
                mine = caused(item.event.cause) if isinstance(item, EventMoved) else None
                if isinstance(item, EventMoved) and mine is not None and mine in self._events:
                    self._events[mine][item.event.id] = item.event
                    touched[mine] = None
        for id in touched:
            self._wake(id)

    def _forget(self, id: str) -> None:
        self._events.pop(id, None)
        self._seen.pop(id, None)
        self._scheduler.alarm(_alarm(id), None, _nothing)

    def _wake(self, id: str) -> None:
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
                    await self._once(id)
                except StoreFailed as failure:
                    log.error("a rollout waits for the store", rollout=id, why=str(failure))
                    await guard.pause(RETRY_AFTER)
                    self._again.add(id)
                if id not in self._again:
                    return
        finally:
            self._again.discard(id)
            self._working.discard(id)
            self._ledger.release(_alarm(id))

    # Working.

    async def _once(self, id: str) -> None:
        rollout = self._store.registry.rollouts.get(id)
        if rollout is None or rollout.ended_at is not None or id not in self._events:
            return
        then = await self.look(rollout)

        async def rouse() -> None:
            self._wake(id)

        self._scheduler.alarm(_alarm(id), then.wake, rouse)
        if then.over:
            await self._end(rollout)
            return
        if then.pause:
            await self._pause(rollout, then.pause)
        if then.withdraw:
            await self._withdraw(rollout, then.withdraw)
        for wanted in then.announce:
            await self._announce(rollout, wanted)
        if then.ask and rollout.gate is not None and id not in self._asking:
            self._asking.add(id)
            self._ledger.take(_gate(id))
            self._tasks.start(self._ask(id, rollout.gate, then.ask), _gate(id))

    async def _ask(self, id: str, gate: Gate, causes: Sequence[str]) -> None:
        """The answer is for every step that waits for it."""
        try:
            answer = await self._gates.ask(gate)
            seen = Seen(at=self._writer.now().at, passed=answer.passed, says=answer.says)
            if id in self._events:
                self._seen.setdefault(id, {}).update(dict.fromkeys(causes, seen))
            self._asking.discard(id)
            self._wake(id)
        finally:
            self._asking.discard(id)
            self._ledger.release(_gate(id))

    async def _announce(self, rollout: Rollout, wanted: Step) -> None:
        now = self._writer.now()
        done = await (
            self._maintain(rollout, wanted, now)
            if wanted.host
            else self._raise(rollout, wanted, now)
        )
        if not isinstance(done, Refused) or done is STOPPED:
            return
        if moved_on(rollout, now, self._writer.now()):
            self._again.add(rollout.id)  # while the driver was asked, the window was missed
            return
        await self._pause(rollout, f"{wanted.host or wanted.group} could not go on: {done.says}")

    async def _raise(self, rollout: Rollout, wanted: Step, now: Now) -> Outcomes | Refused:
        def overtaken(states: States) -> Refused | None:
            current = states.registry.rollouts.get(rollout.id)
            active = any(event.cause == wanted.cause for event in states[wanted.group].events)
            return STOPPED if current is None or not current.going or active else None

        machines = tuple(self._presence()(wanted))
        if not machines:  # they have left since it was looked
            self._again.add(rollout.id)
            return STOPPED
        when = when_to_start(rollout, now)
        command = c.Raise(
            id=self._platform.new_id(),
            type=rollout.type,
            machines=machines,
            by=rollout.name,
            short_notice=rollout.short_notice,
            description=rollout.description,
            duration=rollout.duration,
            cause=wanted.cause,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
        )
        return await self._platform.announce_all([(wanted.group, command)], unless=overtaken)

    async def _maintain(self, rollout: Rollout, wanted: Step, now: Now) -> Outcomes | Refused:
        when = when_to_start(rollout, now)
        return await self._hosts.maintain(
            wanted.host,
            How(rollout.type.value),
            rollout.name,
            short_notice=rollout.short_notice,
            description=rollout.description or None,
            duration=rollout.duration if rollout.duration >= 0 else None,
            cause=wanted.cause,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
        )

    async def _withdraw(self, rollout: Rollout, events: Sequence[Event]) -> None:
        """Those that have not started by now, after all."""
        aborted = rollout.aborted
        by, why = (aborted.by, ABORTED) if aborted else (rollout.name, CLOSED)
        await self._writer.submit_planned(
            lambda states: Plan(withdrawals(states, {e.id: e for e in events}, by, why))
        )

    async def _pause(self, rollout: Rollout, why: str) -> None:
        switch = Switch(by=BY_ITSELF, at=self._writer.now().at, why=why)

        def plan(states: States) -> Plan:
            current = states.registry.rollouts.get(rollout.id)
            if current is None or not current.going:
                return Plan()
            return Plan(puts=[put(current, "paused", BY_ITSELF, paused=switch)])

        log.warning("a rollout pauses itself", rollout=rollout.id, why=why)
        await self._writer.submit_planned(plan)

    async def _end(self, rollout: Rollout) -> None:
        def plan(states: States) -> Plan:
            current = states.registry.rollouts.get(rollout.id)
            if current is None or current.ended_at is not None:
                return Plan()
            at = self._writer.now().at
            return Plan(puts=[put(current, "ended", BY_ITSELF, ended_at=at)])

        await self._writer.submit_planned(plan)

    def _presence(self) -> Callable[[Step], Sequence[str]]:
        """The machines that a step has now: not those that are gone, or about to be."""
        staying: dict[str, frozenset[str]] = {}  # looked up once for all steps of a group

        def stays(name: str, machine: str) -> bool:
            if name not in staying:
                group = self._store.groups.get(name)
                staying[name] = _staying(group) if group is not None else frozenset()
            return machine in staying[name]

        def there(wanted: Step) -> Sequence[str]:
            if not wanted.host:
                return [name for name in wanted.machines if stays(wanted.group, name)]
            names = [machine.name for machine in self._hosts.machines_on(wanted.host)]
            group_of = self._platform.inventory.group_of
            return [name for name in names if stays(group_of(name) or "", name)]

        return there


def withdrawals(
    states: Mapping[str, Group], events: Mapping[str, Event], by: str, why: str
) -> list[tuple[str, c.Command]]:
    """Cancels those of them that have not started in these states."""
    return [
        (name, c.Cancel(id=event.id, by=by, why=why, jointly=True))
        for name in dict.fromkeys(event.group for event in events.values())
        for event in states[name].events
        if event.id in events and event.status is Status.SCHEDULED
    ]


def put(rollout: Rollout, what: str, by: str, **switches: object) -> RolloutPut:
    return RolloutPut(msgspec.structs.replace(rollout, **switches), what, by)


def by_cause(events: Iterable[Event]) -> dict[str, list[Event]]:
    """In the order of raising."""
    found: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.raised_at):
        found.setdefault(event.cause, []).append(event)
    return found


def _staying(group: Group) -> frozenset[str]:
    leaving = {
        name
        for event in group.events
        if event.promise.deletes and event.status is Status.STARTED
        for name in event.resources
    }
    return group.alive - leaving


def _alarm(id: str) -> str:
    return f"rollout/{id}"


def _gate(id: str) -> str:
    return f"gate of rollout {id}"


async def _nothing() -> None:
    """An alarm that is called off calls nobody."""
