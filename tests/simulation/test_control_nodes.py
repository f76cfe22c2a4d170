"""Several control nodes, simulated: the one that decides fails at every commit of a life, in every
way, and another one goes on. The judge sees what guests of all nodes saw."""

from __future__ import annotations

import functools

import pytest

from forewarn.service.engine import executor
from simulation.cluster import Failure, Fault
from simulation.lives import lived
from simulation.wrong_clocks import WrongClocksScript

STEPS = 15
HOUR = 3_600.0  # seconds
SEEDS = [1, 10]
WAYS = [
    (failure, before, successor)
    for failure in (Failure.KILLED, Failure.PAUSED, Failure.DEAF)
    for before in (True, False)
    for successor in ((0, 1, 2) if failure is Failure.DEAF else (1, 2))
]
CLOCK_COMMITS = 20  # the first ones of a life, at which a node with another clock takes over
LIVES = 140  # at least, altogether


@pytest.fixture(autouse=True)
def without_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that takes over waits for the programs of the last one, of which there are none."""
    monkeypatch.setattr(executor, "HANDOVER", 0.0)


@functools.cache
def commits(seed: int) -> int:
    return len(lived(seed, Fault(), STEPS).disk.commits)


def share(seed: int, turn: int) -> range:
    """Return every fourth commit of a life: the next way to fail and the other life take the next
    ones, so that there is no commit at which a leader does not fail in several ways."""
    first = 1 + (turn + 2 * SEEDS.index(seed)) % 4
    return range(first, commits(seed) + 1, 4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("turn", "failure", "before", "successor"),
    [(turn, *way) for turn, way in enumerate(WAYS)],
    ids=[f"{f.value} {'before' if b else 'after'}, node {s} goes on" for f, b, s in WAYS],
)
def test_no_promise_is_broken_when_the_leader_fails_at_any_commit(
    turn: int, failure: Failure, before: bool, successor: int, seed: int
) -> None:
    for at_commit in share(seed, turn):
        sim = lived(seed, Fault(failure, at_commit, before, successor), STEPS)
        assert (sim.faults, sim.deaths) == (1, 1 if successor else 0)
        assert sim.disk.lease.term >= 2  # whoever went on has begun another term


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("failure", [Failure.KILLED, Failure.PAUSED])
def test_no_promise_is_broken_when_the_leader_fails_in_any_driver_call(
    failure: Failure, seed: int
) -> None:
    for at_call in range(1, lived(seed, Fault(), STEPS).calls + 1):
        sim = lived(seed, Fault(failure, at_call=at_call), STEPS)
        assert (sim.faults, sim.deaths) == (1, 1)


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
@pytest.mark.parametrize("failure", [Failure.NONE, Failure.KILLED])
def test_no_promise_is_broken_when_the_clock_of_the_database_steps_at_any_commit(
    failure: Failure, step: float
) -> None:
    """Nobody takes over because of it, and nobody is kept from it."""
    (seed, *_) = SEEDS
    for at_commit in share(seed, int(step > 0)):
        sim = lived(seed, Fault(failure, at_commit, before=True, clock_step=step), STEPS)
        assert (sim.faults, sim.deaths) == (1, 0 if failure is Failure.NONE else 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("failure", [Failure.KILLED, Failure.PAUSED])
def test_no_promise_is_broken_by_a_node_whose_clock_was_wrong_before_it_took_over(
    failure: Failure, seed: int
) -> None:
    for at_commit in range(1, CLOCK_COMMITS, 3):
        lived(seed, Fault(failure, at_commit, before=False), STEPS, WrongClocksScript)


def test_leaders_fail_in_many_simulated_lives() -> None:
    assert sum(len(share(seed, turn)) for seed in SEEDS for turn in range(len(WAYS))) >= LIVES
