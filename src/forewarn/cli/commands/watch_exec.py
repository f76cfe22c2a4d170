"""Runs the command of `forewarn watch --exec` for each change, one after the other, in a thread: a
slow command delays the next one, but not the watching. Its output is passed on, and a failure is
reported."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType

from forewarn.cli.commands.watch_text import ChangeLine
from forewarn.cli.output import say

GRACE = 5.0  # seconds that a command has to end, when the watch ends, before it is killed


class CommandQueue:
    """A queue of changes, and a thread that runs the command for each. With `finish`, commands that
    are still queued at the end are run; otherwise they are dropped."""

    def __init__(self, argv: Sequence[str], *, finish: bool = False) -> None:
        self._argv = list(argv)
        self._finish = finish
        self._queue: queue.SimpleQueue[ChangeLine | None] = queue.SimpleQueue()
        self._running: subprocess.Popen[bytes] | None = None
        self._over = False
        self._thread = threading.Thread(target=self._work, daemon=True)

    def run(self, line: ChangeLine) -> None:
        """Run the command for a change, after those of earlier changes."""
        self._queue.put(line)

    def __enter__(self) -> CommandQueue:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.put(None)
        if self._finish and kind is None:
            self._thread.join()
            return
        self._over = True
        try:
            self._signal(gently=True)
            self._thread.join(GRACE)
        finally:  # also after a second Ctrl-C
            self._signal(gently=False)
            self._thread.join()

    def _signal(self, *, gently: bool) -> None:
        """Stop the running command, and all processes that it has started."""
        if (process := self._running) is None:
            return
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGTERM if gently else signal.SIGKILL)
            else:
                process.terminate()

    def _work(self) -> None:
        while (line := self._queue.get()) is not None:
            if self._over:
                return
            self._run(line)

    def _run(self, line: ChangeLine) -> None:
        what = f"{self._argv[0]} for {line.change.kind} {line.change.event.id[:8]}"
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                env={**os.environ, **environment(line)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            say(f"{what} cannot be run: {error}", err=True)
            return
        self._running = process
        with contextlib.suppress(OSError):  # it need not read its standard input
            process.communicate(line.as_json().encode() + b"\n")
        code = process.wait()
        self._running = None
        if code and not self._over:
            say(f"{what} failed with exit code {code}", err=True)


def environment(line: ChangeLine) -> dict[str, str]:
    """Return the variables for a command: those of an agent's hook, with the change in place of the
    stage."""
    change, event = line.change, line.change.event
    left = event.seconds_left(change.at)
    not_before = event.not_before
    variables = {
        "CHANGE": str(change.kind),
        "MACHINE": line.machine,
        "MINE": "true" if line.mine else "false",
        "EVENT_ID": event.id,
        "EVENT_TYPE": event.type,
        "EVENT_STATUS": event.status,
        "EVENT_SOURCE": event.source,
        "EVENT_RESOURCES": " ".join(event.resources),
        "EVENT_NOT_BEFORE": f"{not_before:%Y-%m-%dT%H:%M:%SZ}" if not_before else "",
        "EVENT_DESCRIPTION": event.description,
        "EVENT_DURATION": "" if event.duration is None else str(event.duration),
        "SECONDS_LEFT": "" if left is None else str(max(0, int(left))),
    }
    return {f"FOREWARN_{name}": value for name, value in variables.items()}
