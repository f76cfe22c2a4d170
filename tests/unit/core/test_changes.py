"""The numbers of a group's documents, from one change to the next."""

from __future__ import annotations

from forewarn.core import EventType, Machine, apply
from forewarn.core import commands as c
from forewarn.core.renumbering import renumbered
from forewarn.core.time import DAY
from helpers.group_model import GroupWorld, world


def emptied(made: GroupWorld) -> list[Machine]:
    """Remove the group, and return the machines that it had."""
    machines = list(made.group.machines)
    made.define()
    assert made.view.incarnation == 0
    return machines


def test_a_group_of_the_same_name_continues_above_what_was_shown() -> None:
    made = world()
    for _ in range(3):
        made.do(c.Cancel(id=made.raised(EventType.REBOOT, "m0"), by="ops"))
    assert made.view.incarnation == 7
    machines = emptied(made)
    made.define(*machines)
    assert made.poll().incarnation == 8
    machines = emptied(made)
    made.define(*machines)
    assert made.poll().incarnation == 9
    made.check_history()


def test_disabling_starts_over_and_is_remembered_all_the_same() -> None:
    made = world()
    made.raised(EventType.REBOOT, "m0")
    made.do(c.Disable(by="ops"))
    assert made.poll().incarnation == 1
    made.do(c.Disable(by="ops"))
    machines = emptied(made)  # while nobody listens
    made.define(*machines)
    assert made.poll().incarnation == 3
    made.do(c.Disable(by="ops"))
    assert made.poll().incarnation == 1


def test_after_a_restore_a_group_that_was_removed_continues_beyond_what_is_unknown() -> None:
    made = world()
    machines = emptied(made)
    changes = renumbered([made.group], DAY)["web"]
    made.group = apply(made.group, changes)
    made.history.append(changes)
    made.define(*machines)
    assert made.poll().incarnation > 10 * 86_400
