"""A runner is killed with kill -9 at every point around the start and the end of its command. The
command is run again, and never beside itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.agent.config.model import Hook, Rule
from forewarn.agent.running.runners import spawn
from forewarn.agent.state import cases
from forewarn.agent.state.runs import Run, RunState
from forewarn.agent.state.store import StateStore
from forewarn.client.events import Event
from helpers.agent_forker import pids_under
from helpers.agent_model import order
from helpers.paths import HELPERS
from helpers.waiting import until

POINTS = HELPERS / "killed_runner.py"
MOST = 60  # points that one runner could have
EVENT = Event(
    id="E1", type="Reboot", status="Scheduled", resources=("m",), source="Platform", not_before=None
)
# Reports an overlap with another copy of itself. Until the test has killed its runner it waits.
ALONE = "exec 9>>{0}/alone; flock -n 9 || echo overlap >> {0}/effects; echo ran >> {0}/effects"
WAITS = "; [ -e {0}/again ] || sleep 60"
LEADER_ENDS = "; [ -e {0}/again ] || {{ sleep 60 & kill -9 $PPID; exit; }}"


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    for pid in pids_under(tmp_path):
        os.kill(pid, signal.SIGKILL)


class Hooked:
    """One event with one hook, and its runs on disk."""

    def __init__(self, directory: Path, script: str) -> None:
        directory.mkdir(exist_ok=True)
        self.effects = directory / "effects"
        self.store = StateStore(directory / "state")
        command = ("sh", "-c", script.format(directory))
        self.hook = Hook(name="hook", commands={"prepare": command}, stages=("prepare",))
        rule = Rule(name="all", hooks=("hook",))
        now = datetime(2027, 1, 15, 8, tzinfo=UTC)
        self.case = cases.open_case("E1.1", EVENT, rule, (self.hook,), "m", now)
        self.store.save(self.case)

    def order(self, attempt: int) -> Run:
        return order(self.store, self.case, self.hook, "prepare", attempt)

    def directory(self, run: Run) -> Path:
        return self.store.run_directory(self.case.id, run)

    def last(self) -> Run:
        return self.store.runs(self.case.id)[-1]

    def settled(self) -> Run:
        until(lambda: self.last().state != RunState.RUNNING, "nothing is at work")
        return self.last()

    def run_again(self) -> None:
        """As the agent would."""
        self.effects.with_name("again").touch()
        run = self.settled()
        if run.state == RunState.LOST:
            run = self.order(run.attempt + 1)
        if run.state == RunState.ORDERED:
            assert spawn(self.directory(run)).wait() == 0
        assert self.last().succeeded


def killed_at(point: int, directory: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-I", str(POINTS), str(point), str(directory)]
    return subprocess.Popen(words, start_new_session=True)


def test_killed_around_the_start_of_its_command_it_never_runs_beside_itself(
    tmp_path: Path,
) -> None:
    for point in range(1, MOST):
        hooked = Hooked(tmp_path / str(point), ALONE + WAITS)
        run = hooked.order(1)
        with killed_at(point, hooked.directory(run)) as runner:
            started = hooked.directory(run) / "started"
            until(lambda: runner.poll() is not None or started.exists(), "killed or started")  # noqa: B023
            if runner.poll() is None:
                assert point > 10, "hardly anything was ever killed"
                runner.kill()
                hooked.settled()
                return
        hooked.run_again()
        assert "overlap" not in hooked.effects.read_text(), f"killed at {point}"
        hooked.store.release()
    raise AssertionError("there is no end of points")


def test_killed_around_the_end_of_its_command_it_is_run_again_at_most(tmp_path: Path) -> None:
    for point in range(1, MOST):
        hooked = Hooked(tmp_path / str(point), ALONE)
        run = hooked.order(1)
        with killed_at(point, hooked.directory(run)) as runner:
            survived = runner.wait() == 0
        hooked.run_again()
        assert set(hooked.effects.read_text().split()) == {"ran"}, f"killed at {point}"
        hooked.store.release()
        if survived:
            return
    raise AssertionError("there is no end of points")


def test_what_is_left_of_its_group_is_ended_although_the_command_itself_has_ended(
    tmp_path: Path,
) -> None:
    hooked = Hooked(tmp_path, ALONE + LEADER_ENDS)
    spawn(hooked.directory(hooked.order(1))).wait()
    hooked.run_again()
    assert hooked.effects.read_text().split() == ["ran", "ran"]
    hooked.store.release()
