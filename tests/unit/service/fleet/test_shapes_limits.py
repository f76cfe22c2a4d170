"""What operators send is bounded, and costs no more than its size: guests wait on the same loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core import EventType, Group, Refused, decide
from forewarn.core import commands as c
from forewarn.core.fleet import GroupKind, Machine
from forewarn.core.world import World
from forewarn.service.fleet import read as fleetfile
from forewarn.service.fleet.read import FleetError
from forewarn.service.fleet.shapes import MAX_ADDRESSES, MAX_AMOUNT, MAX_TAGS, schema
from forewarn.support import suggest
from forewarn.support.limits import MAX_EVENT_MACHINES
from forewarn.support.yaml import events as yaml_events
from forewarn.support.yaml import positions as yaml_positions
from forewarn.support.yaml.events import MAX_TEXT
from forewarn.testing import Service
from forewarn.testing.errors import RefusedError


class Counted(tuple[Any, ...]):
    """How often it is gone through from its beginning."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).times += 1
        return super().__iter__()


def test_an_event_for_many_machines_goes_through_its_group_a_few_times() -> None:
    def gone_through(count: int) -> int:
        machines = Counted(Machine(name=f"m{n}", addresses=()) for n in range(count))
        group = Group(name="zone", kind=GroupKind.AVAILABILITY_ZONE, machines=machines)
        Counted.times = 0
        names = tuple(f"m{n}" for n in range(count))
        raised = c.Raise(id="E", type=EventType.REBOOT, machines=names, by="test")
        assert not isinstance(decide(group, raised, World(at=0)), Refused)
        return Counted.times

    assert gone_through(300) == gone_through(3)


def test_the_number_of_machines_of_an_event_is_limited() -> None:
    with Service() as service:
        service.scale_set("web", 2)
        names = ["web_0"] * (MAX_EVENT_MACHINES + 1)
        with pytest.raises(RefusedError) as refused:
            service.schedule("Reboot", *names)
    assert f"{MAX_EVENT_MACHINES:,}" in str(refused.value)
    assert f"{MAX_EVENT_MACHINES + 1:,}" in str(refused.value)


def test_a_long_name_is_not_repeated_in_full() -> None:
    with Service() as service:
        service.scale_set("web", 2)
        with pytest.raises(RefusedError) as refused:
            service.schedule("Reboot", "x" * 100_000)
    assert len(str(refused.value)) < 300


class Named(dict[str, None]):
    """A fleet's names, and how many of them were looked at one by one."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            type(self).looked_at += 1
            yield name


def test_suggestions_for_an_unknown_name_look_at_few_of_many_names() -> None:
    known = Named.fromkeys(f"machine-{n}" for n in range(3 * suggest.MAX_SCANNED))
    Named.looked_at = 0
    says = suggest.instead_of("quite another", known)
    assert Named.looked_at <= 2 * suggest.MAX_SCANNED
    assert "machine-0" in says
    assert f"and {len(known) - 10} more" in says
    assert suggest.instead_of("machin-29999", known) == "did you mean 'machine-29999'?"


ONE = "groups: [{name: one, kind: standalone, machines: [{name: one, %s}]}]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            ONE % f"addresses: {[f'10.0.{n >> 8}.{n & 255}' for n in range(MAX_ADDRESSES + 1)]}",
            f"there are {MAX_ADDRESSES + 1} addresses; at most {MAX_ADDRESSES} are allowed",
        ),
        (
            ONE % f"tags: {{{', '.join(f't{n}: v' for n in range(MAX_TAGS + 1))}}}",
            f"there are {MAX_TAGS + 1} tags; at most {MAX_TAGS} are allowed",
        ),
        (
            f"location: {'x' * (MAX_TEXT + 1)}\ngroups: []",
            f"the value has {MAX_TEXT + 1:,} characters; at most {MAX_TEXT:,} are allowed",
        ),
        (ONE % "size: {memory: -1}", "size.memory: -1 is out of range"),
        (
            f"hosts: [{{name: a, capacity: {{cpus: {MAX_AMOUNT + 1}}}}}]\ngroups: []",
            r"hosts\[0\].capacity.cpus: 2147483648 is out of range",
        ),
    ],
    ids=["addresses", "tags", "text", "size", "capacity"],
)
def test_what_one_machine_may_have_is_limited(text: str, says: str) -> None:
    with pytest.raises(FleetError, match=says):
        fleetfile.parse(text)


def test_reading_a_mapping_stops_at_the_limit_of_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = 0
    read = yaml_events.Events._key

    def counted(events: yaml_events.Events, event: Any) -> Any:
        nonlocal keys
        keys += 1
        return read(events, event)

    monkeypatch.setattr(yaml_events.Events, "_key", counted)
    tags = ", ".join(f"t{n}: v" for n in range(3 * yaml_events.MAX_KEYS))
    with pytest.raises(FleetError, match=r"line 1: .*tags.*: .*at most 1,000"):
        fleetfile.parse(ONE % f"tags: {{{tags}}}")
    assert keys < yaml_events.MAX_KEYS + 20


def test_a_machine_at_all_limits_is_accepted() -> None:
    addresses = [f"10.0.{n >> 8}.{n & 255}" for n in range(MAX_ADDRESSES)]
    tags = ", ".join(f"t{n}: {'v' * 20}" for n in range(MAX_TAGS))
    fleet = fleetfile.parse(ONE % f"addresses: {addresses}, tags: {{{tags}}}")
    [machine] = fleet.groups["one"].machines
    assert (len(machine.addresses), len(machine.tags)) == (MAX_ADDRESSES, MAX_TAGS)


@pytest.mark.parametrize(
    "long",
    ["# " + "x" * 1_000_000 + "\n", "# xxxx\n" * 150_000, "\n" * 1_000_000],
    ids=["one comment", "many comments", "empty lines"],
)
def test_a_parser_written_in_c_lets_others_run_every_few_bytes(
    long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the interpreter's lock for as long as it looks for one event. So it is given its
    text in slices, by a function in Python, before which the lock can be had."""
    sizes: list[int] = []
    read = yaml_positions.Slices.read

    def counted(slices: yaml_positions.Slices, size: int) -> str:
        sizes.append(len(given := read(slices, size)))
        return given

    monkeypatch.setattr(yaml_positions.Slices, "read", counted)
    fleetfile.parse(long + "groups: []\n")
    assert sum(sizes) == len(long) + len("groups: []\n")
    assert max(sizes) <= yaml_positions.SLICE


def test_a_group_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    made = yaml_events.Events.__init__

    def noted(self: yaml_events.Events, *words: Any) -> None:
        threads.append(threading.get_ident())
        made(self, *words)

    monkeypatch.setattr(yaml_events.Events, "__init__", noted)

    async def loop() -> int:
        return threading.get_ident()

    with Service() as service:
        applied = service._session.node.fleet_apply.text("groups: []", by="test")
        service._session.run(applied)
        assert threads
        assert service._session.run(loop()) not in threads


def test_limits_are_in_the_schema() -> None:
    machine = schema()["$defs"]["MachineEntry"]["properties"]
    assert machine["addresses"]["maxItems"] == MAX_ADDRESSES
    assert machine["tags"]["maxProperties"] == MAX_TAGS
