"""Where a machine could go: the ranking of the hosts is what sorting all of them would give,
whatever has come, gone and moved in between."""

from __future__ import annotations

import asyncio
import random

import pytest

from forewarn.core import Event, EventType, Group, Machine, Source
from forewarn.core.changes import Change, MachinePut, MachineRemoved
from forewarn.core.events import Attempt
from forewarn.core.fleet import Health, Host
from forewarn.core.registry import HostPut, HostRemoved, Put
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.placement import MAX_OFFERED, RERANK
from forewarn.store import MemoryStore
from forewarn.store.port import Batch, Entry

GROUPS = ("a", "b", "c")


def sorted_anew(store: MemoryStore, group: str, machine: str, unreachable: set[str]) -> list[str]:
    """By all that there is, and nothing remembered."""
    own = store.groups[group]
    found = own.machine(machine)
    assert found is not None
    load = dict.fromkeys(store.registry.hosts, 0)
    for every in store.groups.values():
        for one in every.machines:
            if one.host in load and one.alive:
                load[one.host] += 1
    clashing = {
        one.host for one in own.machines if one.alive and one.update_domain != found.update_domain
    }
    free = [
        name
        for name, host in store.registry.hosts.items()
        if host.healthy and name != found.host and name not in unreachable
    ]
    return sorted(free, key=lambda name: (name in clashing, load[name], name))


class Fleet:
    """Changed at random, in commits of one or of many changes."""

    def __init__(self, seed: int, hosts: int) -> None:
        self.chance = random.Random(seed)
        self.store = MemoryStore()
        self.host_index = HostIndex(self.store)
        self.hosts = [f"h{n}" for n in range(hosts)]

    async def start(self) -> None:
        await self.store.open()
        self.host_index.load()
        machines = [Entry(group, tuple(self._put(group, n) for n in range(8))) for group in GROUPS]
        await self.commit(machines, [HostPut(Host(name=name)) for name in self.hosts])

    async def commit(self, entries: list[Entry], puts: list[Put]) -> None:
        await self.store.transact(lambda _: Batch(1, 0, tuple(entries), tuple(puts)))

    async def change(self, times: int) -> None:
        for _ in range(times):
            group = self.chance.choice(GROUPS)
            name = f"{group}_{self.chance.randrange(1, 8)}"
            item: Change = self._put(group, int(name[-1]))
            if self.chance.random() < 0.2:
                item = MachineRemoved(name)
            puts: list[Put] = []
            if self.chance.random() < 0.3:
                host = self.chance.choice(self.hosts)
                health = self.chance.choice(list(Health))
                node = self.chance.random() < 0.5
                puts = [HostPut(Host(name=host, health=health, node=node))]
                if self.chance.random() < 0.3:
                    puts = [HostRemoved(host)]
            await self.commit([Entry(group, (item,))], puts)
            if self.chance.random() < 0.3:
                self.host_index.unreachable.cut_off(self.chance.choice(self.hosts), 1)
            if self.chance.random() < 0.1:
                self.host_index.unreachable.joined(self.chance.choice(self.hosts), 1)

    def sorted_anew(self, group: str, machine: str) -> list[str]:
        hosts = self.store.registry.hosts
        unreachable = {name for name in hosts if self.host_index.unreachable.is_unreachable(name)}
        return sorted_anew(self.store, group, machine, unreachable)

    def _put(self, group: str, number: int) -> MachinePut:
        return MachinePut(
            Machine(
                name=f"{group}_{number}",
                host=self.chance.choice([*self.hosts, ""]),
                update_domain=number % 3,
                gone=self.chance.choice(["", "", "", "deleted"]),
            )
        )


@pytest.mark.parametrize(
    ("hosts", "between", "rounds"), [(12, 1, 60), (12, 5, 60), (2 * RERANK, 6 * RERANK, 4)]
)
def test_the_best_hosts_are_those_that_sorting_all_would_find(
    hosts: int, between: int, rounds: int
) -> None:
    async def play() -> None:
        fleet = Fleet(between, hosts)
        await fleet.start()
        for _ in range(rounds):
            await fleet.change(between)
            for group in GROUPS:
                offered = fleet.host_index.placement.free_for(group, f"{group}_0")
                assert list(offered) == fleet.sorted_anew(group, f"{group}_0")[:MAX_OFFERED]
            assert fleet.host_index.names() == frozenset(fleet.store.registry.hosts)

    asyncio.run(play())


def test_only_the_best_of_many_hosts_are_offered() -> None:
    async def play() -> None:
        fleet = Fleet(1, hosts=5 * MAX_OFFERED)
        await fleet.start()
        for _ in range(5):
            await fleet.change(20)
            offered = fleet.host_index.placement.free_for("a", "a_0")
            assert list(offered) == fleet.sorted_anew("a", "a_0")[:MAX_OFFERED]

    asyncio.run(play())


def test_a_host_to_which_a_machine_with_the_same_address_moves_is_not_offered() -> None:
    async def play() -> None:
        store = MemoryStore()
        placement = HostIndex(store).placement
        await store.open()
        machines = [Machine(name=f"a_{n}", host=f"h{n}", addresses=("10.0.0.1",)) for n in (0, 1)]
        hosts = [HostPut(Host(name=f"h{n}")) for n in range(4)]
        entry = Entry("a", tuple(MachinePut(machine) for machine in machines))
        await store.transact(lambda _: Batch(1, 0, (entry,), tuple(hosts)))
        placement.having = lambda _: machines
        for host in hosts:
            placement.host_changed(host.host.name)
        assert placement.free_for("a", "a_0") == ("h2", "h3")
        moving = Event(
            id="E",
            group="a",
            type=EventType.REDEPLOY,
            source=Source.PLATFORM,
            resources=("a_1",),
            domain=0,
            not_before=1,
            raised_at=1,
            by="test",
            attempt=Attempt(number=1, at=1, targets={"a_1": "h2"}),
        )
        placement.events_changed((), (moving,), store.groups["a"])
        assert placement.free_for("a", "a_0") == ("h3",)
        placement.events_changed((moving,), (), store.groups["a"])
        assert placement.free_for("a", "a_0") == ("h2", "h3")

    asyncio.run(play())


def test_a_store_that_is_opened_again_ranks_as_before() -> None:
    async def play() -> None:
        fleet = Fleet(2, hosts=12)
        await fleet.start()
        await fleet.change(40)
        again = MemoryStore(fleet.store.disk)
        host_index = HostIndex(again)
        await again.open()
        host_index.load()
        before = fleet.host_index.placement.free_for("a", "a_0")
        assert host_index.placement.free_for("a", "a_0") == before
        assert isinstance(again.groups["a"], Group)

    asyncio.run(play())


def test_machines_on_some_hosts_are_found_by_group_also_those_that_are_gone() -> None:
    async def check() -> None:
        fleet = Fleet(1, hosts=5)
        await fleet.start()
        await fleet.change(50)
        chosen = fleet.hosts[:2]
        expected = {
            group.name: {machine.name for machine in group.machines if machine.host in chosen}
            for group in fleet.store.groups.values()
        }
        members = fleet.host_index.members_on(chosen)
        assert {name: {m.name for m in of} for name, of in members.items()} == {
            name: machines for name, machines in expected.items() if machines
        }

    asyncio.run(check())
