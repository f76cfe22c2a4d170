"""Sums over a rollout, for a screen: its size, the states of its steps, and what it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from forewarn.core.group import Group
from forewarn.core.rollouts.model import Lane, Size
from forewarn.core.rollouts.progress import LaneProgress, StepState, Wait

EXAMPLES = 3  # lanes that are named for each reason


class WaitGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes that wait for the same reason."""

    waits: tuple[Wait, ...]

    @property
    def count(self) -> int:
        return sum(wait.count for wait in self.waits)

    @property
    def examples(self) -> tuple[Wait, ...]:
        """Those that have waited longest."""
        return tuple(sorted(self.waits, key=lambda wait: wait.since)[:EXAMPLES])


def size(lanes: Iterable[Lane], groups: Mapping[str, Group]) -> Size:
    """Count the machines of these lanes, and their groups and hosts."""
    selected = {name for lane in lanes for step in lane.steps for name in step.machines}
    hosts, found = set[str](), set[str]()
    for group in groups.values():
        for machine in group.machines:
            if machine.name in selected:
                found.add(group.name)
                if machine.host:
                    hosts.add(machine.host)
    return Size(machines=len(selected), groups=len(found), hosts=len(hosts))


def steps_by_state(lanes: Iterable[LaneProgress]) -> dict[StepState, int]:
    counts = Counter(step.state for lane in lanes for step in lane.steps)
    return {state: counts[state] for state in StepState if counts[state]}


def by_reason(waits: Sequence[Wait]) -> tuple[WaitGroup, ...]:
    """Group waits by their reason, in the order in which the reasons first occur."""
    groups: dict[tuple[str, str], list[Wait]] = {}
    for wait in waits:
        groups.setdefault((wait.kind.value, wait.reason), []).append(wait)
    return tuple(WaitGroup(waits=tuple(group)) for group in groups.values())
