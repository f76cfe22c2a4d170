"""The store engines, selected by the setting `state`. At present that is a path, for SQLite.

Everything else uses a state through the port. A new engine is a sub-package that implements
`Store` and `StoredState`, a case in each function here, and what the settings accept as `state`.
Engines are imported when they are used.
"""

from __future__ import annotations

import os
from pathlib import Path

from forewarn.store.memory import MemoryStore
from forewarn.store.port import Store, StoredState


def store_for(state: Path | None, *, migrate: bool = True) -> Store:
    """Return the store of a state, not yet open; without a state, one in memory. With `migrate`,
    opening it upgrades an older schema."""
    if state is None:
        return MemoryStore()
    from forewarn.store.sqlite.engine import SqliteStore

    return SqliteStore(state, migrate=migrate)


def stored_state(state: Path) -> StoredState:
    from forewarn.store.sqlite.state_file import SqliteFile

    return SqliteFile(state)


def state_name(state: Path | None) -> str:
    """Return a name for the state that no other state on this machine has; empty without one."""
    return "" if state is None else os.path.realpath(state)


def local_path(state: Path, suffix: str) -> Path:
    """Return the path of a file on this machine that belongs to the service with this state, but is
    no part of the state."""
    return state.with_name(state.name + suffix)
