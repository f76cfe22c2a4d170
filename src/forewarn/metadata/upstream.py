"""The face's port to the service, and the adapter for a service in the same process.

News of a group arrives before whoever caused it hears back, so that an approver's next GET
shows what the approval brought about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from forewarn.core import Group, GroupView, Machine, Now, Refused, view
from forewarn.core.fleet import Place
from forewarn.service.platform import Platform
from forewarn.store.port import Commit, Store, StoreFailed

Moment: TypeAlias = Now  # a face only passes it on


class GroupNews(msgspec.Struct, frozen=True):
    """Everything the guests' face needs to know of a group."""

    view: GroupView
    machines: tuple[Machine, ...]
    place: Place


class NotTaken(Exception):
    """It could not be made durable, or the service cannot be reached: nothing took effect."""


class Upstream(Protocol):
    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        """Tell the sink every group as it is, and then again after every change."""
        ...

    def now(self) -> Moment: ...

    async def enable(self, group: str) -> None:
        """Returns once the group has a document, or raises NotTaken."""
        ...

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        """False if one of the ids was never listed to the group; then nothing took effect.

        True is durable; if it cannot be made so, NotTaken is raised.
        """
        ...

    def witness(
        self,
        machine: str,
        group: str,
        version: str,
        incarnation: int,
        events: Collection[str],
        now: Moment,
    ) -> None:
        """A document that lists these events was answered to the machine."""
        ...

    def alive(self, group: str) -> None:
        """A sign of life that was answered with nothing."""
        ...


class LocalUpstream:
    def __init__(self, platform: Platform, store: Store) -> None:
        self._platform = platform
        self._store = store
        self.witness = platform.witness.polled

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        def told(_commit: Commit, changed: Mapping[str, Group]) -> None:
            for group in changed.values():
                sink(_news(group))

        self._store.attach(told)
        for group in self._store.groups.values():
            sink(_news(group))

    def now(self) -> Now:
        return self._platform.writer.now()

    async def enable(self, group: str) -> None:
        try:
            await self._platform.enable(group)
        except StoreFailed as failure:
            raise NotTaken(str(failure)) from failure

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        try:
            decision = await self._platform.approve_as(machine, group, ids)
        except StoreFailed as failure:
            raise NotTaken(str(failure)) from failure
        return not isinstance(decision, Refused)

    def alive(self, group: str) -> None:
        self._platform.witness.alive(group, self.now())


def _news(group: Group) -> GroupNews:
    return GroupNews(view(group), group.machines, group.place)
