"""A machine that the inventory puts on another host is no longer concerned by what is planned for
the old one; what has begun goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forewarn.core import (
    EventType,
    Group,
    GroupKind,
    Machine,
    Refused,
    Source,
    Status,
    World,
    apply,
)
from forewarn.core import commands as c
from forewarn.core.changes import EventMoved
from forewarn.core.deciding.decide import CommitChanges, decide_all
from forewarn.core.deciding.joint import members
from forewarn.core.events import Joint
from forewarn.core.lifecycle import Move
from forewarn.core.time import MINUTE, SECOND

START = 1_700_000_000 * SECOND


class Fleet:
    def __init__(self) -> None:
        self.now = World(at=START)
        self.groups = {name: Group(name=name) for name in ("a", "b")}
        self.over: dict[str, EventMoved] = {}
        self.define("a", a0="h1", a1="h1", a2="h2")
        self.define("b", b0="h1")

    def do(self, *commands: tuple[str, c.Command]) -> CommitChanges:
        decided = decide_all(self.groups, commands, self.now)
        assert not isinstance(decided, Refused), decided
        for name, items in decided.items.items():
            self.groups[name] = apply(self.groups[name], items)
            ends = [item for item in items if isinstance(item, EventMoved)]
            self.over |= {item.event.id: item for item in ends if item.event.status.over}
        return decided

    def define(self, group: str, **hosts: str) -> CommitChanges:
        machines = tuple(Machine(name=name, host=host) for name, host in hosts.items())
        command = c.Define(kind=GroupKind.SCALE_SET, machines=machines, by="ann")
        return self.do((group, command))

    def raised(self, *machines: str, **more: Any) -> str:
        wanted: dict[str, Any] = {"type": EventType.REBOOT, "by": "ops", "host": "h1", **more}
        id = wanted.pop("id", "E1")
        self.do((machines[0][0], c.Raise(id=id, machines=machines, **wanted)))
        return str(id)

    def left(self, id: str) -> tuple[str, ...] | None:
        event = self.groups["a"].event(id)
        return None if event is None else event.left

    def later(self, minutes: int) -> None:
        self.now = msgspec.structs.replace(self.now, at=self.now.at + minutes * MINUTE)
        self.do(*((name, c.Tick(seen=0)) for name in self.groups))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_one_of_two_leaves_and_the_event_goes_on_for_the_other(fleet: Fleet) -> None:
    event = fleet.raised("a0", "a1")
    decided = fleet.define("a", a0="h3", a1="h1", a2="h2")
    assert fleet.left(event) == ("a0",)
    moves = [item for item in decided.items["a"] if isinstance(item, EventMoved)]
    assert [(item.what, item.by) for item in moves] == [(Move.LEAVE, "ann")]


def test_an_event_whose_machines_have_all_moved_is_withdrawn(fleet: Fleet) -> None:
    event = fleet.raised("a0", "a1")
    fleet.define("a", a0="h3", a1="h1", a2="h2")
    fleet.define("a", a0="h3", a1="h2", a2="h2")
    assert fleet.over[event].event.status is Status.WITHDRAWN
    assert fleet.over[event].event.ending.startswith("settled: ")


def test_a_machine_without_a_host_any_more_has_left_it_too(fleet: Fleet) -> None:
    event = fleet.raised("a0", "a1")
    fleet.define("a", a0="", a1="h1", a2="h2")
    assert fleet.left(event) == ("a0",)


def test_an_event_without_a_host_is_settled_like_by_a_redeploy(fleet: Fleet) -> None:
    event = fleet.raised("a0", host="")
    fleet.define("a", a0="h3", a1="h1", a2="h2")
    assert event in fleet.over


def test_the_other_groups_of_a_host_go_on_without_it(fleet: Fleet) -> None:
    joint = Joint("J", ("a", "b"))
    words: dict[str, Any] = {"type": EventType.REBOOT, "by": "ops", "host": "h1", "joint": joint}
    fleet.do(
        ("a", c.Raise(id="E1", machines=("a0", "a1"), **words)),
        ("b", c.Raise(id="E2", machines=("b0",), **words)),
    )
    fleet.define("a", a0="h3", a1="h3", a2="h2")
    assert list(members(fleet.groups, joint)) == ["b"]
    fleet.later(15)
    (event,) = fleet.groups["b"].events
    assert event.status is Status.STARTED
    assert event.attempt is not None  # it leads now


def test_a_group_that_has_left_is_not_waited_for(fleet: Fleet) -> None:
    joint = Joint("J", ("a", "b"))
    words: dict[str, Any] = {"type": EventType.REBOOT, "by": "ops", "host": "h1", "joint": joint}
    fleet.do(("a", c.Enable()), ("b", c.Enable()))
    fleet.do(
        ("a", c.Raise(id="E1", machines=("a0", "a1"), **words)),
        ("b", c.Raise(id="E2", machines=("b0",), **words)),
    )
    fleet.do(("b", c.Approve(ids=("E2",), by="b0")))
    assert [event.status for event in fleet.groups["b"].events] == [Status.SCHEDULED]
    fleet.define("a", a0="h3", a1="h3", a2="h2")
    assert [event.status for event in fleet.groups["b"].events] == [Status.STARTED]


def test_a_started_event_continues_when_its_machine_moves(fleet: Fleet) -> None:
    event = fleet.raised("a0", "a1")
    fleet.later(15)
    fleet.define("a", a0="h3", a1="h3", a2="h2")
    assert fleet.left(event) == ()


@pytest.mark.parametrize(
    ("machine", "more"),
    [
        ("a0", {"source": Source.USER, "host": ""}),
        ("a0", {"type": EventType.TERMINATE, "host": ""}),
        ("a2", {"host": "h3"}),
    ],
)
def test_events_that_do_not_depend_on_the_old_host_stay(
    fleet: Fleet, machine: str, more: dict[str, Any]
) -> None:
    """A user's restart, a delete, and what is planned for the host it comes to."""
    event = fleet.raised(machine, **more)
    fleet.define("a", a0="h3", a1="h1", a2="h3")
    assert fleet.left(event) == ()


def test_defining_the_same_host_again_moves_nothing(fleet: Fleet) -> None:
    """Another field, or a host where none was known."""
    fleet.define("a", a0="", a1="h1", a2="h2")
    event = fleet.raised("a0", "a1", host="")
    fleet.define("a", a0="h1", a1="h1", a2="h3")
    assert fleet.left(event) == ()


def test_the_inventory_catching_up_with_a_redeploy_moves_nothing(fleet: Fleet) -> None:
    """It was moved from h1 to h4, for which something is planned now; then the file says h4."""
    fleet.raised("a0", type=EventType.REDEPLOY, id="R")
    fleet.later(10)
    answer = c.Answer(id="R", attempt=1, outcome=c.Done({"a0": "h4"}))
    fleet.do(("a", answer))
    event = fleet.raised("a0", host="h4")
    fleet.define("a", a0="h1", a1="h1", a2="h2")
    assert fleet.left(event) == ()
    fleet.define("a", a0="h4", a1="h1", a2="h2")
    assert fleet.left(event) == ()
    fleet.define("a", a0="h1", a1="h1", a2="h2")  # but this brings it back
    assert event in fleet.over


def test_an_update_domain_is_not_changed_under_an_active_event_unless_forced(fleet: Fleet) -> None:
    fleet.raised("a0", "a1")
    machines = tuple(
        msgspec.structs.replace(m, update_domain=int(m.name == "a1"))
        for m in fleet.groups["a"].machines
    )
    define = c.Define(kind=GroupKind.SCALE_SET, machines=machines, by="ann")
    refused = decide_all(fleet.groups, [("a", define)], fleet.now)
    assert isinstance(refused, Refused)
    assert "'a1' (Reboot E1, Scheduled)" in refused.message
    fleet.do(("a", msgspec.structs.replace(define, force=True)))
    after = fleet.groups["a"].machine("a1")
    assert after is not None
    assert after.update_domain == 1
