"""The real service, simulated: killed around every commit, its drivers' replies lost, its clock
stepped. The judge sees what the guests saw, and nothing else."""

from __future__ import annotations

import pytest

from simulation.play import played
from simulation.world import Kill

SHORT = 30  # of a life that is lived anew for every commit in it


@pytest.mark.parametrize("seed", range(16))
def test_no_promise_is_broken_in_an_ordinary_life(seed: int) -> None:
    sim = played(seed, Kill())
    assert sim.deaths == 0


@pytest.mark.parametrize("seed", [1, 2])  # in which nearly all happens that can
def test_no_promise_is_broken_when_killed_at_any_commit(seed: int) -> None:
    """Once for every commit of a life, just before it is on disk or just after, in turns: to be
    killed before a commit is nearly the same as to be killed after the previous one. Two short
    lives see more than one that is twice as long and takes four times the time."""
    commits = len(played(seed, Kill(), SHORT).disk.commits)
    assert commits > 30
    for at_commit in range(1, commits + 1):
        before = (at_commit + seed) % 2 == 0
        sim = played(seed, Kill(at_commit, before=before), SHORT)
        assert sim.deaths >= 1


@pytest.mark.parametrize("seed", range(100, 110))
def test_no_promise_is_broken_when_killed_again_and_again(seed: int) -> None:
    sim = played(seed, Kill(1, often=True), steps=300)
    assert sim.deaths > 5


def test_simulated_lives_are_eventful() -> None:
    """A simulation in which nothing happens would prove nothing."""
    sim = played(7, Kill(1, often=True), steps=600)
    kinds = [record["kind"] for record in sim.trace]
    answers = [r["status"] for r in sim.trace if r["kind"] == "exchange" and r["method"] == "POST"]
    assert kinds.count("impact") > 20
    assert kinds.count("step") > 5
    assert kinds.count("down") > 0
    assert {"halts", "maintenance", "placement", "ignores-windows"} <= set(kinds)
    assert "postpone" in {record.get("move") for record in sim.trace}
    assert any(r.get("answer", "").count('"EventType":"Terminate"') > 1 for r in sim.trace)
    assert answers.count(200) > 40
    assert None in [r["status"] for r in sim.trace if r["kind"] == "exchange"]
