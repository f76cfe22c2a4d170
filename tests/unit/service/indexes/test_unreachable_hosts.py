"""Hosts that cannot be reached, as decisions see them: from when to when, and who is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from forewarn.core import Group, Machine, World
from forewarn.core.fleet import Host
from forewarn.core.registry import ClockAccepted, HostPut, HostRemoved, Put
from forewarn.core.time import HOUR, SECOND, Durations, Time
from forewarn.service.indexes.unreachable_hosts import UnreachableHosts
from forewarn.store import MemoryStore
from forewarn.store.port import Batch

START: Time = 1_700_000_000 * SECOND
GRACE = 60 * SECOND


class Reach:
    """Hosts h1 and h2, which have nodes, and h3, which has none."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.unreachable = UnreachableHosts(self.store)
        self.reported: list[str] = []
        self.unreachable.on_change(self.reported.append)

    async def put(self, *puts: Put, at: Time = START) -> None:
        await self.store.transact(lambda _: Batch(at, 0, (), puts))

    def at(self, at: Time) -> dict[str, Time | None]:
        return dict(self.unreachable.at(World(at=at, rules=Durations()))[0])


def reach(test: Callable[[Reach], Awaitable[None]]) -> None:
    async def work() -> None:
        made = Reach()
        await made.store.open()
        await made.put(
            *(HostPut(Host(name=name, node=True)) for name in ("h1", "h2")),
            HostPut(Host(name="h3")),
        )
        await test(made)

    asyncio.run(work())


def test_a_host_is_unreachable_until_its_node_joins_and_listed_until_the_grace_is_over() -> None:
    @reach
    async def _(made: Reach) -> None:
        assert made.at(START) == {}
        made.unreachable.cut_off("h1", START)
        made.unreachable.cut_off("h1", START + HOUR)  # it is already
        assert made.unreachable.at(World(at=START))[1] == {"h1": START}
        assert made.at(START + HOUR) == {"h1": None}
        made.unreachable.joined("h1", START + HOUR)
        made.unreachable.joined("h1", START + 2 * HOUR)  # it has already
        assert made.unreachable.since("h1") is None
        assert made.at(START + HOUR + GRACE - 1) == {"h1": START + HOUR}
        assert made.at(START + HOUR + GRACE) == {}
        assert made.reported == ["h1", "h1"]


def test_a_snapshot_given_to_a_decision_does_not_change() -> None:
    @reach
    async def _(made: Reach) -> None:
        made.unreachable.cut_off("h1", START)
        given = made.unreachable.at(World(at=START))[0]
        made.unreachable.cut_off("h2", START)
        made.unreachable.joined("h1", START)
        assert given == {"h1": None}


def test_graces_end_one_after_the_other_also_of_a_node_that_joins_twice() -> None:
    @reach
    async def _(made: Reach) -> None:
        for number, host in enumerate(("h1", "h2", "h1")):
            made.unreachable.cut_off(host, START)
            made.unreachable.joined(host, START + number * SECOND)
        assert made.at(START + GRACE + SECOND) == {"h1": START + 2 * SECOND}
        assert made.at(START + GRACE + 2 * SECOND) == {}


def test_a_machine_that_has_left_such_a_host_is_known_until_the_grace_is_over() -> None:
    @reach
    async def _(made: Reach) -> None:
        made.unreachable.cut_off("h1", START)
        made.unreachable.moved("m1", "h1", START + SECOND)
        made.unreachable.moved("m2", "h2", START + SECOND)  # it could be reached all the time
        made.unreachable.moved("m3", "h1", START + HOUR)
        assert made.unreachable.at(World(at=START + HOUR))[2] == {"m3": START + HOUR}
        made.unreachable.forget("h1")
        assert made.unreachable.at(World(at=START + HOUR))[2] == {"m3": START + HOUR}
        assert made.unreachable.at(World(at=START + HOUR + GRACE))[2] == {}


@pytest.mark.parametrize("host", ["h3", "nobody"])
def test_a_host_that_is_not_expected_to_have_a_node_is_never_unreachable(host: str) -> None:
    @reach
    async def _(made: Reach) -> None:
        made.unreachable.cut_off(host, START)
        made.unreachable.joined(host, START)
        assert (made.at(START), made.reported) == ({}, [])


def test_all_hosts_with_nodes_are_unreachable_when_a_process_begins_to_decide() -> None:
    @reach
    async def _(made: Reach) -> None:
        assert not made.unreachable.known
        made.unreachable.begin(START)
        assert made.unreachable.known
        assert made.at(START) == {"h1": None, "h2": None}


@pytest.mark.parametrize("put", [HostPut(Host(name="h1")), HostRemoved("h1")])
def test_a_host_without_a_node_or_that_is_removed_is_forgotten(put: Put) -> None:
    @reach
    async def _(made: Reach) -> None:
        made.unreachable.begin(START)
        made.reported.clear()
        await made.put(put)
        assert (made.at(START), made.reported) == ({"h2": None}, ["h1"])
        await made.put(HostPut(Host(name="h2", node=True, labels={"row": "7"})))
        assert made.at(START) == {"h2": None}


def test_a_group_is_reachable_again_when_the_first_of_its_hosts_has_joined() -> None:
    @reach
    async def _(made: Reach) -> None:
        machines = [Machine(name=f"m{n}", host=f"h{n}") for n in (1, 2)]
        both = Group(name="both", machines=tuple(machines))
        made.unreachable.begin(START)
        assert made.unreachable.heard_since(both) == 0
        made.unreachable.joined("h2", START + HOUR)
        assert (
            made.unreachable.heard_since(Group(name="one", machines=(machines[1],))) == START + HOUR
        )
        made.unreachable.joined("h1", START + 2 * HOUR)
        assert made.unreachable.heard_since(both) == START + HOUR
        elsewhere = Group(name="more", machines=(*machines, Machine(name="m3", host="h3")))
        assert made.unreachable.heard_since(elsewhere) == 0


def test_times_ahead_of_an_accepted_clock_are_corrected() -> None:
    @reach
    async def _(made: Reach) -> None:
        made.unreachable.begin(START + HOUR)
        made.unreachable.joined("h1", START + HOUR)
        await made.put(ClockAccepted(before=START + HOUR, by="ops"), at=START + SECOND)
        assert made.at(START + SECOND) == {"h1": START + SECOND, "h2": None}
        assert made.unreachable.since("h2") == START + SECOND


def test_a_host_whose_node_has_missed_nothing_is_as_before() -> None:
    @reach
    async def _(made: Reach) -> None:
        made.unreachable.cut_off("h1", START)
        made.unreachable.joined("h1", START + SECOND)
        made.unreachable.missed_nothing("h1")
        made.unreachable.missed_nothing("h2")  # which was not cut off
        assert made.at(START + SECOND) == {}
        assert made.unreachable.joined_at("h1") is None
        assert made.reported == ["h1", "h1", "h1"]
        made.unreachable.cut_off("h1", START)
        made.unreachable.joined("h1", START + HOUR)
        made.unreachable.cut_off("h1", START + HOUR + SECOND)
        made.unreachable.joined("h1", START + HOUR + 2 * SECOND)
        made.unreachable.missed_nothing("h1")
        assert made.at(START + HOUR + 2 * SECOND) == {"h1": START + HOUR}  # in the same grace
        assert made.unreachable.joined_at("h1") == START + HOUR
        assert made.at(START + HOUR + GRACE) == {}
