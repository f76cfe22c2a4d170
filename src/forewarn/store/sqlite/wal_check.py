"""Check of SQLite's log (WAL), which contains the newest commits, by its documented format.

SQLite reads a log up to the first frame that is not valid, and takes the rest for what a crash has
cut off, so that damage would lose commits without any error. Nothing here writes.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from forewarn.store.port import StoreUnusable
from forewarn.store.sqlite.lock import companion

HEADER = 32  # bytes
FRAME = 24  # bytes before each page
MAGICS = (0x377F0682, 0x377F0683)  # odd: its checksums are of big-endian words
FORMAT = 3_007_000
VALID_FRAMES = 16  # offset in the index: how many frames of the log are valid


def check_header(path: Path, wal: Path) -> None:
    """Refuse a log with an invalid header. A header is on disk before the first commit, so an
    invalid one was damaged later."""
    if _empty(wal):
        return
    with wal.open("rb") as file:
        header = file.read(HEADER)
    magic, format = struct.unpack_from(">2I", header)
    if magic not in MAGICS or format != FORMAT or _checksum(header, header[:24]) != header[24:]:
        raise _damaged(path, wal)


def check_frames(path: Path, wal: Path) -> None:
    """Refuse a log with lost commits. After the valid frames there may be a commit that was not
    completely on disk, or several that failed one after the other; but if two follow from each
    other, both were acknowledged."""
    if _empty(wal):
        return
    with companion(path, "-shm").open("rb") as index:
        (valid,) = struct.unpack_from("=I", index.read(HEADER), VALID_FRAMES)
    with wal.open("rb") as file:
        header = file.read(HEADER)
        (page_size,) = struct.unpack_from(">I", header, 8)
        checksum, commits = header[24:], 0
        if valid:
            file.seek((valid - 1) * (FRAME + page_size), os.SEEK_CUR)
            checksum = file.read(FRAME)[16:]
            file.seek(page_size, os.SEEK_CUR)
        while len(frame := file.read(FRAME)) == FRAME:
            page = file.read(page_size)
            of_this_log = frame[8:16] == header[16:24]  # and not of an earlier one
            if of_this_log and len(page) == page_size:
                follows = _checksum(header, frame[:8] + page, checksum) == frame[16:]
                commits = (commits if follows else 0) + any(frame[4:8])
                if commits > 1:
                    raise _damaged(path, wal)
            checksum = frame[16:]


def _checksum(header: bytes, data: bytes, previous: bytes = bytes(8)) -> bytes:
    """Return the checksum as the format defines it: each continues from the previous one."""
    first, second = struct.unpack(">2I", previous)
    order = ">" if header[3] & 1 else "<"
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
        " (forewarn restore), or move the log away to continue without them"
    )
