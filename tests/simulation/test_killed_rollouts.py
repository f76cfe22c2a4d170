"""A rollout whose service dies around every commit: what it does is the same as if it had lived."""

from __future__ import annotations

import asyncio

import pytest

from forewarn.core import Event, EventType, Refused, Status
from forewarn.core.rollouts.model import Rollout
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import HOUR, MINUTE
from forewarn.core.windows.syntax import parse_window
from forewarn.service.rollouts.request import RolloutRequest
from simulation.world import Kill, Killed, Simulation

WANTED = RolloutRequest(
    type=EventType.REBOOT,
    selection=Selection(groups=("sql", "shop", "web")),
    by="test",
    at_once=2,
    bake=5 * MINUTE,
    windows=(parse_window("08:00-09:30"), parse_window("sat 00:00-12:00")),
)


async def live(kill: Kill, away: int = 0) -> Simulation:
    """From the start of a rollout to its end, with as many services as that takes."""
    sim = Simulation(11, kill)
    await sim.start()
    while True:
        try:
            rollouts = list(sim.store.registry.rollouts.values())
            if not rollouts:
                started = await sim.surviving(sim.node.rollouts.start(WANTED))
                assert not isinstance(started, Refused), started
            elif rollouts[0].ended_at is not None:
                await sim.stop()
                return sim
            await sim.advance(5 * MINUTE)
        except Killed:
            await sim.end_processes()
            await sim.restart(away)


def judged(sim: Simulation) -> tuple[Rollout, list[Event]]:
    (rollout,) = sim.disk.registry.rollouts.values()
    events = [event for event in sim.disk.events.values() if event.cause]
    assert {event.cause for event in events} == {step.cause for step in rollout.steps}
    finished = [event for event in events if event.status is Status.FINISHED]
    assert len(finished) == len({event.cause for event in finished}) == len(rollout.steps)
    for event in events:
        assert event.status.over
        for other in events:
            if other.id != event.id and other.group == event.group:
                assert _do_not_overlap(event, other), "one domain of a group at a time, baked"
        beside = [other for other in finished if other.raised_at <= event.raised_at]
        busy = {o.group for o in beside if (o.ended_at or 0) + 5 * MINUTE > event.raised_at}
        assert len(busy | {event.group}) <= 2, "two groups at a time"
    return rollout, events


def _do_not_overlap(one: Event, other: Event) -> bool:
    first, second = sorted((one, other), key=lambda event: event.raised_at)
    bake = 5 * MINUTE if first.status is Status.FINISHED else 0
    return (first.ended_at or 0) + bake <= second.raised_at


def test_a_rollout_that_is_not_killed_finishes_all_steps() -> None:
    sim = asyncio.run(live(Kill()))
    rollout, events = judged(sim)
    assert sim.deaths == 0
    assert len(events) == len(rollout.steps)
    # The first window closes before all is done; the rest is announced for the next.
    assert len({event.span.opens for event in events if event.span is not None}) == 2


def _commits() -> int:
    return len(asyncio.run(live(Kill())).disk.commits)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_kill_around_any_commit_does_not_change_a_rollout(before: bool) -> None:
    whole = _commits()
    assert whole > 25
    for seq in range(1, whole + 1):
        sim = asyncio.run(live(Kill(seq, before=before)))
        judged(sim)
        assert sim.deaths == 1, seq


def test_many_kills_with_outages_do_not_change_a_rollout() -> None:
    sim = asyncio.run(live(Kill(3, often=True), away=HOUR // 6))
    judged(sim)
    assert sim.deaths > 5
