"""The driver `hosts`: passes each task to the driver processes of the hosts that it is about.

A task about machines of several processes is split, and is done when all parts are. A machine that
moves is moved by the process of its host, and both that one and the process of its target are asked
whether it has moved. What a failed host cannot do is asked of the target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from forewarn.core.time import MINUTE, Duration
from forewarn.drivers.hosts.answers import checked, moves, observed, performed, refused
from forewarn.drivers.hosts.connections import DriverConnection, DriverConnections, DriverRaised
from forewarn.drivers.hosts.messages import Answer, DriverHello, Verb
from forewarn.drivers.port import (
    Checked,
    Done,
    Driver,
    DriverContext,
    DriverOptions,
    Happened,
    Later,
    NotYet,
    Observed,
    Performed,
    Running,
    Seen,
    Task,
    TaskMachine,
    Unknown,
    Veto,
)
from forewarn.drivers.registry import DriverType
from forewarn.support.message_stream import BrokenConnection
from forewarn.support.text import listing

CHECKED_WITHIN = 30.0  # seconds: a caller of the API is waiting for it
# After which a task is looked at again whose process is not connected. It is woken before, as soon
# as the process is.
WAIT: Duration = MINUTE
MAX_FINISHED = 1_000  # tasks under way whose finished parts are remembered

# A driver process, or the name of a host that has none.
Place: TypeAlias = DriverConnection | str


class HostsDriver(Driver):
    works = True  # if the process of the host does
    repeatable = False  # where a process is, what it does not know counts as not done

    def __init__(self, context: DriverContext) -> None:
        self._wake = context.wake
        self.connections = DriverConnections(context.term)
        self.connections.on_progress = context.on_progress
        self.connections.on_change = self._changed
        self.connections.on_seen = self._note
        # Called with the hello of a process, and whether that is connected from now on.
        self.on_change: Callable[[DriverHello, bool], None] = lambda *_: None
        self._seen: dict[str, Seen] = {}  # by host whose process is connected
        self._report: Callable[[Seen], None] = lambda _: None
        self._waiting: dict[str, set[str]] = {}  # tasks by host whose process is not connected
        # By task: machines for which it is over, and the answers that said so.
        self._finished: dict[str, list[tuple[frozenset[str], Done]]] = {}

    async def aclose(self) -> None:
        self.connections.close()

    def _changed(self, connection: DriverConnection, joined: bool) -> None:
        self.on_change(connection.hello, joined)
        for host in connection.hosts:
            self._seen.pop(host, None)
            for task in self._waiting.pop(host, ()) if joined else ():
                self._wake(task)

    def _note(self, seen: Seen) -> None:
        self._seen[seen.host] = seen.after(self._seen.get(seen.host, Seen(host=seen.host)))
        self._report(seen)

    # The port.

    async def watch(self, report: Callable[[Seen], None]) -> None:
        for seen in self._seen.values():
            report(seen)
        self._report = report
        await asyncio.Event().wait()

    async def check(self, task: Task) -> Checked:
        parts = self._split(task, {machine.name: [_actor(machine)] for machine in task.machines})
        answers = await asyncio.gather(*(self._check(*part) for part in parts.items()))
        vetoes = [answer.why for answer in answers if isinstance(answer, Veto)]
        return Veto("; ".join(vetoes)) if vetoes or not answers else answers[0]

    async def _check(self, place: Place, task: Task) -> Checked:
        if isinstance(place, str):
            return Veto(_absent(place, task))
        try:
            async with asyncio.timeout(CHECKED_WITHIN):
                answer = await self._ask(place, Verb.CHECK, task)
        except TimeoutError:
            answer = Unknown(f"no answer within {CHECKED_WITHIN:g} s")
        if isinstance(answer, Unknown):
            return Veto(f"the check on host {place.names} failed: {answer.why}")
        assert isinstance(answer, Checked)
        return answer

    async def perform(self, task: Task) -> Performed:
        finished = self._finished.get(task.event, [])
        over = {name for names, _ in finished for name in names}
        left = {m.name: [_actor(m)] for m in task.machines if m.name not in over}
        parts = self._split(task, left) if left or not over else {}
        asked = [self._perform(*part) for part in parts.items()]
        answers = await asyncio.gather(*asked)
        for part, answer in zip(parts.values(), answers, strict=True):
            if isinstance(answer, Done) and part.machines:
                self._finish(task.event, part, answer)
        whole = performed([*(_of(task, done) for _, done in finished), *answers])
        if isinstance(whole, Done):
            self._finished.pop(task.event, None)
        return whole

    async def _perform(self, place: Place, task: Task) -> Performed:
        if isinstance(place, str):
            self._waiting.setdefault(place, set()).add(task.event)
            return Running(WAIT, _absent(place, task))
        answer = await self._ask(place, Verb.PERFORM, task)
        assert isinstance(answer, Performed)
        return answer

    async def observe(self, task: Task) -> Observed:
        asked = {machine.name: _observers(task, machine) for machine in task.machines}
        parts = self._split(task, asked)
        answers = await asyncio.gather(*(self._observe(*part) for part in parts.items()))
        if not task.machines:
            return observed(answers)
        of: dict[str, list[Observed]] = {}
        for part, answer in zip(parts.values(), answers, strict=True):
            for machine in part.machines:
                of.setdefault(machine.name, []).append(answer)
        decided: dict[int, tuple[set[str], Observed]] = {}  # answers, and the machines they are of
        for name, about in of.items():
            answer = next((a for a in about if isinstance(a, Happened)), None) or observed(about)
            decided.setdefault(id(answer), (set(), answer))[0].add(name)
        for names, answer in decided.values():
            if isinstance(answer, Happened):
                done = Done(answer.moved, answer.output, answer.answer, answer.away)
                self._finish(task.event, _part(task, names), done)
        whole = observed([answer for _, answer in decided.values()])
        if isinstance(whole, Happened):
            self._finished.pop(task.event, None)
        return whole

    async def _observe(self, place: Place, task: Task) -> Observed:
        if isinstance(place, str):
            self._waiting.setdefault(place, set()).add(task.event)
            return Later(None, _absent(place, task))
        answer = await self._ask(place, Verb.OBSERVE, task)
        if isinstance(answer, Unknown) and place.hello.repeatable:
            return NotYet()
        assert isinstance(answer, Observed)
        return answer

    async def _ask(self, place: DriverConnection, verb: Verb, task: Task) -> Answer:
        try:
            return checked(await self.connections.ask(place, verb, task), task)
        except BrokenConnection as error:
            why = f"the connection to the driver process of host {place.names} was lost: {error}"
        except DriverRaised as error:
            why = f"the driver of host {place.names}: {error}"
        return Unknown(why) if verb is not Verb.OBSERVE else refused(verb, why)

    # Parts of a task.

    def _split(self, task: Task, asked: Mapping[str, Iterable[str]]) -> dict[Place, Task]:
        """Return the parts of a task: for each process, or host without one, what it is asked.
        `asked` are the hosts by machine."""
        if not task.machines:
            return {self.connections.of(task.host) or task.host: _part(task, ())}
        places: dict[Place, set[str]] = {}
        for name, hosts in asked.items():
            for host in hosts:
                places.setdefault(self.connections.of(host) or host, set()).add(name)
        return {place: _part(task, names) for place, names in places.items()}

    def _finish(self, event: str, part: Task, done: Done) -> None:
        """Remember that a task is over for some of its machines, if others are left."""
        finished = self._finished.setdefault(event, [])
        names = frozenset(machine.name for machine in part.machines)
        if not any(names <= earlier for earlier, _ in finished):
            finished.append((names, done))
        if len(self._finished) > MAX_FINISHED:
            del self._finished[next(iter(self._finished))]


def _actor(machine: TaskMachine) -> str:
    """Return the host whose process carries out what is done to a machine."""
    return machine.target if machine.host_failed and machine.target else machine.host


def _observers(task: Task, machine: TaskMachine) -> set[str]:
    """Return the hosts whose processes may see what was done to a machine."""
    target = {machine.target} - {""} if moves(task) else set()
    return target if machine.host_failed and target else {machine.host, *target}


def _part(task: Task, names: Iterable[str]) -> Task:
    """Return the part of a task that is about these machines."""
    own = set(names)
    machines = tuple(machine for machine in task.machines if machine.name in own)
    named = {host for m in machines for host in (m.host, m.target, *m.alternatives)} - {""}
    parts = (
        msgspec.structs.replace(part, machines=tuple(n for n in part.machines if n in own))
        for part in task.parts
    )
    return msgspec.structs.replace(
        task,
        machines=machines,
        parts=tuple(part for part in parts if part.machines),
        host_labels={h: of for h, of in task.host_labels.items() if h in {*named, task.host}},
        known_hosts=frozenset(named & task.known_hosts),
    )


def _of(task: Task, done: Done) -> Done:
    """Return what an earlier answer says about machines that are still of the task."""
    names = {machine.name for machine in task.machines}
    return msgspec.structs.replace(
        done,
        moved={name: host for name, host in done.moved.items() if name in names},
        away={name: seconds for name, seconds in done.away.items() if name in names},
    )


def _absent(host: str, task: Task) -> str:
    if not host:
        nowhere = [machine.name for machine in task.machines]
        return f"no host is known of {listing(nowhere)}, so that no driver process can be asked"
    return f"the driver process of host '{host}' is not connected"


def _make(options: DriverOptions, context: DriverContext) -> HostsDriver:
    del options  # there are none
    return HostsDriver(context)


DRIVER = DriverType(_make)
