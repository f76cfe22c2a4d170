"""Numbers after a restore: beyond all that can have been used since the copy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.core import Changes, Group, Machine, World, apply, decide, view
from forewarn.core.changes import Enabled
from forewarn.core.commands import Define
from forewarn.core.renumbering import (
    beyond_commits,
    beyond_documents,
    beyond_groups,
    renumbered,
)
from forewarn.core.time import DAY, SECOND

INT32 = 2**31 - 1  # what some clients keep an incarnation in


@given(st.integers(0, 3650 * DAY), st.integers(SECOND, 3650 * DAY))
def test_two_restores_of_one_copy_give_different_numbers(first: int, later: int) -> None:
    """Whatever was shown after the first, below ten changes a second, the second is beyond."""
    changes = 10 * (later // SECOND) - 1
    assert beyond_documents(first + later) > beyond_documents(first) + changes
    assert beyond_commits(first + later) > beyond_commits(first) + changes


@given(st.integers(-DAY, 365 * DAY), st.integers(1, 10_000_000))
def test_an_incarnation_goes_up_and_stays_a_small_integer(unknown: int, incarnation: int) -> None:
    group = Group(name="web", enabled=True, incarnation=incarnation)
    after = apply(group, renumbered([group], unknown)["web"])
    assert incarnation + 1_000 <= after.incarnation <= INT32


def test_numbers_of_documents_before_a_group_was_disabled_are_not_used_again() -> None:
    group = Group(name="web", enabled=True, incarnation=3, shown=50_000)
    after = apply(group, renumbered([group], DAY)["web"])
    assert after.incarnation > 50_000 + beyond_documents(DAY) - 1


def test_nothing_else_about_a_group_is_changed() -> None:
    machine = Machine(name="web_0")
    group = Group(name="web", enabled=True, incarnation=5, machines=(machine,), seen=7)
    after = apply(group, renumbered([group], 0)["web"])
    assert after.machines is group.machines or after.machines == group.machines
    assert view(after).events == view(group).events
    assert (after.enabled, after.seen, after.events) == (True, 7, ())


def test_a_group_without_a_document_in_the_copy_may_have_had_one_since() -> None:
    group = Group(name="web")
    after = apply(group, renumbered([group], DAY)["web"])
    assert apply(after, (Enabled(seen=0),)).incarnation > beyond_documents(DAY)


def test_a_group_that_is_not_in_the_copy_may_have_been_there_since() -> None:
    kept = Group(name="db", enabled=True, incarnation=7)
    kept = apply(kept, renumbered([kept], DAY)["db"])
    for groups in ([kept], []):
        now = World(at=0, defined_above=beyond_groups(groups, DAY))
        defined = decide(
            Group(name="web"), Define(kind=kept.kind, machines=(Machine(name="web_0"),)), now
        )
        assert isinstance(defined, Changes)
        after = apply(Group(name="web"), defined.items)
        assert apply(after, (Enabled(seen=0),)).incarnation > beyond_documents(DAY)
        again = decide(after, Define(kind=kept.kind, machines=after.machines), now)
        assert again == Changes()
