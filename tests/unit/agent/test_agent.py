"""The agent's loop with a client that says what it is told to: what is seen, what comes back, and
what happens when the state cannot be written or the endpoint is away."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.approval.coordinate import Coordination, CoordinationError, SharedDirectory
from forewarn.agent.config.model import Hook
from forewarn.agent.planning import attempts, plan
from forewarn.agent.telemetry.status import status_view
from helpers.agent_loop import AgentLoop, ScriptedClient
from helpers.agent_model import BEGINNING, event


def test_an_id_that_comes_back_is_another_case(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AgentLoop(tmp_path) as running:
            for times in (1, 2):
                running.client.queue.put_nowait((event(),))
                await running.reported("hook ended", 2 * times - 1)
                running.client.queue.put_nowait(())
                await running.reported("event handled", times)
            ended = await running.reported("hook ended")
            assert [facts["stage"] for facts in ended] == ["prepare", "undo"] * 2
            assert {case.id for case in running.agent.cases} == {"E1.1", "E1.2"}

    asyncio.run(scenario())


def test_an_approval_that_is_refused_is_tried_again_until_not_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AgentLoop(tmp_path, approve="when-done") as running:
            running.client.refuses = 1
            running.client.queue.put_nowait((event(),))
            await running.reported("approved")
            assert len(await running.reported("approval failed")) == 1
            assert running.client.approved == ["E1"]
            running.client.refuses = 1
            running.client.queue.put_nowait((event(), event("E2")))
            await running.reported("approval failed", 2)
            running.client.at += timedelta(minutes=15)
            running.client.queue.put_nowait(())
            await running.reported("event handled", 2)
            assert running.client.approved == ["E1"]
            over = await running.reported("event ended")
            assert [facts["outcome"] for facts in over] == ["finished", "finished"]

    asyncio.run(scenario())


def test_a_failure_is_logged_with_its_output_and_when_it_is_given_up(tmp_path: Path) -> None:
    commands: dict[Any, tuple[str, ...]] = {"prepare": ("sh", "-c", "echo no room; exit 3")}
    fails = Hook(name="hook", commands=commands, stages=("prepare",), retries=1)

    async def scenario() -> None:
        async with AgentLoop(tmp_path, fails, approve="when-done") as running:
            running.client.queue.put_nowait((event(),))
            (given_up,) = await running.reported("hook given up")
            assert (given_up["stage"], given_up["attempt"]) == ("prepare", 2)
            ended = await running.reported("hook ended")
            output = [(one["ok"], one["code"], one["output"]) for one in ended]
            assert output == [(False, 3, "no room")] * 2
            assert running.client.approved == []

    asyncio.run(scenario())


def test_an_event_without_a_matching_rule_is_logged_once_and_ignored(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AgentLoop(tmp_path, type=("Freeze",)) as running:
            for _ in range(3):
                running.client.queue.put_nowait((event(),))
            running.client.queue.put_nowait((event(), event("E2", type="Freeze")))
            await running.reported("hook ended")
            seen = await running.reported("event seen")
            assert [(facts["event"], facts["rule"]) for facts in seen] == [
                ("E1", None),
                ("E2", "all"),
            ]

    asyncio.run(scenario())


def test_a_state_that_cannot_be_written_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with AgentLoop(tmp_path) as running:
            save, full = running.store.save, True

            def fails(case: Any) -> None:
                if full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                save(case)

            monkeypatch.setattr(running.store, "save", fails)
            running.client.queue.put_nowait((event(),))
            (trouble,) = await running.reported("problem")
            assert os.strerror(errno.ENOSPC) in trouble["why"]
            assert running.agent.cases == ()
            full = False
            running.client.queue.put_nowait((event(),))
            await running.reported("hook ended")
            assert len(await running.reported("problem resolved")) == 1

    asyncio.run(scenario())


def test_an_event_that_cannot_be_saved_does_not_block_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with AgentLoop(tmp_path) as running:
            save = running.store.save

            def putting(case: Any) -> None:
                if case.event.id == "E1":
                    raise OSError(5, "Input/output error")
                save(case)

            monkeypatch.setattr(running.store, "save", putting)
            running.client.queue.put_nowait((event("E1"), event("E2")))
            (ended,) = await running.reported("hook ended")
            assert ended["event"] == "E2"
            assert [facts["about"] for facts in await running.reported("problem")] == ["cases"]

    asyncio.run(scenario())


def test_undos_run_while_the_endpoint_is_unreachable(tmp_path: Path) -> None:
    """And nothing else: whether an event is still listed nobody knows."""

    async def scenario() -> None:
        async with AgentLoop(tmp_path) as running:
            running.client.queue.put_nowait((event(), event("E2")))
            await running.reported("hook ended", 2)
        running = AgentLoop(tmp_path)
        first = next(case for case in running.agent.cases if case.event.id == "E1")
        later = next(case for case in running.agent.cases if case.event.id == "E2")
        running.client.there = False
        running.agent._cases.change(later.id, over="withdrawn", over_at=BEGINNING)
        async with running:
            await running.reported("event handled")
            ended = await running.reported("hook ended")
            assert [(facts["event"], facts["stage"]) for facts in ended] == [("E2", "undo")]
            assert not running.agent._cases.progress(first).runs_of("hook", "undo")

    asyncio.run(scenario())


def test_prepared_hooks_are_undone_even_if_the_state_is_removed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with AgentLoop(tmp_path / "state") as running:
            running.client.queue.put_nowait((event(),))
            await running.reported("hook ended")
            shutil.rmtree(tmp_path / "state")
            running.client.queue.put_nowait(())
            await running.reported("event handled")
            ended = await running.reported("hook ended", 2)
            assert [facts["stage"] for facts in ended] == ["prepare", "undo"]

    asyncio.run(scenario())


def test_an_event_that_an_older_version_does_not_list_is_not_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AgentLoop(tmp_path) as running:
            running.client.queue.put_nowait((event(type="Terminate"), event("E2")))
            await running.reported("hook ended", 2)
            running.client.hidden = frozenset({"Terminate"})
            running.client.queue.put_nowait(())
            (over,) = await running.reported("event handled")
            assert over["event"] == "E2"

    asyncio.run(scenario())


def test_readiness_that_the_service_lost_is_reported_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AgentLoop(tmp_path, approve="coordinated") as running:
            running.client.ready_ones = set()
            running.client.queue.put_nowait((event(resources=("web_0", "web_1")),))
            await running.reported("ready")
            running.client.ready_ones = {"web_1"}  # the service came back without its state
            await running.reported("ready", 2)
            await running.reported("approved")

    asyncio.run(scenario())


def test_a_hanging_shared_directory_does_not_block_the_agent() -> None:
    async def scenario() -> None:
        held = threading.Event()
        together = Coordination(ScriptedClient(), Path("/nowhere"), 0.01)
        try:
            for _ in range(3):
                with pytest.raises(CoordinationError, match="does not answer"):
                    await together._run_in_thread(held.wait)
        finally:
            held.set()

    asyncio.run(scenario())


def test_readiness_is_kept_in_directories_with_the_mode_of_the_shared_one(tmp_path: Path) -> None:
    shared = SharedDirectory(tmp_path)
    tmp_path.chmod(0o2770)
    shared.report_ready("E1", "web_0", BEGINNING)
    assert (tmp_path / "E1").stat().st_mode & 0o7777 == 0o2770
    assert shared.waiting("E1", ["web_0", "web_1"]) == ("web_1",)
    shared.report_ready("E1", "web_1", BEGINNING)
    assert shared.waiting("E1", ["web_0", "web_1"]) == ()
    shared.forget("E1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("strange", ["../x", "a/b", ".hidden", "", "x" * 200, "a\0b"])
def test_an_unusual_name_never_becomes_a_file(tmp_path: Path, strange: str) -> None:
    shared = SharedDirectory(tmp_path / "shared")
    with pytest.raises(CoordinationError, match="file name"):
        shared.report_ready(strange, "web_0", BEGINNING)
    with pytest.raises(CoordinationError, match="file name"):
        shared.waiting("E1", [strange])
    shared.forget(strange)
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_runner_is_reported_with_a_remedy_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "OVERDUE", 0.0)
    commands: dict[Any, tuple[str, ...]] = {"prepare": ("sh", "-c", "kill -STOP $PPID")}
    stops = Hook(name="hook", commands=commands, stages=("prepare",), timeout=1.0)

    async def scenario() -> None:
        async with AgentLoop(tmp_path, stops) as running:
            running.client.queue.put_nowait((event(),))
            (overdue,) = await running.reported("hook overdue")
            process = overdue["process"]
            assert f"kill -CONT {process}" in overdue["why"]
            seen = running.agent.status()
            assert seen.overdue == 1
            assert [run.state for case in status_view(seen).cases for run in case.runs] == [
                "overdue"
            ]
            os.kill(process, signal.SIGCONT)
            await running.reported("hook ended")
            assert running.agent.status().overdue == 0
            assert len(await running.reported("hook overdue")) == 1

    asyncio.run(scenario())


def test_an_undo_that_is_given_up_is_logged_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "UNDO_ATTEMPTS", 1)
    commands: dict[Any, tuple[str, ...]] = {
        "prepare": ("sh", "-c", "echo kept > file"),
        "undo": ("false",),
    }
    fails = Hook(name="hook", commands=commands, stages=("prepare", "undo"))

    async def scenario() -> None:
        async with AgentLoop(tmp_path, fails) as running:
            running.client.queue.put_nowait((event(),))
            await running.reported("hook ended")
            running.client.queue.put_nowait(())
            (given_up,) = await running.reported("hook given up")
            await running.reported("event handled")
            says.append(given_up["why"])

    says: list[str] = []
    asyncio.run(scenario())
    assert "by hand" in says[0]
    assert Path(says[0].rpartition(" ")[2], "file").read_text() == "kept\n"
