"""Hooks that remove, replace or lock what the agent has written: each stage is run once, with its
outcome, and what was prepared is undone once, also by an agent that is started later."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.config.model import Hook
from forewarn.agent.system import durable
from helpers.agent_loop import AgentLoop
from helpers.agent_model import event

OWN = "$FOREWARN_STATE"
LOOK = 0.02  # seconds between two looks at something that nobody tells us of
DAMAGES = {
    "its own directory is removed": f"cd /; rm -rf {OWN}",
    "its own directory is a file": f"cd /; rm -rf {OWN}; echo > {OWN}",
    "its own directory is a link to nowhere": f"cd /; rm -rf {OWN}; ln -s /nowhere/at-all {OWN}",
    "its own directory is a link to itself": f"cd /; rm -rf {OWN}; ln -s {OWN} {OWN}",
    "its own directory is locked": f"chmod 000 {OWN}",
    "its own directory has a locked one": f"mkdir -p {OWN}/a/b; chmod 000 {OWN}/a",
    "all directories of hooks are removed": "rm -rf STATE/hooks",
    "the run is removed": "rm -rf STATE/cases/*/runs/*",
    "the run is a file": "rm -rf STATE/cases/*/runs/*; echo > STATE/cases/E1.1/runs/FIRST",
    "the run is locked": "chmod 000 STATE/cases/*/runs/*",
    "all runs are removed": "rm -rf STATE/cases/*/runs",
    "all runs are locked": "chmod 000 STATE/cases/*/runs",
    "the case is removed": "rm -rf STATE/cases/*",
    "the case is locked": "chmod 000 STATE/cases/*",
    "all cases are removed": "rm -rf STATE/cases",
    "everything is removed": "rm -rf STATE/*",
    "the output is removed": "echo said; rm STATE/cases/*/runs/*/output",
    "the output never ends": "rm STATE/cases/*/runs/*/output;"
    " ln -s /dev/zero STATE/cases/E1.1/runs/FIRST/output",
    "the output is never written": "rm STATE/cases/*/runs/*/output;"
    " mkfifo STATE/cases/E1.1/runs/FIRST/output",
}


def until(so: Callable[[], Any]) -> bool:
    return any(so() or threading.Event().wait(LOOK) for _ in range(1_000))


def destructive(directory: Path, damage: str) -> Hook:
    script = damage.replace(" STATE/", f" {directory / 'state'}/")
    script = script.replace("FIRST", "000001.prepare.1.hook")
    effects = directory / "effects"
    return Hook(
        name="hook",
        commands={
            "prepare": ("sh", "-c", f"echo prepare >> {effects}; {script}; exit 3"),
            "undo": ("sh", "-c", f"echo undo >> {effects}"),
        },
        stages=("prepare", "undo"),
    )


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_each_stage_is_run_once_whatever_a_hook_does_to_the_state(
    tmp_path: Path, damage: str
) -> None:
    state = tmp_path / "state"
    hook = destructive(tmp_path, damage)

    async def scenario() -> None:
        async with AgentLoop(state, hook) as running:
            running.client.queue.put_nowait((event(),))
            (ended,) = await running.reported("hook ended")
            assert (ended["stage"], ended["outcome"], ended["code"]) == ("prepare", "ended", 3)
            await running.reported("hook given up")
        async with AgentLoop(state, hook) as running:
            running.client.queue.put_nowait(())
            await running.reported("event handled")
            (ended,) = await running.reported("hook ended")
            assert (ended["stage"], ended["ok"]) == ("undo", True)
        assert (tmp_path / "effects").read_text().split() == ["prepare", "undo"]
        assert not list(state.glob("hooks/*"))

    asyncio.run(scenario())


def test_a_run_whose_record_is_removed_is_not_begun_again_while_it_is_at_work(
    tmp_path: Path,
) -> None:
    """Neither by this agent, nor by the next."""
    state, effects, gate = tmp_path / "state", tmp_path / "effects", tmp_path / "gate"
    os.mkfifo(gate)
    script = f"rm -rf {state}/cases/*/runs; echo prepare >> {effects}; read line < {gate}; exit 3"
    hook = Hook(name="hook", commands={"prepare": ("sh", "-c", script)}, stages=("prepare",))

    async def scenario() -> None:
        async with AgentLoop(state, hook) as running:
            running.client.queue.put_nowait((event(),))
            assert await asyncio.to_thread(
                until, lambda: effects.exists() and list(state.glob("cases/*/runs/*/begun"))
            )
            running.client.queue.put_nowait((event(), event("E2", type="Freeze")))
            await running.reported("event seen", 2)
        async with AgentLoop(state, hook) as running:
            running.client.queue.put_nowait((event(),))
            await running.reported("event ended")
            gate.write_text("go on\n")
            (ended,) = await running.reported("hook ended")
            assert ended["code"] == 3
        assert effects.read_text().split() == ["prepare"]

    asyncio.run(scenario())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give up its privileges")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv (util-linux)")
def test_stages_run_once_without_the_privileges_of_root() -> None:
    """Whom nothing is locked from. Tests that lock something are run again as somebody else."""
    words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    test = f"{__file__}::test_each_stage_is_run_once_whatever_a_hook_does_to_the_state"
    again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    options = ["--noconftest", "-k", "locked", "--override-ini=addopts=", test]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins cost more than tests
    done = subprocess.run(
        [*words, *again, *options], capture_output=True, text=True, check=False, env=alone
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_clearing_a_state_directory_removes_locked_files_but_follows_no_links(
    tmp_path: Path,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    room = tmp_path / "room"
    (room / "a" / "b").mkdir(parents=True)
    (room / "link").symlink_to(elsewhere)
    (room / "a").chmod(0)
    durable.remove_tree(room)
    assert not room.exists()
    room.symlink_to(elsewhere)
    durable.remove_tree(room)
    assert not room.is_symlink()
    assert (elsewhere / "file").exists()
