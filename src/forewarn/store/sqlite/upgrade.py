"""Upgrades an older state file while no service has it open, and changes nothing else: no commit is
made, so the next service finds what the last one left, and the time in between counts as not
served.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import sqlalchemy as sa

from forewarn.store.port import StoreUnusable, UpgradeResult
from forewarn.store.sqlite import connect, copy, read
from forewarn.store.sqlite.lock import companion
from forewarn.store.sqlite.schema import SCHEMA_VERSION


def upgrade(state: Path) -> UpgradeResult:
    """Upgrade a file to the current schema. Raises StoreUnusable, also if a service has it open;
    then the file is unchanged, unless the message names a copy of the old one."""
    state = state.resolve()
    if not state.exists() and not companion(state, "-wal").exists():
        raise StoreUnusable(f"{state} is not there; name a state file")
    done = [UpgradeResult(SCHEMA_VERSION, SCHEMA_VERSION, None)]

    def on_upgrade(before: str, after: str, kept: Path) -> None:
        done.append(UpgradeResult(before, after, kept))

    try:
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: _hand_over(state, done[-1].kept))
            stack.callback(connect.open_file(state, migrate=True, on_upgrade=on_upgrade).close)
            _read_all(state)
    except (OSError, sqlite3.DatabaseError, sa.exc.DatabaseError, msgspec.MsgspecError) as error:
        why = str(getattr(error, "orig", None) or error)
        kept = f"; it is kept as it was as {done[-1].kept}" if done[-1].kept else ""
        raise StoreUnusable(f"{state} cannot be used as state: {why}{kept}") from error
    return done[-1]


def _read_all(state: Path) -> None:
    """Read the state as a service does when it starts, to find problems now."""
    engine = connect.create_engine(state)
    try:
        with engine.begin() as connection:
            read.groups(connection)
            read.registry(connection)
    finally:
        engine.dispose()


def _hand_over(state: Path, kept: Path | None) -> None:
    if state.exists():
        copy.hand_over(state, companion(state, ".lock"), *([kept] if kept else []))
