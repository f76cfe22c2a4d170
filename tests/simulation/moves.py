"""Lives in which hosts are drained, fail and come back, and what they say of where machines go.

What is on a host and on its way there is counted here once more, from the commits alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from forewarn.core import Event, EventType, Group, Machine, Refused, apply
from forewarn.core.changes import EventMoved
from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut
from forewarn.core.time import HOUR, MINUTE, SECOND
from forewarn.drivers.port import Driver, Failed, Performed, Task
from forewarn.service.fleet.read import parse
from forewarn.service.platform.hosts import LIVE_MIGRATION
from forewarn.store.port import Commit
from simulation.world import Kill, Killed, LossyDriver, Simulation

ROOM = {"h1": 14, "h2": 8, "h3": 6, "h4": 10, "h5": 12}  # GiB
SIZES = (1, 2, 4)
FLEET = parse(
    "hosts:\n"
    + "".join(f"  - {{name: {name}, capacity: {{memory: {n}}}}}\n" for name, n in ROOM.items())
    + "groups:\n"
    + "".join(
        f"  - {{name: s{n}, kind: standalone, machines:"
        f" [{{name: s{n}, host: h{n % 5 + 1}, size: {{memory: {SIZES[n % 3]}}}}}]}}\n"
        for n in range(6)
    )
    + "  - name: web\n    kind: availability-set\n    machines:\n"
    + "".join(
        f"      - {{name: web-{n}, update_domain: {n % 2}, host: h{n // 2 + 1},"
        f" size: {{memory: {1 + n % 2}}}}}\n"
        for n in range(6)
    )
)


class ChoosyDriver(LossyDriver):
    """Refuses a target now and then."""

    async def perform(self, task: Task) -> Performed:
        targets = sorted({machine.target for machine in task.machines if machine.target})
        if targets and self._chance.random() < 0.1:
            return Failed("it does not fit", unsuitable=(self._chance.choice(targets),))
        return await super().perform(task)


class Books:
    """What the commits say: where machines are, and which hosts are reserved for them."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.moves = 0
        self._groups: dict[str, Group] = {}
        self._hosts: dict[str, Host] = {}

    def read(self, commit: Commit) -> None:
        for put in commit.puts:
            if isinstance(put, HostPut):
                self._hosts[put.host.name] = put.host
        before = dict(self._groups)
        for entry in commit.entries:
            group = before.get(entry.group) or Group(name=entry.group)
            self._groups[entry.group] = apply(group, entry.items)
        for entry in commit.entries:
            for item in entry.items:
                if isinstance(item, EventMoved):
                    last = before[entry.group].event(item.event.id) if before else None
                    self._check(commit.seq, entry.group, last, item.event)

    def _check(self, seq: int, name: str, last: Event | None, event: Event) -> None:
        old, new = _targets(last), _targets(event)
        group = self._groups[name]
        if event.carried_out:
            self.moves += len(old)
            for machine, target in old.items():
                if (found := group.machine(machine)) is not None and found.host != target:
                    self.findings.append(f"{seq}: {machine} is on {found.host}, not on {target}")
            return
        held = self.held()
        for machine, target in new.items():
            if event.status.over or old.get(machine) == target:
                continue
            host = self._hosts[target]
            if not host.healthy or host.cordoned:
                self.findings.append(f"{seq}: {machine} goes to {target}, which is out of use")
            if held[target] > ROOM[target]:
                self.findings.append(f"{seq}: {target} holds {held[target]} of {ROOM[target]}")

    def held(self) -> Mapping[str, int]:
        held: dict[str, int] = defaultdict(int)
        for group in self._groups.values():
            machines = {machine.name: machine for machine in group.machines if machine.alive}
            for machine in machines.values():
                held[machine.host] += machine.size.memory
            for event in group.events:
                for name, target in _targets(event).items():
                    held[target] += _memory(machines.get(name))
        return held


def _targets(event: Event | None) -> Mapping[str, str]:
    return event.attempt.targets if event is not None and event.attempt is not None else {}


def _memory(machine: Machine | None) -> int:
    return machine.size.memory if machine is not None else 0


class Moves(Simulation):
    fleet = FLEET

    def __init__(self, seed: int, kill: Kill) -> None:
        super().__init__(seed, kill)
        self.books = Books()

    def make_driver(self) -> Driver:
        return ChoosyDriver(self.world, self.chance)

    def follow(self) -> None:
        for commit in self.disk.commits[self._reported :]:
            self.books.read(commit)
        super().follow()

    def _count(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        super()._count(commit, changed)
        self.books.read(commit)

    def compare(self) -> None:
        """Compare what the service counts with what the commits say."""
        held, placement = self.books.held(), self.node.host_index.placement
        for host in ROOM:
            if (counted := placement.held(host).memory) != held.get(host, 0):
                self.books.findings.append(f"{host} holds {held[host]}, and {counted} is counted")

    async def life(self, steps: int) -> None:
        await self.start()
        for _ in range(steps):
            await self._survive(self._something())
        for host in ROOM:
            await self._survive(self._back(host))
        for _ in range(3):
            await self._survive(self.advance(6 * HOUR))
            self.compare()
        with contextlib.suppress(Killed):  # it may still die on the way out
            await self.surviving(self.node.__aexit__(None, None, None))

    async def _survive(self, work: Any) -> None:
        try:
            await work
        except Killed:
            await self.end_processes()
            await self.restart(self.chance.choice([0, SECOND, 20 * MINUTE]))

    async def _something(self) -> None:
        chance, node = self.chance, self.node
        host = chance.choice(list(ROOM))
        match chance.choices(range(5), weights=[3, 2, 3, 3, 8])[0]:
            case 0:
                mode = LIVE_MIGRATION
                await self._operate(node.hosts.maintain(host, mode, "operator", evacuate=True))
            case 1:
                await self._operate(node.hosts.fail(host, "operator"))
            case 2:
                await self._back(host)
            case 3:
                for name in chance.sample(sorted(self._machines()), 3):
                    await self._operate(
                        node.platform.user_maintenance(name, EventType.REDEPLOY, "operator")
                    )
            case 4:
                minutes = chance.choice([1, 3, 8, 16])
                await self.advance(minutes * MINUTE)
                self.compare()

    async def _back(self, host: str) -> None:
        await self._operate(self.node.hosts.repair(host, "operator"))
        await self._operate(self.node.hosts.put_back(host, "operator"))

    async def _operate(self, work: Any) -> None:
        done = await self.surviving(work)
        assert done is None or isinstance(done, Refused) or done

    def _machines(self) -> list[str]:
        return [m.name for group in self.disk.groups.values() for m in group.machines]


def lived(seed: int, kill: Kill, steps: int = 30) -> Moves:
    """Live one life, and return it."""
    moves = Moves(seed, kill)
    asyncio.run(moves.life(steps))
    return moves
