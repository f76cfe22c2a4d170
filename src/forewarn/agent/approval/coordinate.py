"""Reporting to the other machines of an event that this one is ready, and checking theirs.

There are two ways: the endpoint's `/ready`, or a directory that the machines share if the endpoint
has none. Which machine approves in the end is decided in `agent/planning/plan.py`.
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

# Names of events and machines come from the endpoint, and are checked before they are file names.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)


class CoordinationError(Exception):
    """The machines cannot coordinate; the message says what to do."""


class Coordination:
    def __init__(self, client: Client, shared: Path | None, timeout: float) -> None:
        self._client = client
        self._shared = None if shared is None else SharedDirectory(shared)
        self._timeout = timeout
        self._in_thread: asyncio.Future[Any] | None = None

    async def report_ready(self, case: Case, now: datetime) -> None:
        """Raises CoordinationError, or what the client raises."""
        readiness = await self._client.report_ready(case.event, NOTE, timeout=self._timeout)
        if readiness is None and self._has_others(case):
            shared = self._directory()
            event, machine = case.event.id, case.machine
            await self._run_in_thread(lambda: shared.report_ready(event, machine, now))

    async def waiting(self, case: Case) -> tuple[str, ...]:
        """Return the machines of the event that are not ready. Raises like `report_ready`."""
        if not self._has_others(case):
            return ()
        readiness = await self._client.readiness(case.event, timeout=self._timeout)
        if readiness is not None:
            return readiness.waiting
        shared = self._directory()
        event, machines = case.event.id, case.event.resources
        return await self._run_in_thread(lambda: shared.waiting(event, machines))

    async def forget(self, case: Case) -> None:
        """Remove the reports on an event that is over."""
        if (shared := self._shared) is not None and case.rule.approve == "coordinated":
            with contextlib.suppress(CoordinationError):
                await self._run_in_thread(lambda: shared.forget(case.event.id))

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run in a thread, one at a time: a file server that is down may never answer."""
        try:
            async with asyncio.timeout(self._timeout):
                while self._in_thread is not None and not self._in_thread.done():
                    await asyncio.wait([self._in_thread])
                future = asyncio.get_running_loop().run_in_executor(None, work)
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
                self._in_thread = future
                return await asyncio.shield(future)
        except TimeoutError as error:
            raise CoordinationError("the shared directory does not answer") from error

    def _has_others(self, case: Case) -> bool:
        return any(resource != case.machine for resource in case.event.resources)

    def _directory(self) -> SharedDirectory:
        if self._shared is None:
            raise CoordinationError(
                "this endpoint has no /ready, through which machines report that they are ready;"
                " set [agent] shared to a directory that the machines share, or use another"
                " approve"
            )
        return self._shared


class SharedDirectory:
    """A directory in which the file `EVENT/MACHINE` says that a machine is ready for an event."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def report_ready(self, event: str, machine: str, now: datetime) -> None:
        file = self._path / _checked(event) / _checked(machine)
        try:
            self._make(file.parent)
            draft = file.with_name(f".{file.name}.{os.getpid()}")
            draft.write_bytes(msgspec.json.encode({"machine": machine, "at": now, "note": NOTE}))
            draft.replace(file)
        except OSError as error:
            raise CoordinationError(f"{error.filename or self._path}: {error.strerror}") from error

    def _make(self, directory: Path) -> None:
        """Create a directory with the permissions of the shared one: the agents of other machines
        may be other users, if only by number."""
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
            directory.chmod(stat.S_IMODE(self._path.stat().st_mode))

    def waiting(self, event: str, machines: Sequence[str]) -> tuple[str, ...]:
        """Return the machines that are not ready."""
        directory = self._path / _checked(event)
        return tuple(name for name in machines if not (directory / _checked(name)).is_file())

    def forget(self, event: str) -> None:
        """Remove all reports on an event, which is over for every machine."""
        with contextlib.suppress(OSError, CoordinationError):
            directory = self._path / _checked(event)
            for file in directory.iterdir():
                if _NAME.fullmatch(file.name.lstrip(".")):
                    file.unlink(missing_ok=True)
            directory.rmdir()


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise CoordinationError(f"{name!r} cannot be used as a file name in the shared directory")
    return name
