"""What is known beforehand of the groups after a commit is what its changes lead to."""

from __future__ import annotations

from forewarn.core import EventType, Group, GroupKind, Machine, World
from forewarn.core import commands as c
from forewarn.core.changes import apply
from forewarn.core.deciding.decide import CommitChanges, decide_all
from forewarn.core.time import SECOND

NOW = World(at=1_700_000_000 * SECOND)


def listening() -> dict[str, Group]:
    machines = (Machine(name="a_0"), Machine(name="a_1"))
    group = Group(name="a", kind=GroupKind.SCALE_SET, machines=machines)
    return after(decided({"a": group}, c.Enable()), {"a": group})


def decided(groups: dict[str, Group], *commands: c.Command) -> CommitChanges:
    found = decide_all(groups, [("a", command) for command in commands], NOW)
    assert isinstance(found, CommitChanges)
    return found


def after(together: CommitChanges, groups: dict[str, Group]) -> dict[str, Group]:
    return {name: apply(groups[name], items) for name, items in together.items.items()}


def freeze(id: str, machine: str) -> c.Raise:
    return c.Raise(id=id, type=EventType.FREEZE, machines=(machine,), by="operator")


def test_one_decision_is_known_with_the_group_after_it() -> None:
    groups = listening()
    together = decided(groups, freeze("E1", "a_0"))
    assert together.after == after(together, groups)


def test_a_decision_that_starts_a_freed_event_is_known_with_the_group_after_it() -> None:
    groups = listening()
    groups = after(decided(groups, freeze("E1", "a_0")), groups)
    together = decided(groups, c.Approve(ids=("E1",), by="a_1"))
    assert together.after == after(together, groups)
    assert together.after["a"].incarnation == groups["a"].incarnation + 1


def test_two_decisions_on_one_group_are_one_change_of_its_document() -> None:
    groups = listening()
    together = decided(groups, freeze("E1", "a_0"), freeze("E2", "a_1"))
    assert together.after.get("a") in (None, after(together, groups)["a"])
    assert after(together, groups)["a"].incarnation == groups["a"].incarnation + 1


def test_a_decision_that_changes_nothing_has_no_group_after_it() -> None:
    assert decided(listening(), c.Enable()).after == {}
