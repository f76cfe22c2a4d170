"""The recipe examples/hooks/checkpoint with a real job: of the work that was done before the hook
began nothing is lost, and what comes out in the end is what would have come out anyway."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.hook_recipes import PATH, RECIPES, Recipe
from helpers.waiting import LIMIT, until

JOB = RECIPES / "checkpoint" / "job.py"
FAR = 1_000_000


class Job:
    """The job's directory, as somebody sees it who looks at what it prints."""

    def __init__(self, directory: Path) -> None:
        self.lock = directory / "job.pid"
        self.log = directory / "job.log"
        self.checkpoint = directory / "checkpoint.json"
        self.result = directory / "result"
        self.directory = directory

    @property
    def pid(self) -> int:
        return int(self.lock.read_text())

    @property
    def output(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def at(self) -> int:
        steps = [line for line in self.output if line.startswith("at ")]
        return int(steps[-1].removeprefix("at ")) if steps else 0

    @property
    def went_on_from(self) -> list[int]:
        return [int(line.split()[-1]) for line in self.output if line.startswith("goes on")]

    def runs(self) -> bool:
        with self.lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def works(self) -> int:
        before = self.at
        until(lambda: self.at > before + 3, "the job goes on")
        return self.at

    def start(self, goal: int) -> int:
        """As somebody starts it by hand; how far it is."""
        with self.log.open("ab") as log:
            argv = ["/usr/bin/env", f"PATH={PATH}", str(JOB), str(self.directory), str(goal)]
            self.first = subprocess.Popen(argv, stdout=log, stderr=log)
        return self.works()

    def close(self) -> None:
        self.first.kill()
        self.first.wait()
        if self.runs():
            until(self.lock.read_text, "the job has written its number")
            with contextlib.suppress(ProcessLookupError):  # it has finished just now
                os.kill(self.pid, signal.SIGKILL)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with contextlib.closing(Job(tmp_path)) as job:
        yield job


@pytest.fixture
def hook(job: Job) -> Recipe:
    return Recipe(
        "checkpoint/checkpoint.py",
        job.directory / "state",
        "batch_0",
        JOB_LOCK=job.lock,
        JOB_CHECKPOINT=job.checkpoint,
        JOB_CHECK=f"'{JOB}' --check",
        JOB_START=f"'{JOB}' {job.directory} {FAR}",
    )


def test_a_job_goes_on_from_a_checkpoint_that_was_taken_after_the_hook_began(
    job: Job, hook: Recipe
) -> None:
    before = job.start(FAR)
    assert f"job {job.pid} is stopped" in hook.ok("prepare")
    assert job.first.wait(LIMIT) == 0
    assert "not run" in hook.ok("prepare")
    goal = job.at + 20
    hook.env["JOB_START"] = f"'{JOB}' {job.directory} {goal}"
    assert "started again" in hook.ok("undo")
    assert "no job ran" in hook.ok("undo")
    until(job.result.exists, "the job has finished")
    assert job.went_on_from[0] == 1
    assert job.went_on_from[1] >= before, "nothing that was done before is done again"
    assert job.result.read_text() == str(sum(range(goal + 1)))


def test_through_a_freeze_the_job_is_left_running_with_a_checkpoint(job: Job, hook: Recipe) -> None:
    before = job.start(FAR)
    output = hook.ok("prepare", FOREWARN_EVENT_TYPE="Freeze")
    assert "left running" in output
    at = re.search(r"whole checkpoint, at (\d+)", output)
    assert at
    assert int(at[1]) >= before
    assert job.works() > before
    assert hook.ok("undo").strip() == "the job runs"
    assert len(job.went_on_from) == 1


def test_a_hook_that_is_killed_while_it_waits_leaves_the_job_to_run_or_to_be_started(
    job: Job, hook: Recipe
) -> None:
    job.start(FAR)
    os.kill(job.pid, signal.SIGSTOP)
    waiting = hook.begin("prepare")
    assert "for a checkpoint" in waiting.line()
    hook.kill(waiting)
    os.kill(job.pid, signal.SIGCONT)
    until(job.checkpoint.exists, "the job answers, if late")
    assert hook.ok("undo").strip() == "the job runs"
    os.kill(job.pid, signal.SIGSTOP)
    waiting = hook.begin("prepare", "B")
    assert "for a checkpoint" in waiting.line()
    hook.kill(waiting)
    job.first.kill()  # the machine dies with it
    job.first.wait(LIMIT)
    assert "started again" in hook.ok("undo", "B")
    job.works()


def test_a_hook_that_cannot_stop_the_job_safely_leaves_it_running(job: Job, hook: Recipe) -> None:
    assert "no job ran" in hook.ok("undo")
    assert "not run" in hook.ok("prepare")
    assert "no job ran" in hook.ok("undo")
    job.start(FAR)
    assert "this machine" in hook.ok("prepare", FOREWARN_MINE="false")
    assert "JOB_START" in hook.fails("prepare", JOB_START="")
    check = "sh -c 'echo not whole; false'"
    assert ": not whole" in hook.fails("prepare", JOB_CHECK=check)
    os.kill(job.pid, signal.SIGSTOP)
    late = hook.fails("prepare", FOREWARN_SECONDS_LEFT="6")
    assert "wrote no new" in late
    assert "left running" in late
    os.kill(job.pid, signal.SIGCONT)
    job.works()
    assert hook.ok("undo").strip() == "the job runs"


def test_a_job_that_has_finished_meanwhile_is_not_started_again(job: Job, hook: Recipe) -> None:
    job.start(300)
    os.kill(job.pid, signal.SIGSTOP)
    waiting = hook.begin("prepare", FOREWARN_EVENT_TYPE="Freeze")
    assert "for a checkpoint" in waiting.line()
    os.kill(job.pid, signal.SIGCONT)
    assert waiting.wait() == 0
    assert job.first.wait(LIMIT) == 0
    assert "has finished" in hook.ok("undo")
    assert job.result.read_text() == str(sum(range(301)))


def test_a_checkpoint_that_is_damaged_starts_nothing(job: Job, hook: Recipe) -> None:
    job.start(FAR)
    by_command = {"JOB_ASK": f"kill -USR1 {job.pid}", "JOB_STOP": f"kill {job.pid}"}
    assert "is stopped" in hook.ok("prepare", **by_command)
    job.first.wait(LIMIT)
    whole = job.checkpoint.read_text()
    job.checkpoint.write_text(whole.replace('"sum": ', '"sum": 1'))
    assert "no whole checkpoint" in hook.fails("undo")
    job.checkpoint.write_text(whole)
    assert "started again" in hook.ok("undo")


SLOW_LOOKS = """
import fcntl, time

flock = fcntl.flock


def look(file, how):
    flock(file, how)
    if how & fcntl.LOCK_SH:
        time.sleep(0.3)


fcntl.flock = look
"""


def test_a_job_that_is_started_is_not_kept_from_its_lock(
    job: Job, hook: Recipe, tmp_path: Path
) -> None:
    job.start(FAR)
    hook.ok("prepare")
    job.first.wait(LIMIT)
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(SLOW_LOOKS)
    assert "started again" in hook.ok("undo", PYTHONPATH=str(slow))
