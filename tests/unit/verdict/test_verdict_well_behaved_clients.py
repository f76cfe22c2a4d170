"""Whoever behaves well is never accused, whatever happens to it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.verdict_model import LASTS, MACHINES, NOTICES, World, rules

TROUBLES: tuple[dict[str, Any], ...] = (
    {"status": 500, "fault": "error"},
    {"status": 429},
    {"status": None, "fault": "stall", "took": 8.0},
    {"status": 200, "answer": "", "fault": "empty"},
)


class Careful:
    """Asks once a second, approves what it has prepared for, sits pauses out, comes back after a
    restart, tries again after a bad answer."""

    def __init__(self, world: World, machine: str, chance: random.Random) -> None:
        self.world, self.machine, self.chance = world, machine, chance
        self.away = 0.0  # until then
        self.approved: set[str] = set()
        self.since: dict[str, float] = {}

    def tick(self, trouble: dict[str, Any] | None) -> None:
        world = self.world
        if world.t < self.away:
            return
        shown = world.poll(self.machine, **(trouble or {}))
        if trouble:
            if trouble.get("status") in (429, 410):
                self.away = world.t + self.chance.choice((2, 5, 60))
            return
        for event in shown:
            if self.machine not in event["Resources"]:
                continue
            id, type = event["EventId"], event["EventType"]
            if event["EventStatus"] == "Started":
                if type in ("Preempt", "Terminate"):
                    self.away = float("inf")
                elif type != "Freeze":
                    self.away = world.t + LASTS + self.chance.choice((0, 10, 200))
            elif type != "Freeze" and id not in self.approved:
                seen = self.since.setdefault(id, world.t)
                if world.t - seen > self.chance.choice((3, 20, 1_000)):
                    self.approved.add(id)
                    world.approve(self.machine, id)


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 2**32), events=st.booleans(), real=st.booleans(), winds=st.booleans())
def test_a_well_behaved_client_has_no_complaints(
    seed: int, events: bool, real: bool, winds: bool
) -> None:
    chance = random.Random(seed)
    # Where the clock is wound a recording has to say so, or it would look like neglect.
    world = World(events=events, real=real or winds, spot=("web_2",))
    clients = [Careful(world, machine, chance) for machine in MACHINES]
    trouble: dict[str, Any] | None = None
    for _ in range(250):
        match chance.randrange(60):
            case 0 | 1:
                type = chance.choice(list(NOTICES))
                world.raise_(type, chance.choice(MACHINES), listed=chance.random() < 0.9)
            case 2:
                world.strike("Redeploy", chance.choice(MACHINES))
            case 3 if world.events:
                id = chance.choice(list(world.events))
                if world.events[id]["status"] == "Scheduled":
                    world.end(id, "withdraw")
            case 4:
                trouble = chance.choice(TROUBLES)
            case 5 | 6 | 7:
                trouble = None
            case 8 if winds:
                world.wind(chance.choice((10, 60, 900)))
            case 9:
                world.tell("down")
                world.wait(chance.choice((1, 200)))
                world.tell("up")
        for client in clients:
            client.tick(trouble)
        world.wait(chance.choice((0.9, 1.0, 1.3)))
    verdict = world.verdict()
    assert rules(verdict) <= {"no-reaction"}, str(verdict)  # it may let the notice pass


@pytest.mark.parametrize("reported", [True, False])
def test_documents_alone_give_the_same_course(reported: bool) -> None:
    world = World(events=reported, real=False)
    world.poll("web_0")
    id = world.raise_("Reboot", "web_0")
    world.poll("web_0")
    world.wait(100)
    world.approve("web_0", id)
    world.poll("web_0")
    world.wait(LASTS)
    world.poll("web_0")
    course = world.verdict().course("web_0", id)
    visible = world.t - 100 - LASTS
    assert (course.type, course.concerned, course.visible) == ("Reboot", True, visible)
    assert (course.notice, course.seen_after, course.in_time) == (900, 0, True)
    assert course.statuses == ("Scheduled", "Started")
    assert (course.approved, course.approved_by) == (visible + 100, "web_0")
    assert (course.started, course.started_by) == (visible + 100, "approval")
    assert (course.over, course.ending) == (visible + 100 + LASTS, "finished")
    assert world.verdict().ok


def test_an_approval_counts_from_the_start_it_causes() -> None:
    """Not from its answer, which comes a moment later."""
    world = World()
    world.poll()
    id = world.raise_("Reboot", "web_0")
    world.poll()
    asked = world.t
    world.approve("web_0", id, took=0.25)
    event = next(one for one in world.verdict().courses if one.machine == "web_0")
    assert (event.started, event.approved, event.approved_by) == (asked, asked, "web_0")
