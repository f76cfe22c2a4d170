"""Starting runners, and noticing when they end: those of this life, and those of a life before.

A runner is watched through a pidfd where there is one, and looked at now and then elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from forewarn.support.guard import Tasks, pause

RUNNER = Path(__file__).with_name("runner.py")
# On Windows a console of its own, unseen: its command shares it, and hears Ctrl-Break through it.
OWN_CONSOLE: int = getattr(subprocess, "CREATE_NO_WINDOW", 0)
OWN_CONSOLE |= getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
RUN_LOOK = 0.5  # seconds between two looks at a runner that cannot be watched


def spawn(directory: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: whoever ends the agent does not end it."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(RUNNER), str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=directory,
        start_new_session=True,
        creationflags=OWN_CONSOLE,
    )


class Runners:
    """`ended` is called with the directory of a run whose runner has ended, or may have."""

    def __init__(self, ended: Callable[[Path], None], tasks: Tasks) -> None:
        self._ended = ended
        self._tasks = tasks
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._watched: set[Path] = set()

    def on_its_way(self, directory: Path) -> bool:
        child = self._children.get(directory)
        return child is not None and child.poll() is None

    def start(self, directory: Path) -> None:
        """Raises OSError."""
        child = self._children[directory] = spawn(directory)
        self._watch(directory, child.pid)

    def watch(self, directory: Path, who: Callable[[], int | None]) -> None:
        """Whoever is at work there, if nobody watches it yet."""
        if directory not in self._watched:
            self._watch(directory, who())

    def forget(self, directory: Path) -> None:
        if (child := self._children.pop(directory, None)) is not None:
            child.poll()

    def _watch(self, directory: Path, pid: int | None) -> None:
        self._watched.add(directory)
        try:
            pidfd = -1 if pid is None else os.pidfd_open(pid)
        except (OSError, AttributeError):
            pidfd = -1
        if pidfd < 0:
            self._tasks.start(self._later(directory), f"look at {directory.name}")
            return
        loop = asyncio.get_running_loop()

        def over() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self._over(directory)

        loop.add_reader(pidfd, over)

    async def _later(self, directory: Path) -> None:
        await pause(RUN_LOOK)
        self._over(directory)

    def _over(self, directory: Path) -> None:
        self._watched.discard(directory)
        if (child := self._children.get(directory)) is not None:
            child.poll()
        self._ended(directory)
