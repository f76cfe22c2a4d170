"""The least that durable decisions could cost here: SQLite with nothing around it, and the disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import msgspec

from bench.platform.meter import stopwatch

BODY = b"x" * 512  # of a decision; ours are somewhat larger
BLOCK = b"x" * 4_096


class Least(msgspec.Struct, frozen=True):
    decisions: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.decisions / self.seconds


class Bare:
    """One row for a decision, one transaction for a batch, each on disk before the next."""

    def __init__(self, directory: Path) -> None:
        path = directory / "peer.db"
        path.unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE decisions (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)",
        ):
            self._connection.execute(statement)

    def commit(self, size: int) -> float:
        """How long it took, in seconds."""
        began = stopwatch()
        self._connection.execute("BEGIN IMMEDIATE")
        rows = [(BODY,)] * size
        self._connection.executemany("INSERT INTO decisions (body) VALUES (?)", rows)
        self._connection.execute("COMMIT")
        return stopwatch() - began

    def close(self) -> None:
        self._connection.close()


def least(directory: Path, sizes: Sequence[int], seconds: float) -> Least:
    bare = Bare(directory)
    done, began = 0, stopwatch()
    for size in cycle(sizes):
        bare.commit(size)
        done += size
        if stopwatch() - began >= seconds:
            break
    took = stopwatch() - began
    bare.close()
    return Least(done, took)


def syncs(directory: Path, seconds: float) -> float:
    """How often in a second a block can be added to a file and be on disk."""
    done, path = 0, directory / "blocks"
    with path.open("wb", buffering=0) as file:
        began = stopwatch()
        while stopwatch() - began < seconds:
            file.write(BLOCK)
            os.fdatasync(file.fileno())
            done += 1
        took = stopwatch() - began
    path.unlink()
    return done / took


def where(directory: Path) -> str:
    """The device and the kind of file system: the mount that is nearest above."""
    found = ("", "unknown", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, mount, kind = line.split()[:3]
        if directory.resolve().is_relative_to(mount) and len(mount) >= len(found[0]):
            found = (mount, device, kind)
    return f"{found[2]} on {found[1]}"
