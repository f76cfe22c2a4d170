"""Hosts whose nodes are cut off and join again, in simulated lives: nothing starts for a machine
that cannot be reached, or that could not until a moment ago, unless it is approved."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forewarn.core import Status, World
from forewarn.core.deciding import reach
from forewarn.core.time import MINUTE, SECOND
from forewarn.judge import judge
from simulation.script import HOSTS, Script
from simulation.world import GROUP_OF, Kill, Simulation

STEPS = 150


class Noting(Simulation):
    """Notes after every start which machines cannot be reached."""

    script: Stranding

    async def start(self) -> None:
        await super().start()
        self.script.note_disconnected()


class Stranding(Script):
    """An ordinary life in which hosts are cut off. What machines there ask, control does not hear;
    what their nodes answer them is not looked at."""

    def __init__(self, seed: int, kill: Kill) -> None:
        super().__init__(seed, kill)
        self.sim = simulation = Noting(seed, kill)
        simulation.script = self
        self.unreachable: dict[str, set[str]] = {}  # by host: the machines it had
        self._last: dict[str, set[str]] = {}  # the machines they had when that was last noted

    async def something(self) -> None:
        chance = self.sim.chance.random()
        if chance < 0.06:
            await self.strand()
        elif chance < 0.12:
            for host in sorted(self.unreachable)[:1]:
                await self.join(host)
        else:
            await super().something()

    async def survive(self, work: Any) -> None:
        deaths = self.sim.deaths
        await super().survive(work)
        self.note_disconnected()
        if self.sim.deaths != deaths:
            await self.survive(self.return_nodes())

    async def let_go(self) -> None:
        for host in list(self.unreachable):
            await self.join(host)
        await super().let_go()

    async def poll(self, machine: str, version: str | None = None) -> list[str]:
        return await super().poll(machine, version) if self.heard(machine) else []

    async def approve(self, machine: str) -> None:
        if self.heard(machine):
            await super().approve(machine)

    def heard(self, machine: str) -> bool:
        known = self.sim.store.groups[GROUP_OF[machine]].machine(machine)
        return known is None or known.host not in self.unreachable

    async def strand(self) -> None:
        """A host is cut off; or the one of an event, until that is due and the node is back, or the
        machine is elsewhere."""
        sim, chance = self.sim, self.sim.chance
        coming = [e for e in sim.node.platform.active() if e.status is Status.SCHEDULED]
        first = min(coming, key=lambda event: event.not_before, default=None)
        machine = sim.store.groups[first.group].machine(first.resources[0]) if first else None
        few = len(self.unreachable) < len(HOSTS) - 1
        if first is None or machine is None or not few or chance.random() < 0.5:
            await self.cut_off(chance.choice(HOSTS))
            return
        await self.cut_off(machine.host)
        await sim.advance(max(0, first.not_before - sim.at) + chance.choice([0, 2 * MINUTE]))
        if chance.random() < 0.3:
            other = chance.choice([host for host in HOSTS if host not in self.unreachable])
            move = sim.node.platform.record_move(machine.name, other, "operator")
            await self.operate(move)
        elif machine.host in self.unreachable:
            await self.join(machine.host)
        for wait in (5, 25, 40):
            await sim.advance(wait * SECOND)
            await self.poll(machine.name)

    async def cut_off(self, host: str) -> None:
        """The node of a host, which has joined if it had not, cannot be reached from now on."""
        node = self.sim.node
        await self.operate(node.hosts.node_joined(host))
        node.unreachable_hosts.cut_off(host, node.writer.now().at)
        self.note_disconnected()

    async def join(self, host: str) -> None:
        node = self.sim.node
        self._last.pop(host, None)
        self.sim.note("joined", host=host, machines=sorted(self.unreachable.pop(host)))
        node.unreachable_hosts.joined(host, node.writer.now().at)
        await self.sim.surviving(node.ledger.idle())

    async def return_nodes(self) -> None:
        """After a restart, nodes connect again; most of them at once."""
        for host in list(self.unreachable):
            if self.sim.chance.random() < 0.8:
                await self.join(host)

    def note_disconnected(self) -> None:
        """Record the machines that control cannot reach: after a restart, those of all nodes."""
        node = self.sim.node
        for host in HOSTS:
            machines = {machine.name for machine in node.hosts.machines_on(host)}
            if node.unreachable_hosts.is_unreachable(host) and not machines <= self._last.get(
                host, set()
            ):
                self.unreachable.setdefault(host, set()).update(machines)
                self.sim.note("disconnected", host=host, machines=sorted(machines))
            self._last[host] = machines if node.unreachable_hosts.is_unreachable(host) else set()


def played(seed: int, kill: Kill) -> list[dict[str, Any]]:
    script = Stranding(seed, kill)
    sim = asyncio.run(script.run(STEPS))
    judgement = judge(sim.trace)
    assert judgement.ok, judgement.render()
    assert script.left_over == []  # everything that was announced has come to an end
    return sim.trace


@pytest.mark.parametrize("seed", range(12))
def test_no_promise_is_broken_while_hosts_come_and_go(seed: int) -> None:
    kinds = [line["kind"] for line in played(seed, Kill())]
    assert kinds.count("joined") > 1


@pytest.mark.parametrize("seed", range(12))
def test_no_promise_is_broken_when_control_is_killed_meanwhile(seed: int) -> None:
    played(seed, Kill(5, often=True))


def starts_what_cannot_be_reached(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reach.UnreachableMachines, "cut_off", lambda *_: False)


def starts_what_is_due_as_soon_as_a_node_is_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "unreachable_until", lambda *_: None)


def starts_what_is_due_as_soon_as_a_machine_has_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reach.UnreachableMachines, "left", lambda *_: {})


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (starts_what_cannot_be_reached, "disconnected-impact"),
        (starts_what_is_due_as_soon_as_a_node_is_back, "grace-start"),
        (starts_what_is_due_as_soon_as_a_machine_has_left, "grace-start"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_service_with_broken_reach_is_caught(
    broken: Any, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    for seed in range(24):
        sim = asyncio.run(Stranding(seed, Kill()).run(STEPS))
        if rule in {finding.rule for finding in judge(sim.trace).findings}:
            return
    pytest.fail("not caught")
