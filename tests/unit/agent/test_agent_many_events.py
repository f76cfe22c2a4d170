"""Many events that share one hook: twice as many are twice the work, not four times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.agent import Agent
from forewarn.agent.config.model import Config, Rule
from forewarn.agent.running.dry_run import DryRunners, MemoryStore
from forewarn.agent.state import store as state_store
from forewarn.agent.state.runs import Result, Run
from forewarn.agent.state.store import StateStore
from helpers.agent_loop import HOOK, ScriptedClient
from helpers.agent_model import a_case, event, hook, order

NEARLY = 1.1  # what is done once, however many there are


class Counting(MemoryStore):
    """Counts how often the runs of a case are read."""

    reads = 0

    def runs(self, case_id: str) -> tuple[Run, ...]:
        self.reads += 1
        return super().runs(case_id)


def reads_for(events: int) -> int:
    """From when they are first listed until all are put back."""
    lines: list[str] = []
    all_of = {"would approve": asyncio.Event(), "event handled": asyncio.Event()}

    def log(what: str, /, **_facts: Any) -> None:
        lines.append(what)
        if what in all_of and lines.count(what) == events:
            all_of[what].set()

    async def scenario() -> int:
        client, store = ScriptedClient(), Counting()
        rules = (Rule(name="all", hooks=("hook",), approve="when-done"),)
        config = Config(state=Path("/nowhere"), rules=rules, hooks={"hook": HOOK})
        runners = DryRunners(store, log)
        agent = Agent(config, client, store, lambda _on_end, _tasks: runners, log, dry_run=True)
        task = asyncio.get_running_loop().create_task(agent.run())
        client.queue.put_nowait(tuple(event(f"E{number}") for number in range(events)))
        async with asyncio.timeout(60):
            await all_of["would approve"].wait()
            client.queue.put_nowait(())
            await all_of["event handled"].wait()
        task.cancel()
        await asyncio.wait([task])
        return store.reads

    reads = asyncio.run(scenario())
    assert lines.count("would run") == 2 * events
    return reads


@pytest.mark.parametrize("events", [20, 100])
def test_twice_as_many_events_on_one_hook_are_twice_the_work(events: int) -> None:
    assert reads_for(2 * events) <= 2 * NEARLY * reads_for(events)


def test_a_run_that_has_ended_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    reading = state_store._read_result

    def counting(directory: Path) -> Result | None:
        read.append(directory)
        return reading(directory)

    monkeypatch.setattr(state_store, "_read_result", counting)
    store = StateStore(tmp_path)
    case = a_case(hook("a"))
    store.save(case)
    for attempt in (1, 2, 3):
        run = order(store, case, case.hooks[0], "prepare", attempt)
        assert store.cancel(case.id, run)
        for _ in range(5):
            assert not any(run.active for run in store.runs(case.id))
    assert len(read) == 3
    store.release()
