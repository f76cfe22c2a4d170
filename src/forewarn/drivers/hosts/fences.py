"""The highest fence number of each machine, on the disk of a driver process.

A number is on disk before anything is done with it, so that what arrives late is refused also by
the next process: a call of a control node that does not decide any more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from forewarn.support.files.lock import try_lock
from forewarn.support.files.replace import replace

FILE = "fences"
MAX_KEPT = 10_000  # machines whose numbers are kept


class FencesUnusable(Exception):
    """The file cannot be used; the message says why."""


class _Kept(msgspec.Struct, frozen=True):
    fences: dict[str, int] = {}
    floor: int = 0  # that of all other machines: the highest number that was dropped


class Fences:
    def __init__(self, directory: Path) -> None:
        """Raises FencesUnusable."""
        self._path = directory / FILE
        self._admitted: dict[str, int] = {}  # by task under way: its last number
        self._writing = asyncio.Lock()
        try:
            self._lock = os.open(directory / f"{FILE}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            content = self._path.read_bytes() if self._path.exists() else None
        except OSError as error:
            raise FencesUnusable(f"{error.filename}: {error.strerror}") from error
        try:
            if not try_lock(self._lock):
                raise FencesUnusable(f"another driver process uses {directory}")
            self._kept = _Kept() if content is None else msgspec.json.decode(content, type=_Kept)
        except msgspec.MsgspecError as error:
            os.close(self._lock)
            raise FencesUnusable(
                f"{self._path} does not contain fence numbers ({error}); restore it, or remove it"
                " if no other control node can be at work"
            ) from error
        except FencesUnusable:
            os.close(self._lock)
            raise

    def close(self) -> None:
        os.close(self._lock)

    async def admit(self, task: str, machines: Iterable[str], fence: int) -> int:
        """Note the number of a call for a task, and return when it is on disk. Returns 0, or the
        higher number of a call that came before: nothing must be done then. Another task of one of
        the machines does not end one that is under way. Raises OSError."""
        async with self._writing:
            kept, names = self._kept, list(machines)
            highest = max((kept.fences.get(name, kept.floor) for name in names), default=0)
            if fence < highest and self._admitted.get(task) != fence:
                return highest
            raised = {name: fence for name in names if fence > kept.fences.get(name, kept.floor)}
            if raised:
                kept = _shortened(_Kept(kept.fences | raised, kept.floor))
                await asyncio.to_thread(replace, self._path, msgspec.json.encode(kept))
                self._kept = kept
            self._admitted[task] = max(fence, self._admitted.pop(task, 0))  # it becomes the latest
            if len(self._admitted) > MAX_KEPT:
                del self._admitted[next(iter(self._admitted))]
            return 0


def _shortened(kept: _Kept) -> _Kept:
    """Return the numbers without the lowest, if there are too many."""
    if len(kept.fences) <= MAX_KEPT:
        return kept
    by_number = sorted(kept.fences.items(), key=lambda item: item[1])
    dropped, rest = by_number[: MAX_KEPT // 10], by_number[MAX_KEPT // 10 :]
    return _Kept(dict(rest), max(kept.floor, dropped[-1][1]))
