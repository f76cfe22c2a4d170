"""Have events carried out: pass each recorded attempt to the driver, and its result to the writer.

A reconciler: it acts on what is committed, so that after a crash at any point it finds out from the
record what is left to do. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from forewarn.core import Event, Group, Machine, Time
from forewarn.core.changes import EventMoved, begins_attempt
from forewarn.core.commands import Again, Answer, Done, Failed, Outcome, Unclear
from forewarn.core.deciding.attempts import LEAST_PAUSE, back_off
from forewarn.core.deciding.joint import members
from forewarn.core.events import log_fields
from forewarn.core.fleet import Health
from forewarn.core.labels import labels_of
from forewarn.core.lifecycle import Move
from forewarn.core.registry import ClockAccepted
from forewarn.core.retiming import Correction
from forewarn.core.rollouts.model import step_of
from forewarn.drivers.port import (
    Driver,
    Happened,
    Impact,
    Later,
    NotYet,
    Part,
    Running,
    Task,
    TaskMachine,
    Unknown,
)
from forewarn.service.engine import impacts, otel
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.open_attempts import Interim, OpenAttempts
from forewarn.service.engine.publishing import Publishing
from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.placement import in_place, must_move, targets_of
from forewarn.store.port import Batch, Commit, Entry, OutcomeUnknown, States, Store, StoreFailed
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.text import listing, storable, unstorable

RETRY_AFTER = 1.0  # seconds of guard time before an answer that could not be stored is sent again
# Seconds of guard time after a take-over before attempts of the last leader are touched: by then it
# has ended its programs, unless it stands still.
HANDOVER = 5.0
MAX_ALTERNATIVES = 3  # hosts beside its target that are named for a machine

log = logger("forewarn")


class Executor:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        driver: Driver,
        host_index: HostIndex,
        ledger: Ledger,
        publishing: Publishing,
        tasks: guard.Tasks,
        open_attempts: OpenAttempts,
    ) -> None:
        self._restored: Time | None = None  # when a backup was last restored
        self._corrections: list[Correction] = []  # of the clock, since this process runs
        # Older than a restored backup, and known not to be carried out.
        self._not_done: set[str] = set()
        self._not_stored = LogThrottle()
        self.on_attempt: Callable[[str, float], None] = lambda *_: None  # result, and seconds
        self.on_impact: Callable[[Impact], None] = lambda _: None  # called with what was done
        self.on_no_host: Callable[[str, str], None] = lambda *_: None  # an event, and its group
        self._impacts: dict[str, Sequence[Impact]] = {}  # by event whose answer is being stored
        self._store = store
        self._writer = writer
        self._driver = driver
        self._host_index = host_index
        self._ledger = ledger
        self._publishing = publishing
        self._tasks = tasks
        self._open_attempts = open_attempts
        self._waiting_calls: dict[str, asyncio.Event] = {}  # calls that wait for a host
        store.on_own_commit(self._on_commit)
        host_index.unreachable.on_change(self._look_again)

    def resume(self, restored: Time | None) -> None:
        """Continue every recorded attempt that has no result. `restored` is the time at which a
        backup was last restored."""
        self._restored = restored
        for group in self._store.groups.values():
            for event in group.events:
                if event.attempt is not None and event.attempt.open:
                    self._start(event)

    async def veto(self, event: Event, together: Sequence[Event] = ()) -> str | None:
        """Ask the driver whether it would carry out an event that is to be announced; return why
        not. For a joint maintenance the leading event is checked, for all of them `together`."""
        return await self.veto_task(self.task(event, together), **log_fields(event))

    async def veto_task(self, task: Task, **about: Any) -> str | None:
        """Ask the driver whether it would carry out a task; return why not."""
        try:
            checked = await self._driver.check(task)
        except Exception as error:
            log.warning("the driver's check failed", **about, why=repr(error))
            return storable(f"its check failed: {type(error).__name__}: {error}")
        why = getattr(checked, "why", None)
        return why and storable(why)

    @property
    def driver(self) -> Driver:
        return self._driver

    def older_than_restore(self, id: str, at: Time) -> bool:
        """Is it of before a restored backup, so that it may have been carried out already?"""
        return self._restored is not None and at <= self._restored and id not in self._not_done

    def was_not_done(self, id: str) -> None:
        """Note that an operator knows that it was not carried out before a backup was restored."""
        self._not_done.add(id)

    def task(
        self,
        event: Event,
        together: Sequence[Event] = (),
        fence: int = 0,
        without: Sequence[str] = (),
    ) -> Task:
        if event.joint is not None and not together:
            together = tuple(members(self._store.groups, event.joint).values())
        concerned = {member.id: self._concerned(member) for member in together or (event,)}
        machines = [
            self._task_machine(member.group, machine)
            for member in together or (event,)
            for machine in concerned[member.id]
            if machine.name not in without
        ]
        if event.relocates and not in_place(event):
            machines = self._with_targets(event, machines, concerned.get(event.id, ()))
        offered = (host for m in machines for host in (m.target, *m.alternatives))
        host_labels, note = self._of_hosts([*(m.host for m in machines), event.host], offered)
        rollout, step = step_of(event.cause) or ("", "")
        return Task(
            event=event.id,
            group=event.group,
            type=event.type,
            source=event.source,
            machines=tuple(machines),
            host=event.host if event.joint is not None and event.joint.domain is None else "",
            moves=event.moves,
            in_place=in_place(event),
            parts=tuple(
                [
                    Part(
                        member.id,
                        member.group,
                        tuple(machine.name for machine in concerned[member.id]),
                    )
                    for member in together
                ]
            ),
            host_labels=host_labels,
            known_hosts=self._host_index.names() if event.relocates else frozenset(),
            duration=event.duration,
            description=event.description,
            note=note,
            ticket=event.ticket,
            rollout=rollout,
            step=step,
            attempt=event.attempt.number if event.attempt else 0,
            fence=fence,
            started_at=event.started_at,
            now=self._writer.instant().at,
        )

    def _of_hosts(
        self, names: Iterable[str], targets: Iterable[str]
    ) -> tuple[dict[str, Mapping[str, str]], str]:
        """Return the labels of the hosts that a task is about and of those that it may move
        machines to, and the operators' notes about the first."""
        hosts = self._store.registry.hosts
        labels: dict[str, Mapping[str, str]] = {}
        notes: dict[str, None] = {}
        for name in dict.fromkeys(names):
            if host := hosts.get(name):
                if host.labels:
                    labels[name] = host.labels
                if host.note:
                    notes[host.note] = None
                if host.cordon_note:
                    notes[host.cordon_note] = None
        for name in targets:
            if (host := hosts.get(name)) and host.labels:
                labels[name] = host.labels
        return labels, "; ".join(notes)

    def _task_machine(self, group: str, machine: Machine) -> TaskMachine:
        labels = labels_of(self._store.groups[group], machine)
        host = self._store.registry.hosts.get(machine.host)
        return TaskMachine(
            machine.name,
            machine.host,
            machine.addresses,
            machine.vm_id,
            dict(labels),
            host_failed=host is not None and host.health is Health.FAILED,
        )

    def _with_targets(
        self, event: Event, machines: list[TaskMachine], records: Sequence[Machine]
    ) -> list[TaskMachine]:
        """Return the machines of an event that moves them, each with its target and others."""
        group = self._store.groups.get(event.group) or Group(name=event.group)
        offered = self._host_index.placement.alternatives(group, records, MAX_ALTERNATIVES + 1)
        result = []
        for machine in machines:
            others = offered.get(machine.name, ())
            target = targets_of(event).get(machine.name, "")
            if event.attempt is None and others:  # a check: nothing is chosen yet
                target = others[0]
            others = tuple(host for host in others if host != target)[:MAX_ALTERNATIVES]
            result.append(msgspec.structs.replace(machine, target=target, alternatives=others))
        return result

    def _nowhere(self, event: Event) -> list[str]:
        """Return the machines of an attempt that have to move, and for which there is no host."""
        if not event.relocates or event.attempt is None:
            return []
        if event.attempt.targets.keys() >= set(event.resources):
            return []
        hosts = self._store.registry.hosts
        return [
            machine.name
            for machine in self._concerned(event)
            if machine.name not in event.attempt.targets and must_move(event, machine, hosts)
        ]

    def _relocated(self, event: Event, outcome: Outcome, nowhere: Sequence[str]) -> Outcome:
        """Return the outcome of an attempt that moves machines: each is on its target if the driver
        names no other host. The event goes on as long as there are some without a target."""
        if not event.relocates or not isinstance(outcome, Done):
            return outcome
        names = {machine.name for machine in self._concerned(event)}
        targets = {name: host for name, host in targets_of(event).items() if name in names}
        moved = targets | outcome.moved
        if not nowhere:
            return msgspec.structs.replace(outcome, moved=moved)
        return Failed(
            _no_host(nowhere), outcome.output, outcome.answer, moved=moved, away=outcome.away
        )

    def _concerned(self, event: Event) -> list[Machine]:
        group = self._store.groups.get(event.group)
        return [] if group is None else group.concerned(event)

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        self._look_again()
        for put in commit.puts:
            if isinstance(put, ClockAccepted) and put.before > commit.at:
                correction = Correction(commit.at, put.before - commit.at)
                self._corrections.append(correction)
                self._restored = correction.past(self._restored)
                self._open_attempts.wake_all()  # rather too early than too late
        for entry in commit.entries:
            for item in entry.items:
                if not isinstance(item, EventMoved):
                    continue
                if item.what in (Move.ANSWER, Move.FINISH):
                    self._report_impacts(item.event.id)
                if begins_attempt(item):
                    self._start(item.event, commit.seq, doubtful=self._doubtful(item))
                elif item.event.status.over:
                    self._open_attempts.wake(item.event.id)

    def _doubtful(self, item: EventMoved) -> bool:
        """Is the event older than a restored backup, so that it may have been carried out already?
        An operator who retries it knows that it was not."""
        event = item.event
        if item.by:
            self.was_not_done(event.id)
        return self.older_than_restore(event.id, event.raised_at)

    def _start(self, event: Event, commit: int | None = None, *, doubtful: bool = False) -> None:
        """Begin the attempt that this commit has put on record, or continue an earlier one."""
        what = _call_for(event)
        self._ledger.take(what)
        self._tasks.start(self._run(event, commit, what, doubtful=doubtful), what)

    async def _run(self, event: Event, commit: int | None, what: str, *, doubtful: bool) -> None:
        corrected = len(self._corrections)
        try:
            # No machine is disturbed while its guest can still be shown the event as Scheduled.
            await self._publishing.shown(event.joint.groups if event.joint else (event.group,))
            if event.attempt is None or event.attempt.number == 1:
                await self._until_reachable(event, what)  # what has begun goes on
            with otel.attempt(event) as span:
                result = await self._carry_out(event, commit, what, doubtful=doubtful)
                if result is None:
                    return
                otel.note(span, result=type(result.outcome).__name__.lower())
                await self._store_result(event, result, corrected)
        finally:
            self._ledger.release(what)

    async def _carry_out(
        self, event: Event, commit: int | None, what: str, *, doubtful: bool
    ) -> _Result | None:
        """Have the driver carry an event out for the machines that it can be carried out for."""
        nowhere = self._nowhere(event)
        # What an earlier process may have begun is looked at as a whole.
        without = nowhere if commit is not None else ()
        if without and len(without) == len(self._concerned(event)):
            return _Result(Failed(_no_host(nowhere)), no_host=True)
        called: list[Task] = []
        outcome = await self.attempt(
            event.id,
            lambda fence: self._task_if_open(event, fence, without),
            commit,
            what,
            doubtful=doubtful,
            called=called.append,
            **log_fields(event),
        )
        if outcome is None:
            return None
        outcome = self._measured(event, outcome)
        done = self._impacts_of(event, outcome, called)
        relocated = self._relocated(event, outcome, nowhere)
        # The driver has done all that can be done before there is another host.
        no_host = isinstance(outcome, Done) and isinstance(relocated, Failed)
        return _Result(relocated, done, no_host)

    def _measured(self, event: Event, outcome: Outcome) -> Outcome:
        """Return an outcome without measurements that cannot be used."""
        if not isinstance(outcome, Done | Failed) or outcome.away == {}:
            return outcome
        together = members(self._store.groups, event.joint).values() if event.joint else (event,)
        machines = {name for member in together for name in member.resources}
        away, problems = impacts.measured(outcome.away, machines)
        if problems:
            log.warning(
                "what the driver has measured cannot be used",
                **log_fields(event),
                why=listing(problems),
            )
        return impacts.with_measurements(outcome, away)

    def _impacts_of(
        self, event: Event, outcome: Outcome, called: Sequence[Task]
    ) -> tuple[Impact, ...]:
        """Return what an attempt has done to machines, and no earlier one: when the driver was
        called, or, if it was only seen that it was done, now. What was done before a backup was
        restored was reported then."""
        task = called[0] if called else None
        away: Mapping[str, float] = {}
        machines: Iterable[str] | None = None
        match outcome:
            case Done(away=away):
                if task is None and not self.older_than_restore(event.id, event.raised_at):
                    task = self.task(event)
            case Failed(moved=moved, away=away):
                machines = moved
            case Unclear():
                task = None
        if task is None:
            return ()
        begun = event.attempt.begun if event.attempt is not None else ()
        return impacts.impacts(task, away, machines, without=begun)

    def _report_impacts(self, event: str) -> None:
        for impact in self._impacts.pop(event, ()):
            self.on_impact(impact)

    async def _until_reachable(self, event: Event, what: str) -> None:
        """Wait while one of its machines is on a host that cannot be reached, unless that host
        has failed."""
        while self._cannot_be_reached(event):
            woken = self._waiting_calls[what] = asyncio.Event()
            self._ledger.release(what)  # nobody who moves a virtual clock waits for a node
            try:
                await woken.wait()
            finally:
                del self._waiting_calls[what]
                if not woken.is_set():
                    self._ledger.take(what)

    def _look_again(self, _host: str = "") -> None:
        """Have the calls that wait for a host look whether they still have to."""
        for what, woken in self._waiting_calls.items():
            if not woken.is_set():
                self._ledger.take(what)
                woken.set()

    def unreachable_hosts(self, event: Event) -> list[str]:
        """Return the hosts because of which the driver is not called yet: they are unreachable."""
        return self._cannot_be_reached(event) if _call_for(event) in self._waiting_calls else []

    def interim(self, id: str) -> Interim | None:
        """Return what the driver has said so far of an open attempt for an event, or for work."""
        return self._open_attempts.interim(id)

    def _cannot_be_reached(self, event: Event) -> list[str]:
        """Return the hosts of its machines that cannot be reached."""
        unreachable = self._host_index.unreachable.all()
        if not unreachable:
            return []
        hosts = self._store.registry.hosts
        together = members(self._store.groups, event.joint).values() if event.joint else (event,)
        unreachable_hosts = {
            machine.host: None
            for member in together
            for machine in self._concerned(member)
            if machine.host in unreachable and hosts[machine.host].health is not Health.FAILED
        }
        return list(unreachable_hosts)

    async def _store_result(self, event: Event, result: _Result, corrected: int) -> None:
        """Store the result. `corrected` is how many corrections of the clock had been made when
        the driver was asked. What was done to machines is reported once that is stored: it is
        certain then that nobody reports it again."""
        attempt, outcome = event.attempt.number if event.attempt else 0, result.outcome
        begun = tuple(name for impact in result.impacts for name in impact.machines)
        self._impacts[event.id] = result.impacts
        if isinstance(outcome, Unclear):
            log.warning(
                "it is unknown whether an event was carried out; it is held until an operator"
                " decides",
                **log_fields(event),
                why=outcome.why,
                run=f"forewarn event explain {event.id}",
            )
        while True:
            for correction in self._corrections[corrected:]:
                if isinstance(outcome, Again):
                    outcome = msgspec.structs.replace(outcome, at=correction.coming(outcome.at))
            corrected = len(self._corrections)
            answer = Answer(
                id=event.id, attempt=attempt, outcome=outcome, begun=begun, no_host=result.no_host
            )
            try:
                await self._writer.submit(event.group, answer)
                self._report_impacts(event.id)
                if result.no_host:
                    self.on_no_host(event.id, event.group)
                return
            except OutcomeUnknown:
                return  # this process is about to end, and the next one observes the attempt
            except StoreFailed as failure:
                if times := self._not_stored.record():
                    log.error(
                        "a driver's result could not be stored yet",
                        **log_fields(event),
                        why=str(failure),
                        times=times,
                    )
                await guard.pause(RETRY_AFTER)

    async def attempt(
        self,
        id: str,
        task: Callable[[int], Task | None],
        commit: int | None,
        call: str,
        *,
        doubtful: bool,
        called: Callable[[Task], None] = lambda _: None,
        **about: Any,
    ) -> Outcome | None:
        """Have a task carried out, and measure it; `call` is its entry in the ledger. The commit
        that has put the attempt on record is the task's fence number; None: another process has,
        and it is only observed. `called` gets the task right before the driver is first called to
        carry it out, `about` is what the log says of it. There is no task and no outcome any more
        if somebody has ended what it is about."""
        fence = await self._take_over() if commit is None else commit
        started = guard.monotonic()
        asked = _Attempt(id, lambda: task(fence), call, called, about)
        try:
            outcome = await self._earlier_outcome(asked) if doubtful else None
            if outcome is None:
                outcome = await self._outcome(asked, observe=commit is None)
        except _Ended:
            return None
        finally:
            self._open_attempts.close(id)
        self.on_attempt(type(outcome).__name__.lower(), guard.monotonic() - started)
        return _with_storable_texts(outcome)

    async def _take_over(self) -> int:
        """Wait until the last leader has ended its programs, and return a fence number for looking
        at what it has left open."""
        if self._store.leadership is None:
            return self._store.seq
        await guard.pause(HANDOVER)
        while True:
            try:
                commit = await self._store.transact(self._empty_commit)
                return self._store.seq if commit is None else commit.seq
            except StoreFailed:
                await guard.pause(RETRY_AFTER)

    def _empty_commit(self, _: States) -> Batch:
        """Return a commit that only has a number: one that is higher than those of all attempts of
        other leaders, so that a target that has been looked at refuses whatever of theirs arrives
        later."""
        now = self._writer.now()
        groups = islice(self._store.groups, 1)
        return Batch(now.at, now.lost, tuple(Entry(name, ()) for name in groups))

    async def _wait_for_lease(self) -> None:
        """Wait while this process may not act. If its lease has run out, it is about to end."""
        leadership = self._store.leadership
        while leadership is not None and not leadership.held():
            await guard.pause(RETRY_AFTER)

    async def _earlier_outcome(self, attempt: _Attempt) -> Outcome | None:
        """Return the result of a task that was carried out already; None if it was not."""
        match await self._observed(attempt):
            case Happened(moved=moved, output=output, answer=answer, away=away):
                return Done(moved, output, answer, away)
            case Unknown(why=why, output=output, answer=answer) if not self._driver.repeatable:
                return Unclear(
                    "the state was restored from a copy, and the driver does not know what"
                    f" happened: {why}",
                    output,
                    answer,
                )
        self._not_done.add(attempt.id)
        return None

    async def _outcome(self, attempt: _Attempt, *, observe: bool) -> Outcome:
        """Return the result of the attempt. If the driver raises, it is asked what has happened."""
        problem, output, answer = "", "", ""
        if not observe:
            try:
                done = await self._performed(attempt)
                if not isinstance(done, Unknown):
                    return done
                problem, output, answer = done.why, done.output, done.answer
            except _Ended:
                raise
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                log.warning("the driver raised an error", **attempt.about, why=problem)
        observed = await self._observed(attempt)
        output = _joined(output, getattr(observed, "output", ""))
        answer = getattr(observed, "answer", "") or answer
        match observed:
            case Happened(moved=moved, away=away):
                return Done(moved, output, answer, away)
            case Unknown(why=why) if not self._driver.repeatable:
                reason = f"the driver does not know what happened: {why}"
                return Unclear(f"{problem}; {reason}" if problem else reason, output, answer)
        if problem:
            return Failed(problem, output, answer)
        return Again(self._writer.now().at, output, answer)

    async def _performed(self, attempt: _Attempt) -> Done | Again | Failed | Unknown:
        """Have the driver carry it out, and call it again for as long as it is at work."""
        called = False
        while True:
            await self._wait_for_lease()
            task = attempt.task()
            self._open_attempts.begin(task.event, _events_of(task))
            if not called:
                attempt.called(task)
                called = True
            done = await self._driver.perform(task)
            if not isinstance(done, Running):
                return done
            if done.progress:
                self._open_attempts.report(attempt.id, done.progress)
            until = self._writer.now().at + max(done.after, LEAST_PAUSE)
            await self._open_attempts.wait(attempt.id, attempt.call, until)

    async def _observed(self, attempt: _Attempt) -> Happened | NotYet | Unknown:
        """Ask the driver what has happened, again and again until it can see that."""
        since, times = self._writer.now().at, 0
        while True:
            task = attempt.task()
            self._open_attempts.begin(task.event, _events_of(task))
            try:
                observed = await self._driver.observe(task)
            except Exception as error:
                observed = Later(None, f"{type(error).__name__}: {error}")
            if not isinstance(observed, Later):
                return observed
            now, times = self._writer.now(), times + 1
            why, at = storable(observed.why), back_off(times, now)
            if observed.at is not None:
                at = max(observed.at, now.at + LEAST_PAUSE)
            log.warning("the driver cannot see yet what has happened", **attempt.about, why=why)
            self._open_attempts.cannot_see(attempt.id, why, since, at)
            await self._open_attempts.wait(attempt.id, attempt.call, at)

    def _task_if_open(self, event: Event, fence: int, without: Sequence[str] = ()) -> Task | None:
        """Return the task of an event; None if its attempt is not open any more."""
        group = self._store.groups.get(event.group)
        current = group.event(event.id) if group is not None else None
        if current is None or current.attempt is None or not current.attempt.open:
            return None
        return self.task(current, fence=fence, without=without)


def _events_of(task: Task) -> dict[str, str]:
    """Return the events that a task carries out, with their groups."""
    if task.parts:
        return {part.event: part.group for part in task.parts}
    return {} if task.work else {task.event: task.group}


class _Ended(Exception):
    """What is attempted was ended, or declared to be over, by somebody else."""


class _Result(NamedTuple):
    """What has become of an attempt, and what was done to machines in it."""

    outcome: Outcome
    impacts: tuple[Impact, ...] = ()
    no_host: bool = False  # for the machines that are left


class _Attempt(NamedTuple):
    """One attempt, while the driver is asked about it."""

    id: str  # of the event, or of the work on a host
    current: Callable[[], Task | None]
    call: str  # its entry in the ledger
    called: Callable[[Task], None]
    about: Mapping[str, Any]  # what the log says of it

    def task(self) -> Task:
        """Return the task as of now. Raises _Ended if there is nothing to carry out any more."""
        task = self.current()
        if task is None:
            raise _Ended
        return task


def _with_storable_texts(outcome: Outcome) -> Outcome:
    """Replace what cannot be stored in texts of the driver."""
    fields = msgspec.structs.asdict(outcome)
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    if not any(map(unstorable, texts.values())):
        return outcome
    return msgspec.structs.replace(outcome, **{name: storable(texts[name]) for name in texts})


def _joined(performed: str, observed: str) -> str:
    """Join the driver's output of `perform` and of `observe`."""
    return "\n".join(output for output in (performed, observed) if output)


def _no_host(machines: Sequence[str]) -> str:
    return f"no other host can take {listing(machines)} now"


def _call_for(event: Event) -> str:
    """Return the name of an event's driver call."""
    return f"driver call for {event.type.value} {event.id}"
