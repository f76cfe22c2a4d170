"""The port: what every engine offers.

`transact` is the one way to change state. Its `work` is a pure function of the states it is
given and may be run again; one commit may span several groups. When `transact` returns, the
commit is durable, swapped in, and every listener has been told, in that order.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from forewarn.core import Change, Duration, Event, Group, Time
from forewarn.core.registry import Put, Registry


class Entry(msgspec.Struct, frozen=True):
    """What one commit changes in one group."""

    group: str
    items: tuple[Change, ...]


class Batch(msgspec.Struct, frozen=True):
    """What a work wants committed; without entries it only wants to know that what it has
    seen is durable."""

    at: Time
    lost: Duration = 0  # how much time nobody had served until then
    entries: tuple[Entry, ...] = ()
    puts: tuple[Put, ...] = ()  # what changes beside the groups


class Commit(msgspec.Struct, frozen=True):
    seq: int
    at: Time
    lost: Duration
    entries: tuple[Entry, ...]
    puts: tuple[Put, ...] = ()


class Sightings(msgspec.Struct, frozen=True, kw_only=True):
    """The lossy side: written now and then, never waited for."""

    seen: dict[str, int]  # by group, in time served
    served_until: Time | None = None
    lost: Duration = 0


class StoreFailed(Exception):
    """A commit could not be made durable. Nothing of it has happened."""


class StoreUnusable(Exception):
    """The store cannot be opened; the message is one line for whoever started the service."""


class States(ChainMap[str, Group]):
    """The groups by name; a group nobody has defined is an empty one. Beside them the rest."""

    def __init__(self, *maps: MutableMapping[str, Group], registry: Registry) -> None:
        super().__init__(*maps)
        self.registry = registry

    def __missing__(self, name: str) -> Group:
        return Group(name=name)


Work: TypeAlias = Callable[[States], Batch]
Listener: TypeAlias = Callable[[Commit, Mapping[str, Group]], None]


class Store(Protocol):
    @property
    def groups(self) -> Mapping[str, Group]:
        """The state as last committed."""
        ...

    @property
    def registry(self) -> Registry:
        """What stands beside the groups, as last committed. Only for looking at."""
        ...

    @property
    def seq(self) -> int:
        """The number of the last commit; 0 if there is none."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def attach(self, listener: Listener) -> None:
        """Call `listener` with every commit, in order, before its callers hear of it."""
        ...

    async def transact(self, work: Work) -> Commit | None: ...

    def commits(self, after: int) -> AsyncIterator[Commit]:
        """In commit order, without a gap, up to the last commit there is."""
        ...

    async def records(self, ids: Collection[str]) -> Mapping[str, Event]:
        """Events that are over, by id."""
        ...

    async def past(self, *, group: str | None = None, limit: int = 100) -> Sequence[Event]:
        """Events that are over, the latest first."""
        ...

    async def caused_by(self, cause: str) -> Sequence[Event]:
        """Every event with this cause, in the order of raising, those that are over included."""
        ...

    async def caused_under(self, prefix: str) -> Sequence[Event]:
        """Every event whose cause begins so, in the order of raising, over or not."""
        ...

    async def save(self, sightings: Sightings) -> None: ...

    async def sightings(self) -> Sightings: ...
