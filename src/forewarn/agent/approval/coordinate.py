"""Telling the other machines of an event that one is ready, and hearing whether they are.

Two ways with one face: the endpoint's own `/ready`, or a directory that the machines share, where
the endpoint offers none. Who approves in the end is `agent/planning/plan.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forewarn.agent.ports import Client
from forewarn.agent.state.cases import Case

NOTE = "prepared"

T = TypeVar("T")

# What becomes the name of a file is checked first: it was said by somebody else.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)


class NoWay(Exception):
    """The machines cannot tell each other; says what to do."""


class Coordination:
    def __init__(self, client: Client, shared: Path | None, patience: float) -> None:
        self._client = client
        self._shared = None if shared is None else SharedDirectory(shared)
        self._patience = patience
        self._away_for: asyncio.Future[Any] | None = None

    async def say_ready(self, case: Case, now: datetime) -> None:
        """Raises NoWay, or what the client raises."""
        said = await self._client.ready(case.event, NOTE, patience=self._patience)
        if said is None and self._others(case):
            shared = self._directory()
            await self._away(lambda: shared.say_ready(case.event.id, case.machine, now))

    async def waiting(self, case: Case) -> tuple[str, ...]:
        """Those of the event that have not said so. Raises as above."""
        if not self._others(case):
            return ()
        said = await self._client.readiness(case.event, patience=self._patience)
        if said is not None:
            return said.waiting
        shared = self._directory()
        return await self._away(lambda: shared.waiting(case.event.id, case.event.resources))

    async def forget(self, case: Case) -> None:
        if (shared := self._shared) is not None and case.rule.approve == "coordinated":
            with contextlib.suppress(NoWay):
                await self._away(lambda: shared.forget(case.event.id))

    async def _away(self, work: Callable[[], T]) -> T:
        """Beside the loop, one at a time: a file server that is away may not answer for ever."""
        try:
            async with asyncio.timeout(self._patience):
                while self._away_for is not None and not self._away_for.done():
                    await asyncio.wait([self._away_for])
                asked = asyncio.get_running_loop().run_in_executor(None, work)
                asked.add_done_callback(lambda done: done.cancelled() or done.exception())
                self._away_for = asked
                return await asyncio.shield(asked)
        except TimeoutError as error:
            raise NoWay("the shared directory does not answer") from error

    def _others(self, case: Case) -> bool:
        return any(resource != case.machine for resource in case.event.resources)

    def _directory(self) -> SharedDirectory:
        if self._shared is None:
            raise NoWay(
                "this endpoint does not let machines tell each other that they are ready; name a"
                " directory that they share ([agent] shared), or approve another way"
            )
        return self._shared


class SharedDirectory:
    """`EVENT/MACHINE` is there: the machine is ready for the event."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def say_ready(self, event: str, machine: str, now: datetime) -> None:
        file = self._path / _checked(event) / _checked(machine)
        try:
            self._make(file.parent)
            draft = file.with_name(f".{file.name}.{os.getpid()}")
            draft.write_bytes(msgspec.json.encode({"machine": machine, "at": now, "note": NOTE}))
            draft.replace(file)
        except OSError as error:
            raise NoWay(f"{error.filename or self._path}: {error.strerror}") from error

    def _make(self, directory: Path) -> None:
        """Whoever may write to the shared one may write to this: other machines' agents may be
        other users, if only by number."""
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
            directory.chmod(stat.S_IMODE(self._path.stat().st_mode))

    def waiting(self, event: str, resources: Sequence[str]) -> tuple[str, ...]:
        directory = self._path / _checked(event)
        return tuple(name for name in resources if not (directory / _checked(name)).is_file())

    def forget(self, event: str) -> None:
        """The event is over for everybody, so nobody's word on it matters any more."""
        with contextlib.suppress(OSError, NoWay):
            directory = self._path / _checked(event)
            for file in directory.iterdir():
                if _NAME.fullmatch(file.name.lstrip(".")):
                    file.unlink(missing_ok=True)
            directory.rmdir()


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise NoWay(f"{name!r} cannot be the name of a file, so nobody can be told of it")
    return name
