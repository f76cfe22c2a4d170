"""One simulated run, put before the judge."""

from __future__ import annotations

import asyncio

from forewarn.core import Group
from forewarn.core.changes import apply
from forewarn.judge import judge
from simulation.script import Script
from simulation.world import Kill, Simulation

STEPS = 150


def played(seed: int, kill: Kill, steps: int = STEPS) -> Simulation:
    script = Script(seed, kill)
    sim = asyncio.run(script.run(steps))
    judgement = judge(sim.trace)
    assert judgement.ok, judgement.render()
    assert script.left_over == []  # everything that was announced has come to an end
    assert replayed(sim) == sim.disk.groups
    return sim


def replayed(sim: Simulation) -> dict[str, Group]:
    """The state that the history alone leads to."""
    groups: dict[str, Group] = {}
    for commit in sim.disk.commits:
        for entry in commit.entries:
            before = groups.get(entry.group, Group(name=entry.group))
            groups[entry.group] = apply(before, entry.items)
    return groups
