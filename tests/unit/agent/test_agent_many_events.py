"""Many events that share one hook: twice as many are twice the work, not four times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.agent import Agent
from forewarn.agent.config.model import Config, Rule
from forewarn.agent.running.dry_run import DryRunExecutor
from forewarn.agent.state import store
from forewarn.agent.state.runs import Result, Run
from forewarn.agent.state.store import StateStore
from helpers.agent_loop import HOOK, Told
from helpers.agent_world import a_case, event, hook

NEARLY = 1.1  # what is done once, however many there are


class Counting(DryRunExecutor):
    """Runs nothing, and counts how often somebody looks at the runs of a case."""

    looks = 0

    def runs(self, case_id: str) -> tuple[Run, ...]:
        self.looks += 1
        return super().runs(case_id)


def looks_for(events: int) -> int:
    """From when they are first listed until all are put back."""
    lines: list[str] = []
    all_of = {"would approve": asyncio.Event(), "event done": asyncio.Event()}

    def tell(what: str, **_facts: Any) -> None:
        lines.append(what)
        if what in all_of and lines.count(what) == events:
            all_of[what].set()

    async def scenario() -> int:
        client, desk = Told(), Counting(tell)
        rules = (Rule(name="all", hooks=("hook",), approve="when-done"),)
        config = Config(state=Path("/nowhere"), rules=rules, hooks={"hook": HOOK})
        agent = Agent(config, client, lambda _ended, _tasks: desk, tell, dry=True)
        task = asyncio.get_running_loop().create_task(agent.run())
        client.queue.put_nowait(tuple(event(f"E{number}") for number in range(events)))
        async with asyncio.timeout(60):
            await all_of["would approve"].wait()
            client.queue.put_nowait(())
            await all_of["event done"].wait()
        task.cancel()
        await asyncio.wait([task])
        return desk.looks

    looks = asyncio.run(scenario())
    assert lines.count("would run") == 2 * events
    return looks


@pytest.mark.parametrize("events", [20, 100])
def test_twice_as_many_events_on_one_hook_are_twice_the_work(events: int) -> None:
    assert looks_for(2 * events) <= 2 * NEARLY * looks_for(events)


def test_a_run_that_has_ended_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    reading = store._result

    def counting(directory: Path) -> Result | None:
        read.append(directory)
        return reading(directory)

    monkeypatch.setattr(store, "_result", counting)
    shelf = StateStore(tmp_path)
    case = a_case(hook("a"))
    shelf.put(case)
    for attempt in (1, 2, 3):
        run = shelf.order(case, case.hooks[0], "prepare", attempt, None)
        assert shelf.cancel(case.id, run)
        for _ in range(5):
            assert not any(run.active for run in shelf.runs(case.id))
    assert len(read) == 3
    shelf.release()
