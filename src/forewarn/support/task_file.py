"""A program's task on paper: the file that is its standard input, and is locked while it works.

The lock belongs to the open file, which the program has inherited. So it outlives a service
that was killed, and the next one knows that an earlier program is still at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

LOOK_EVERY = 0.2  # seconds of guard time between looks whether an earlier program has ended


class NotStarted(Exception):
    """The program was not started, so whatever it should have done has not happened."""


class StillAtWork(Exception):
    """A program that was started for the same thing before has not ended."""


@asynccontextmanager
async def paper(
    said: bytes, file: Path | None = None, patience: float = 0.0
) -> AsyncIterator[IO[bytes]]:
    """What is said, as a file to be read from its beginning.

    A file, not a pipe: whether and when a program reads it keeps nobody waiting. Without a name
    it is locked against nobody.
    """
    with _sheet(file) as sheet:
        if file is not None:
            await _lock(sheet, patience)
        try:
            _write(sheet, said)
            yield sheet
        finally:
            _remove(file)


def _sheet(file: Path | None) -> IO[bytes]:
    try:
        if file is None:
            return tempfile.TemporaryFile()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return file.open("a+b")
    except OSError as error:
        raise NotStarted(f"the program's task could not be written down: {error}") from error


def _write(sheet: IO[bytes], said: bytes) -> None:
    try:
        sheet.truncate(0)
        sheet.write(said)
        sheet.seek(0)  # which also writes out what was buffered
    except OSError as error:
        raise NotStarted(f"the program's task could not be written down: {error}") from error


def _remove(file: Path | None) -> None:
    if file is not None:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


async def _lock(sheet: IO[bytes], patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            while not _locked(sheet):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await asyncio.Event().wait()
    except TimeoutError:
        raise StillAtWork(
            "a program that was started for this before the service was restarted is still at work"
        ) from None


def _locked(sheet: IO[bytes]) -> bool:
    try:
        fcntl.flock(sheet, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
