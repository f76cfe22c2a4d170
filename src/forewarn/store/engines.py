"""The store engines, selected by the setting `state`: the path of an SQLite file, or the URL of
another engine, such as `postgresql://HOST/DATABASE`.

Everything else uses a state through the port. A new engine is a sub-package that implements
`Store` and `StoredState`, and a case in each function here. Engines are imported when they are
used.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from forewarn.store.memory import MemoryStore
from forewarn.store.port import Member, Store, StoredState
from forewarn.support import extras
from forewarn.support.urls import without_password

if TYPE_CHECKING:
    from forewarn.store.postgres.impacts import Impacts

State: TypeAlias = Path | str  # a path is an SQLite file; a text is the URL of another engine

POSTGRESQL = ("postgresql", "postgres")  # schemes of URLs
LEASE = 6.0  # seconds

_SQLITE = "a state in an SQLite file"
_POSTGRES = "a state in PostgreSQL"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(state: str) -> bool:
    """Is this the URL of an engine, as in `name://…`, rather than a path?"""
    return _URL.match(state) is not None


def parse_state(text: str) -> State:
    """Return the state that a setting names. Raises ValueError for the URL of an unknown engine."""
    if not is_url(text):
        return Path(text)
    if scheme(text) not in POSTGRESQL:
        raise ValueError(
            f"there is no store engine '{scheme(text)}'; expected the path of an SQLite file, or"
            " postgresql://HOST/DATABASE"
        )
    return text


def engine_name(state: State | None) -> str:
    """Return the name of the engine that keeps a state."""
    if state is None:
        return "memory"
    return "sqlite" if isinstance(state, Path) else POSTGRESQL[0]


def scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def store_for(
    state: State | None,
    *,
    migrate: bool = True,
    member: Member | None = None,
    lease: float = LEASE,
    managed: bool = False,
) -> Store:
    """Return the store of a state, not yet open; without a state, one in memory. With `migrate`,
    opening it upgrades an older schema. An engine that several processes can open needs a `member`,
    as which this one takes part, with a `lease` of so many seconds. If the
    replication is `managed` by somebody else, it is believed to lose nothing."""
    if state is None:
        return MemoryStore()
    if isinstance(state, Path):
        extras.need("server", _SQLITE)
        from forewarn.store.sqlite.engine import SqliteStore

        return SqliteStore(state, migrate=migrate)
    extras.need("server", _POSTGRES)
    extras.need("postgres", _POSTGRES)
    from forewarn.store.postgres.engine import PostgresStore

    assert member is not None
    return PostgresStore(state, member, lease=lease, managed=managed)


def stored_state(state: State) -> StoredState:
    if isinstance(state, Path):
        extras.need("server", _SQLITE)
        from forewarn.store.sqlite.state_file import SqliteFile

        return SqliteFile(state)
    extras.need("postgres", _POSTGRES)
    from forewarn.store.postgres.stored import PostgresState

    return PostgresState(state)


def shared_impacts(state: State | None) -> Impacts | None:
    """Return what simulated machines have gone through, if several processes can open the state."""
    if state is None or isinstance(state, Path):
        return None
    from forewarn.store.postgres.impacts import Impacts

    return Impacts(state)


def shown(state: State) -> str:
    """Return a state as messages name it: a path, or a URL without its password."""
    return str(state) if isinstance(state, Path) else without_password(state)


def local_path(state: State, suffix: str, directory: Path) -> Path:
    """Return the path of a file on this machine that belongs to the service with this state, but is
    no part of the state: beside an SQLite file, and otherwise in `directory`."""
    if isinstance(state, Path):
        return state.with_name(state.name + suffix)
    return directory / f"forewarn{suffix}"
