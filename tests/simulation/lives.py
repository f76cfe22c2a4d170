"""Lives of several control nodes, and what is wrong with them: by the judge, who sees what guests
of all nodes saw, and by the log and the state that are left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from forewarn.core import Status
from forewarn.core.changes import EventMoved
from forewarn.judge import judge
from forewarn.wire.requests import read_approval
from simulation.cluster import Broken, Cluster, ClusterScript, Fault, Finding, NodeLoop
from simulation.play import replayed
from simulation.world import Simulation


def lived(
    seed: int, fault: Fault, steps: int, script: type[ClusterScript] = ClusterScript
) -> Cluster:
    """A life with which nothing is wrong."""
    sim, findings = live(seed, fault, steps, script)
    assert findings == []
    return sim


def live(
    seed: int, fault: Fault, steps: int, script_type: type[ClusterScript] = ClusterScript
) -> tuple[Cluster, list[Finding]]:
    """A life, and everything that is wrong with it."""
    script = script_type(seed, fault)
    sim = script.sim

    async def life() -> None:
        try:
            await script.run(steps)
        finally:  # so that the rest can be ended
            for member in [*sim.nodes, *filter(None, [sim.behind])]:
                await sim.end(member)

    with asyncio.Runner(loop_factory=NodeLoop) as runner:
        try:
            runner.run(life())
            at_the_end = [*left_over(script), *wrong_mirrors(sim)]
        except Broken:
            at_the_end = []
    guests = [Finding(finding.rule, finding.render()) for finding in judge(sim.trace).findings]
    return sim, [*sim.findings, *guests, *wrong_log(sim), *lost(sim), *at_the_end]


def left_over(script: ClusterScript) -> Iterator[Finding]:
    for event in script.left_over:
        yield Finding("never-ends", f"{event.id} was announced, and has not come to an end")


def wrong_log(sim: Simulation) -> Iterator[Finding]:
    """The log has every number once, and leads to the state."""
    numbers = [commit.seq for commit in sim.disk.commits]
    if numbers != list(range(1, len(numbers) + 1)):
        yield Finding("numbers", f"the log has the commits {numbers}")
    elif replayed(sim) != sim.disk.groups:
        yield Finding("replay", "the log does not lead to the state")


def wrong_mirrors(sim: Cluster) -> Iterator[Finding]:
    """Every node knows what is on disk."""
    for member in sim.nodes:
        known = dict(member.store.groups), member.store.registry
        if known != (sim.disk.groups, sim.disk.registry):
            yield Finding("mirror", f"{member.name} does not know the state that is on disk")


def lost(sim: Cluster) -> Iterator[Finding]:
    """What was acknowledged, to whomever, is in the log."""
    log = {commit.seq: commit for commit in sim.disk.commits}
    for commit in sim.acknowledged:
        stored = log.get(commit.seq)
        if stored is None or (stored.entries, stored.puts) != (commit.entries, commit.puts):
            yield Finding("lost-commit", f"{commit.seq} was acknowledged, and is not in the log")
    yield from approvals_not_in_log(sim)


def approvals_not_in_log(sim: Simulation) -> Iterator[Finding]:
    approved = {
        item.event.id
        for commit in sim.disk.commits
        for entry in commit.entries
        for item in entry.items
        if isinstance(item, EventMoved)
        and (item.event.approved is not None or item.event.status is not Status.SCHEDULED)
    }
    for line in sim.trace:
        if (line["kind"], line.get("method"), line.get("status")) == ("exchange", "POST", 200):
            ids = read_approval(line["body"].encode())
            for id in ids if isinstance(ids, tuple) else ():
                if id not in approved:
                    yield Finding("approval-not-in-log", f"{id} was approved with 200")
