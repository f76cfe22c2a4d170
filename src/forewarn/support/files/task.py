"""The file with a program's task: its standard input, locked while the program runs.

The lock belongs to the open file, which the program inherits. It therefore outlives a service that
was killed, and the next service knows that an earlier program is still running.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from forewarn.support.files.lock import try_lock

RETRY_EVERY = 0.2  # seconds of guard time between attempts to lock the file


class NotStarted(Exception):
    """The program was not started, so whatever it should have done has not happened."""


class StillAtWork(Exception):
    """A program that was started for the same thing before has not ended."""


@asynccontextmanager
async def task_input(
    task: bytes, file: Path | None = None, timeout: float = 0.0
) -> AsyncIterator[IO[bytes]]:
    """Write a task to a file and yield the file, to be read from its start. Without a path it is a
    temporary file, which is not locked.

    It is a file and not a pipe, so that a program that does not read it blocks nothing.
    """
    with _open(file) as stream:
        if file is not None:
            await _lock(stream, timeout)
        try:
            _write(stream, task)
            yield stream
        finally:
            _remove(file)


def _open(file: Path | None) -> IO[bytes]:
    try:
        if file is None:
            return tempfile.TemporaryFile()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return file.open("a+b")
    except OSError as error:
        raise NotStarted(f"the task file of the program could not be written: {error}") from error


def _write(stream: IO[bytes], task: bytes) -> None:
    try:
        stream.truncate(0)
        stream.write(task)
        stream.seek(0)  # which also flushes the buffer
    except OSError as error:
        raise NotStarted(f"the task file of the program could not be written: {error}") from error


def _remove(file: Path | None) -> None:
    if file is not None:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


async def _lock(stream: IO[bytes], timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            while not try_lock(stream.fileno()):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_EVERY):
                        await asyncio.Event().wait()
    except TimeoutError:
        raise StillAtWork(
            "a program that was started for this before the service was restarted is still running"
        ) from None
