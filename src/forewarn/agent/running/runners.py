"""Ordering runs, starting their runners, and noticing when these end: runners of this process, and
those that an earlier agent process has left.

What is ordered is on disk before a runner is started. A runner is watched through a pidfd where
there are pidfds, and checked now and then elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.ports import StartResult
from forewarn.agent.running.command import build_order
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run, RunOrder
from forewarn.agent.state.store import StateStore
from forewarn.support.guard import Tasks, monotonic, pause

RUNNER = Path(__file__).with_name("runner.py")
# On Windows a hidden console of its own, which its command shares: Ctrl-Break reaches both.
OWN_CONSOLE: int = getattr(subprocess, "CREATE_NO_WINDOW", 0)
OWN_CONSOLE |= getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
CHECK_PAUSE = 0.5  # seconds between two checks of a runner that cannot be watched
START_PAUSE = 1.0  # seconds before a runner that did not even begin is started again
BEGUN_WITHIN = 1.0  # seconds after which to check whether a runner that was started has begun


_spawned: list[
    subprocess.Popen[bytes]
] = []  # until they have ended, also if `Runners` has forgotten them


def spawn(run_directory: Path) -> subprocess.Popen[bytes]:
    """Start a runner in a session of its own, so that it outlives the agent."""
    _spawned[:] = [child for child in _spawned if child.poll() is None]
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", str(RUNNER), str(run_directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=run_directory,
        start_new_session=True,
        creationflags=OWN_CONSOLE,
    )
    _spawned.append(child)
    return child


class Runners:
    def __init__(self, store: StateStore, on_end: Callable[[str], None], tasks: Tasks) -> None:
        """`on_end` is called with the ID of a case whose runner has ended, or may have."""
        self._store = store
        self._on_end = on_end
        self._tasks = tasks
        self._ordered: set[Path] = set()  # directories of runs that were never started
        self._started: dict[Path, float] = {}  # when runners were started last
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._watched: set[Path] = set()

    def order(self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None) -> Run:
        """Record a new run, which has to end within `left` seconds, if that is given."""
        order = self._build_order(case, hook, stage, attempt, left)
        run = self._store.order(case.id, hook.name, stage, attempt, order)
        self._ordered.add(self._store.run_directory(case.id, run))
        return run

    def start(self, case: Case, hook: Hook, run: Run, left: float | None) -> StartResult:
        """Start a runner unless one is about to begin the run, or was started a moment ago. Raises
        OSError if none can be started."""
        directory = self._store.run_directory(case.id, run)
        if directory not in self._ordered:
            if self._has_child(directory):
                return StartResult(started=False, check_at=monotonic() + BEGUN_WITHIN)
            not_before = self._started.get(directory, 0.0) + START_PAUSE
            if monotonic() < not_before:
                return StartResult(started=False, check_at=not_before)
            order = self._build_order(case, hook, run.stage, run.attempt, left)
            self._store.rewrite_order(case.id, run, order)
        self._started = {directory: monotonic()} | {
            other: at for other, at in self._started.items() if monotonic() - at < START_PAUSE
        }
        child = self._children[directory] = spawn(directory)
        self._watch(directory, child.pid)
        self._ordered.discard(directory)
        return StartResult(started=True, check_at=monotonic() + BEGUN_WITHIN)

    def watch(self, case_id: str, run: Run) -> None:
        """Watch the runner of a run, if it is not watched yet."""
        directory = self._store.run_directory(case_id, run)
        if directory not in self._watched:
            self._watch(directory, self._store.runner_pid(case_id, run))

    def forget(self, case_id: str) -> None:
        """Release the processes of a case that is closed."""
        for run in self._store.runs(case_id):
            child = self._children.pop(self._store.run_directory(case_id, run), None)
            if child is not None:
                child.poll()

    def _build_order(
        self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None
    ) -> RunOrder:
        directory = self._store.hook_directory(case.id, hook.name)
        until = None if left is None else monotonic() + left
        return build_order(case, hook, stage, attempt, directory, until)

    def _has_child(self, directory: Path) -> bool:
        child = self._children.get(directory)
        return child is not None and child.poll() is None

    def _watch(self, directory: Path, pid: int | None) -> None:
        self._watched.add(directory)
        try:
            pidfd = -1 if pid is None else os.pidfd_open(pid)
        except (OSError, AttributeError):
            pidfd = -1
        if pidfd < 0:
            self._tasks.start(self._check_later(directory), f"check {directory.name}")
            return
        loop = asyncio.get_running_loop()

        def on_exit() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self._ended(directory)

        loop.add_reader(pidfd, on_exit)

    async def _check_later(self, directory: Path) -> None:
        await pause(CHECK_PAUSE)
        self._ended(directory)

    def _ended(self, directory: Path) -> None:
        self._watched.discard(directory)
        if (child := self._children.get(directory)) is not None:
            child.poll()
        self._on_end(self._store.case_of(directory))
