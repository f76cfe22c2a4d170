"""A service in a process of its own that is killed with kill -9 and started again on its state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from helpers.free_ports import free_port
from helpers.paths import HELPERS
from helpers.waiting import LIMIT


class Victim:
    """The service, and the hand that kills it."""

    def __init__(self, directory: Path, *options: str, keep_inventory: bool = False) -> None:
        self.state = directory / "state.db"
        self.metadata = free_port()
        self.control = free_port()
        self._directory = directory
        self._options = options
        self._environment = {"KEEP_INVENTORY": "yes"} if keep_inventory else {}
        self._output = directory / "said"
        self.pid = 0

    async def __aenter__(self) -> Victim:
        words = {
            "--state": str(self.state),
            "--metadata": f"127.0.0.1:{self.metadata}",
            "--control": f"127.0.0.1:{self.control}",
        }
        with self._output.open("ab") as output:
            self._forker = await asyncio.create_subprocess_exec(
                sys.executable,
                str(HELPERS / "service_forker.py"),
                "dev",
                "--no-observe",  # polls take the fast path, as they do on a fleet
                *(word for pair in words.items() for word in pair),
                *self._options,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                env={**os.environ, **self._environment, "XDG_RUNTIME_DIR": str(self._directory)},
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.pid:  # a test that failed has left it alive, with the pipe that is waited for
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._forker.terminate()
        await self._forker.wait()

    async def start(self) -> None:
        assert self._forker.stdin is not None
        self._forker.stdin.write(b"go\n")
        self.pid = int(await self._line("child"))
        await self._line("ready")

    async def end(self, number: signal.Signals) -> int:
        os.kill(self.pid, number)
        code = int(await self._line("gone"))
        self.pid = 0
        return code

    async def _line(self, wanted: str) -> str:
        assert self._forker.stdout is not None
        async with asyncio.timeout(LIMIT):
            word, _, rest = (await self._forker.stdout.readline()).decode().partition(" ")
        assert word == wanted, f"{word} {rest}: {self._output.read_text()[-2000:]}"
        return rest
