"""A change of one machine looks at its groups alone, and is the same as one of the whole fleet."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from forewarn.core import Durations, Machine, Refused
from forewarn.service.engine.clock import VirtualClock
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.writer import Writer
from forewarn.service.fleet import edit
from forewarn.service.fleet.apply import FleetApply
from forewarn.service.fleet.diff import Difference
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.machines import MachineIndex
from forewarn.store import MemoryStore

FLEET = """
hosts: [a, b]
groups:
  - name: web
    kind: availability-set
    machines: [{name: w0, host: a, address: 10.0.0.1}, {name: w1, address: 10.0.0.2}]
  - {name: db, kind: availability-set, machines: [{name: d0, address: 10.0.0.3}]}
"""


class Edited:
    """An inventory, and changes of single machines in it."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.index = MachineIndex(store)
        host_index = HostIndex(store)
        writer = Writer(store, VirtualClock(0), Durations(), Ledger(), host_index)
        self.fleet_apply = FleetApply(store, writer, host_index)

    async def put(self, name: str, body: Any, *groups: str, keep: bool = False) -> Any:
        text = msgspec.json.encode(body).decode()
        change = edit.put_machine(name, text, self.index, keep=keep)
        return await self.fleet_apply.change(change, by="test", only=lambda: groups)

    def machine(self, name: str) -> Machine:
        found = self.index.machine(name)
        assert found is not None
        return found[1]


def run(test: Any) -> None:
    async def live() -> None:
        store = MemoryStore()
        await store.open()
        edited = Edited(store)
        assert isinstance(await edited.fleet_apply.text(FLEET, by="test"), Difference)
        await test(edited)

    asyncio.run(live())


def test_only_the_groups_concerned_are_changed() -> None:
    async def test(edited: Edited) -> None:
        db = edited.store.groups["db"]
        done = await edited.put("w2", {"group": "web", "host": "b"}, "web")
        assert isinstance(done, Difference), done
        assert (done.machines.added, done.hosts, done.groups.removed) == (1, done.hosts, 0)
        assert msgspec.structs.astuple(done.hosts) == (0, 0, 0, 0)
        assert edited.machine("w2").host == "b"
        assert edited.store.groups["db"] is db
        assert set(edited.store.registry.hosts) == {"a", "b"}

    run(test)


def test_an_address_of_a_machine_elsewhere_is_refused() -> None:
    async def test(edited: Edited) -> None:
        seq = edited.store.seq
        done = await edited.put("w1", {"address": "10.0.0.3"}, "web", keep=True)
        assert isinstance(done, Refused)
        assert "machine 'd0' has it" in done.message
        assert edited.store.seq == seq

    run(test)


def test_an_address_that_was_given_up_is_free() -> None:
    async def test(edited: Edited) -> None:
        assert isinstance(
            await edited.put("d0", {"addresses": ["10.0.0.9"]}, "db", keep=True), Difference
        )
        assert edited.index.at("10.0.0.3") == []
        assert [machine.name for machine in edited.index.at("10.0.0.9")] == ["d0"]
        done = await edited.put("w1", {"addresses": ["10.0.0.3"]}, "web", keep=True)
        assert isinstance(done, Difference)
        assert edited.index.with_id(edited.machine("w1").vm_id) == "w1"

    run(test)


@pytest.mark.parametrize("target", ["db", "web"])
def test_a_machine_moves_between_two_groups(target: str) -> None:
    async def test(edited: Edited) -> None:
        done = await edited.put("w1", {"group": target}, "web", "db", keep=True)
        assert isinstance(done, Difference), done
        assert edited.index.group_of("w1") == target
        assert edited.machine("w1").addresses == ("10.0.0.2",)

    run(test)


def test_changes_wait_for_each_other_and_all_are_made() -> None:
    async def test(edited: Edited) -> None:
        bodies = [{"group": "web", "addresses": [f"10.0.1.{n}"]} for n in range(20)]
        done = await asyncio.gather(
            *(edited.put(f"n{n}", body, "web") for n, body in enumerate(bodies))
        )
        assert all(isinstance(difference, Difference) for difference in done)
        assert len(edited.store.groups["web"].machines) == 22

    run(test)


def test_changes_of_different_keys_at_the_same_time_are_all_kept() -> None:
    async def test(edited: Edited) -> None:
        bodies = ({"spot": True}, {"tags": {"a": "b"}}, {"host": "b"}, {"computer_name": "c"})
        done = await asyncio.gather(*(edited.put("w1", body, "web", keep=True) for body in bodies))
        assert all(isinstance(difference, Difference) for difference in done)
        machine = edited.machine("w1")
        assert (machine.spot, machine.tags, machine.host) == (True, {"a": "b"}, "b")
        assert machine.computer_name == "c"

    run(test)


@pytest.mark.parametrize("keep", [False, True])
def test_labels_of_the_old_group_do_not_come_along(keep: bool) -> None:
    """A machine is shown with the labels of its group, and is sent back as it was shown."""

    async def test(edited: Edited) -> None:
        text = FLEET.replace("name: web\n", "name: web\n    labels: {tier: web}\n")
        assert isinstance(await edited.fleet_apply.text(text, by="test"), Difference)
        body = {"group": "db"} if keep else {"group": "db", "labels": {"tier": "web", "own": "x"}}
        done = await edited.put("w1", body, "web", "db", keep=keep)
        assert isinstance(done, Difference), done
        assert edited.machine("w1").labels == ({} if keep else {"own": "x"})

    run(test)
