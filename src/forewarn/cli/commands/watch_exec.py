"""A command for each change, one after the other, beside the watch: a slow one delays the next, but
nobody stops looking. What it says goes through; that it failed is said."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType

from forewarn.cli.commands.watch_text import ChangeLine
from forewarn.cli.output import say

GRACE = 5.0  # seconds for a command to end when the watch does, until it is killed


class CommandQueue:
    """`finish`: whoever is left at the end is run all the same."""

    def __init__(self, argv: Sequence[str], *, finish: bool = False) -> None:
        self._argv = list(argv)
        self._finish = finish
        self._left: queue.SimpleQueue[ChangeLine | None] = queue.SimpleQueue()
        self._running: subprocess.Popen[bytes] | None = None
        self._over = False
        self._thread = threading.Thread(target=self._work, daemon=True)

    def run(self, told: ChangeLine) -> None:
        """When its turn comes."""
        self._left.put(told)

    def __enter__(self) -> CommandQueue:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.put(None)
        if self._finish and kind is None:
            self._thread.join()
            return
        self._over = True
        try:
            self._signal(gently=True)
            self._thread.join(GRACE)
        finally:  # also for whoever presses Ctrl-C once more
            self._signal(gently=False)
            self._thread.join()

    def _signal(self, *, gently: bool) -> None:
        """To it and to whatever it has started."""
        if (process := self._running) is None:
            return
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                process.terminate()
            else:
                os.killpg(process.pid, signal.SIGTERM if gently else signal.SIGKILL)

    def _work(self) -> None:
        while (told := self._left.get()) is not None:
            if self._over:
                return
            self._one(told)

    def _one(self, told: ChangeLine) -> None:
        what = f"{self._argv[0]} for {told.change.kind} {told.change.event.id[:8]}"
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                env={**os.environ, **environment(told)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            say(f"{what} cannot be run: {error}", err=True)
            return
        self._running = process
        with contextlib.suppress(OSError):  # it need not read what it is told
            process.communicate(told.as_json().encode() + b"\n")
        code = process.wait()
        self._running = None
        if code and not self._over:
            say(f"{what} failed with exit code {code}", err=True)


def environment(told: ChangeLine) -> dict[str, str]:
    """What a hook is told, with the change in place of a stage."""
    change, event = told.change, told.change.event
    left = event.seconds_left(change.at)
    due = event.not_before
    said = {
        "CHANGE": str(change.kind),
        "MACHINE": told.machine,
        "MINE": "true" if told.mine else "false",
        "EVENT_ID": event.id,
        "EVENT_TYPE": event.type,
        "EVENT_STATUS": event.status,
        "EVENT_SOURCE": event.source,
        "EVENT_RESOURCES": " ".join(event.resources),
        "EVENT_NOT_BEFORE": "" if due is None else f"{due:%Y-%m-%dT%H:%M:%SZ}",
        "EVENT_DESCRIPTION": event.description,
        "EVENT_DURATION": "" if event.duration is None else str(event.duration),
        "SECONDS_LEFT": "" if left is None else str(max(0, int(left))),
    }
    return {f"FOREWARN_{name}": value for name, value in said.items()}
