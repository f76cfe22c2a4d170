"""The store engines, selected by the setting `state`: the path of an SQLite file, or the URL of
another engine (there is none yet).

Everything else uses a state through the port. A new engine is a sub-package that implements
`Store` and `StoredState`, and a case in each function here. Engines are imported when they are
used.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeAlias

from forewarn.store.memory import MemoryStore
from forewarn.store.port import Store, StoredState
from forewarn.support import extras

State: TypeAlias = Path | str  # a path is an SQLite file; a text is the URL of another engine

_SQLITE = "a state in an SQLite file"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(state: str) -> bool:
    """Is this the URL of an engine, as in `name://…`, rather than a path?"""
    return _URL.match(state) is not None


def parse_state(text: str) -> State:
    """Return the state that a setting names. Raises ValueError for the URL of an unknown engine."""
    if is_url(text):
        raise unknown_engine(text)
    return Path(text)


def unknown_engine(state: str) -> ValueError:
    scheme = state.partition(":")[0]
    return ValueError(f"there is no store engine '{scheme}'; expected the path of an SQLite file")


def store_for(state: State | None, *, migrate: bool = True) -> Store:
    """Return the store of a state, not yet open; without a state, one in memory. With `migrate`,
    opening it upgrades an older schema."""
    if state is None:
        return MemoryStore()
    if isinstance(state, Path):
        extras.need("server", _SQLITE)
        from forewarn.store.sqlite.engine import SqliteStore

        return SqliteStore(state, migrate=migrate)
    raise unknown_engine(state)


def stored_state(state: State) -> StoredState:
    if isinstance(state, Path):
        extras.need("server", _SQLITE)
        from forewarn.store.sqlite.state_file import SqliteFile

        return SqliteFile(state)
    raise unknown_engine(state)


def state_name(state: State | None) -> str:
    """Return a name for the state that no other state on this machine has; empty without one."""
    if state is None:
        return ""
    return os.path.realpath(state) if isinstance(state, Path) else state


def local_path(state: State, suffix: str) -> Path:
    """Return the path of a file on this machine that belongs to the service with this state, but is
    no part of the state."""
    if isinstance(state, Path):
        return state.with_name(state.name + suffix)
    raise unknown_engine(state)
