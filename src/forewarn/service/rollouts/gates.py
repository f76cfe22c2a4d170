"""Health gates: a URL that has to answer 2xx, or a command that has to exit with 0.

Only commands that the service's settings name are ever run; a caller names one, and sends nothing
that is run. Guard time throughout: a gate that hangs is given up after GATE_TRY.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import msgspec

from forewarn.core import Refused
from forewarn.core.refusal import Hint, invalid, unknown
from forewarn.core.rollouts.model import Gate
from forewarn.core.time import SECOND, Duration
from forewarn.support import program
from forewarn.support.fetch import FetchFailed, fetch
from forewarn.support.files.task import NotStarted
from forewarn.support.limits import MAX_GATE_TIMEOUT_SECONDS
from forewarn.support.text import in_words, listing

GATE_TRY = 10.0  # seconds of guard time for one try
MAX_GATE_URL = 2_048  # characters
MAX_GATE_TIMEOUT: Duration = MAX_GATE_TIMEOUT_SECONDS * SECOND
SHOWN_OUTPUT = 200  # characters of the last line of a command's output


class GateResult(msgspec.Struct, frozen=True):
    passed: bool
    message: str


class Gates:
    def __init__(
        self, commands: Mapping[str, tuple[str, ...]] | None = None, patience: float = GATE_TRY
    ) -> None:
        self._commands = dict(commands or {})
        self._patience = patience

    def allow(self, commands: Mapping[str, tuple[str, ...]]) -> None:
        """Replace the commands; one that runs is not interrupted."""
        self._commands = dict(commands)

    def gate_problem(self, gate: Gate) -> Refused | None:
        """Refuse a gate that cannot be evaluated."""
        if bool(gate.http) == bool(gate.command):
            return invalid("a gate must be either a URL or a command")
        if not SECOND <= gate.timeout <= MAX_GATE_TIMEOUT:
            return invalid(
                f"a gate's timeout must be from 1 s to {in_words(MAX_GATE_TIMEOUT)},"
                f" not {in_words(gate.timeout)}"
            )
        if gate.http:
            return _url_problem(gate.http)
        if gate.command not in self._commands:
            names = listing(sorted(self._commands)) if self._commands else "none"
            return unknown(
                f"no gate command '{gate.command}'; the service's settings have {names}",
                hint=Hint.CONFIGURE_GATES,
            )
        return None

    async def evaluate(self, gate: Gate) -> GateResult:
        try:
            if not gate.http:
                return await self._run(gate.command)
            # Only the status is reported: who named the URL may not be allowed to read the rest.
            async with asyncio.timeout(self._patience):
                status = (await fetch(gate.http, max_body=0)).status
            return GateResult(200 <= status < 300, f"status {status}")
        except TimeoutError:
            return self._timed_out()
        except (NotStarted, FetchFailed) as error:
            return GateResult(False, str(error))

    async def _run(self, name: str) -> GateResult:
        """Run a command. Its exit code counts; processes that it leaves behind are killed."""
        if name not in self._commands:
            return GateResult(
                False, f"the service's settings no longer have a gate command '{name}'"
            )
        with _dev_null() as stdin:
            ended = await program.run(
                self._commands[name],
                stdin,
                program.inherited_environment(),
                self._patience,
                leaves_nothing=True,
            )
        if ended.timed_out:
            return self._timed_out()
        lines = ended.output.splitlines()
        last = f": {_printable(lines[-1])}" if lines else ""
        return GateResult(ended.status == 0, f"exit code {ended.status}{last}")

    def _timed_out(self) -> GateResult:
        return GateResult(False, f"no answer within {self._patience:g} s")


def _dev_null() -> IO[bytes]:
    return Path(os.devnull).open("rb")


def _url_problem(url: str) -> Refused | None:
    example = "write it like http://health.example:8080/ready"
    if len(url) > MAX_GATE_URL or not re.fullmatch(r"[!-~]+", url):
        return invalid(f"'{url[:60]}' is not a valid URL of a gate; {example}")
    try:
        parts = urlsplit(url)
        bad_port = parts.port == 0
    except ValueError:
        return invalid(f"'{url[:60]}' is not a valid URL of a gate; {example}")
    if parts.scheme not in ("http", "https") or not parts.hostname or bad_port:
        return invalid(f"'{url[:60]}' is not a valid URL of a gate; {example}")
    if "@" in parts.netloc or parts.fragment:
        return invalid(
            f"the URL of a gate must not contain a user name, password or fragment; {example}"
        )
    return None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:SHOWN_OUTPUT])
