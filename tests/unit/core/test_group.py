"""What has changed among the machines of a group."""

from __future__ import annotations

from forewarn.core import Machine
from forewarn.core.group import replaced


def test_only_machines_that_are_not_the_same_count_as_replaced() -> None:
    a, b, c = (Machine(name=name) for name in "abc")
    moved = Machine(name="b", host="h")
    assert replaced((a, b, c), (a, moved, c)) == ([b], [moved])
    assert replaced((a, b), (b, a)) == ([], [])
    assert replaced((a, b), (a, b, c)) == ([], [c])
    assert replaced((a, b), ()) == ([a, b], [])
