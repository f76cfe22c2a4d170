"""The agent is killed with kill -9 at every step at which something becomes durable or happens
outside, is started again, and every hook takes effect exactly once all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from forewarn.testing import Event, Service
from helpers.forked_agent import AgentForks, Bench, living
from helpers.waiting import until

MOST = 200  # points at which one story could be killed


@pytest.fixture(scope="module")
def lives() -> Iterator[AgentForks]:
    with living() as lives:
        yield lives


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


def finished(event: Event, bench: Bench) -> list[str]:
    """Approved by the agent, carried out, and over."""
    until(lambda: event.status == "Started", "Started")
    until(lambda: bench.has("hook started"), "the started stage")
    event.finish()
    return ["hook prepare", "hook started", "hook undo"]


def withdrawn(event: Event, bench: Bench) -> list[str]:
    until(lambda: bench.has("hook prepare"), "the prepare stage")
    event.cancel()
    return ["hook prepare", "hook undo", "hook withdrawn"]


def rule(approve: str, stages: str) -> str:
    commands = "".join(f"{stage} = EFFECT\n" for stage in stages.split())
    return f'[[rule]]\nhooks = ["hook"]\napprove = "{approve}"\n[hook.hook]\n{commands}'


@pytest.mark.parametrize(
    ("progress", "approve", "stages"),
    [
        (finished, "when-done", "prepare undo started"),
        (withdrawn, "never", "prepare undo withdrawn"),
    ],
)
def test_killed_at_every_step_each_stage_takes_effect_exactly_once(
    lives: AgentForks,
    service: Service,
    tmp_path: Path,
    progress: Callable[[Event, Bench], list[str]],
    approve: str,
    stages: str,
) -> None:
    machine = service.machine(progress.__name__)
    for point in range(1, MOST):
        bench = Bench(tmp_path / str(point), machine.url).says(rule(approve, stages))
        event = machine.schedule("Reboot")
        life = lives.begin(bench.config, point)
        try:
            expected = progress(event, bench)
            until(bench.closed, "the case is closed")
            killed = life.end()["killed"]
        except AssertionError as error:
            raise AssertionError(f"killed at {point}: {error}\n{life.log}") from None
        assert bench.effects() == expected, f"killed at {point}"
        if not killed:
            assert point > 20, "hardly anything was ever killed"
            return
    raise AssertionError("the progress never ends")


def test_an_agent_killed_at_every_turn_still_finishes_its_event(
    lives: AgentForks, service: Service, tmp_path: Path
) -> None:
    """Every one of its lives ends after a few steps."""
    machine = service.machine("again")
    bench = Bench(tmp_path, machine.url).says(rule("when-done", "prepare undo started"))
    event = machine.schedule("Reboot")
    life = lives.begin(bench.config, 5, again=True)
    assert finished(event, bench) == ["hook prepare", "hook started", "hook undo"]
    until(bench.closed, "the case is closed")
    assert life.end()["killed"] > 5
    assert bench.effects() == ["hook prepare", "hook started", "hook undo"]


def test_killed_with_the_whole_machine_each_stage_takes_effect_at_least_once_and_in_order(
    lives: AgentForks, service: Service, tmp_path: Path
) -> None:
    machine = service.machine("machine")
    for point in range(2, MOST, 3):
        bench = Bench(tmp_path / str(point), machine.url)
        bench.says(rule("when-done", "prepare undo started"))
        event = machine.schedule("Reboot")
        life = lives.begin(bench.config, point, machine=True)
        expected = finished(event, bench)
        until(bench.closed, "the case is closed")
        killed = life.end()["killed"]
        assert [stage for stage, _ in groupby(bench.effects())] == expected, f"killed at {point}"
        if not killed:
            return
    raise AssertionError("the progress never ends")
