"""SQLite's log of what was committed last, read as its format is documented: is all of it there?

SQLite reads a log as far as it understands it and takes the rest for what a crash has cut off, so
that damage would lose commits without a word. Nothing here writes.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from forewarn.store.port import StoreUnusable
from forewarn.store.sqlite.lock import companion

HEADER = 32  # bytes
FRAME = 24  # bytes before each page
MAGICS = (0x377F0682, 0x377F0683)  # odd: its sums are of big-endian words
FORMAT = 3_007_000
READ_TO = 16  # where in the index it stands how many frames were understood


def check_header(path: Path, wal: Path) -> None:
    """A header is on disk before the first commit is: one that is wrong was right once."""
    if _empty(wal):
        return
    with wal.open("rb") as file:
        head = file.read(HEADER)
    magic, format = struct.unpack_from(">2I", head)
    if magic not in MAGICS or format != FORMAT or _sum(head, head[:24]) != head[24:]:
        raise _damaged(path, wal)


def check_frames(path: Path, wal: Path) -> None:
    """Behind what was understood there may be a commit that had not come to disk, or several that
    failed one by one; two that follow from each other were both acknowledged."""
    if _empty(wal):
        return
    with companion(path, "-shm").open("rb") as index:
        (read,) = struct.unpack_from("=I", index.read(HEADER), READ_TO)
    with wal.open("rb") as file:
        head = file.read(HEADER)
        (page,) = struct.unpack_from(">I", head, 8)
        last, commits = head[24:], 0
        if read:
            file.seek((read - 1) * (FRAME + page), os.SEEK_CUR)
            last = file.read(FRAME)[16:]
            file.seek(page, os.SEEK_CUR)
        while len(frame := file.read(FRAME)) == FRAME:
            data = file.read(page)
            if frame[8:16] == head[16:24] and len(data) == page:  # of this log, not of one before
                follows = _sum(head, frame[:8] + data, last) == frame[16:]
                commits = (commits if follows else 0) + any(frame[4:8])
                if commits > 1:
                    raise _damaged(path, wal)
            last = frame[16:]


def _sum(head: bytes, data: bytes, last: bytes = bytes(8)) -> bytes:
    """As the format defines it: each goes on from the one before."""
    first, second = struct.unpack(">2I", last)
    order = ">" if head[3] & 1 else "<"
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second)


def _empty(wal: Path) -> bool:
    try:
        return wal.stat().st_size <= HEADER
    except OSError:
        return True


def _damaged(path: Path, wal: Path) -> StoreUnusable:
    return StoreUnusable(
        f"{wal} is damaged, and the newest commits of {path.name} are in it: restore a backup"
        " (forewarn restore), or move the log away to go on without them"
    )
