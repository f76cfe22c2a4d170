"""Hosts that cannot be reached, as metrics: only who decides knows of them."""

from __future__ import annotations

import asyncio

import pytest

from forewarn.core import Machine
from forewarn.core.changes import MachinePut
from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut
from forewarn.core.time import MINUTE, SECOND
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.telemetry.reach import nodeless_warning, reach_readings, reach_warning
from forewarn.store import MemoryStore
from forewarn.store.port import Batch, Entry
from forewarn.support import guard
from helpers.waiting import LIMIT

START = 1_700_000_000 * SECOND


def test_readings_count_unreachable_hosts_and_their_longest_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = guard.monotonic() + LIMIT

    async def work() -> None:
        store = MemoryStore()
        index = HostIndex(store)
        unreachable = index.unreachable
        await store.open()
        puts = tuple(HostPut(Host(name=name, node=True)) for name in ("h1", "h2"))
        await store.transact(lambda _: Batch(START, 0, (), puts))
        readings = list(reach_readings(index, START, went_back=False))
        assert not any(sample.samples for sample in readings)
        unreachable.begin(START)
        unreachable.joined("h2", START)
        unreachable.cut_off("h2", START + MINUTE)
        readings = list(reach_readings(index, START + 2 * MINUTE, went_back=True))
        assert {sample.name: dict(sample.samples) for sample in readings if sample.samples} == {
            "forewarn_hosts_unreachable": {(): 2},
            "forewarn_host_unreachable_seconds": {(): 120.0},
            "forewarn_machines_elsewhere": {(): 0},
            "forewarn_state_went_back": {(): 1},
        }
        assert reach_warning(unreachable).startswith("1 host "), (
            "the other has not had time to join"
        )
        monkeypatch.setattr(guard, "monotonic", lambda: later)
        assert reach_warning(unreachable).startswith("2 hosts ")
        unreachable.joined("h1", START + 2 * MINUTE)
        unreachable.joined("h2", START + 2 * MINUTE)
        assert reach_warning(unreachable) == ""

    asyncio.run(work())


def test_hosts_with_machines_on_which_no_node_has_joined_give_a_warning() -> None:
    async def work() -> None:
        store = MemoryStore()
        hosts = HostIndex(store)
        await store.open()
        puts = [HostPut(Host(name=name, node=name == "h1")) for name in ("h1", "h2", "h3", "empty")]
        machines = [
            MachinePut(Machine(name=f"on {host}", host=host)) for host in ("h1", "h2", "h3")
        ]
        web = Entry("web", tuple(machines))
        await store.transact(lambda _: Batch(START, entries=(web,), puts=tuple(puts)))
        assert nodeless_warning(hosts) == "", "whoever follows does not know"
        hosts.unreachable.begin(START)
        assert nodeless_warning(hosts).startswith("guests on 2 hosts ")

    asyncio.run(work())
