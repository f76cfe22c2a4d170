"""The face's port to the service, and the adapter for a service in the same process.

News of a group arrives before whoever caused it hears back, so that an approver's next GET
shows what the approval brought about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from forewarn.core import Event, Group, GroupView, Machine, Now, Refused, view
from forewarn.core.fleet import Place
from forewarn.core.refusal import Reason
from forewarn.service.platform.guests import Guests
from forewarn.store.port import Commit, OutcomeUnknown, Store, StoreFailed


class GroupNews(msgspec.Struct, frozen=True):
    """Everything the guests' face needs to know of a group."""

    view: GroupView
    machines: tuple[Machine, ...]
    place: Place


class Prepared(msgspec.Struct, frozen=True):
    """An event that a group is shown, and which of the group's machines there are."""

    event: Event
    alive: frozenset[str]


class NotDurable(Exception):
    """It could not be made durable, or the service cannot be reached: nothing took effect."""


class OutcomeNotKnown(NotDurable):
    """The outcome is unknown: it may have taken effect. The caller gets no answer."""


class TooOften(Exception):
    """The machine has changed its word as often as it may: it stays as it was."""


class Upstream(Protocol):
    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        """Tell the sink every group as it is, and then again after every change."""
        ...

    def now(self) -> Now: ...

    async def enable(self, group: str) -> None:
        """Returns once the group has a document, or raises NotTaken."""
        ...

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        """False if one of the ids was never listed to the group; then nothing took effect.

        True is durable; if it cannot be made so, NotTaken is raised.
        """
        ...

    async def prepare(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Prepared | None:
        """A machine's own word whether it is ready. None if its group is shown no such event.

        Else it is durable; if it cannot be made so, NotTaken is raised. TooOften is raised if
        it would be one change more than a machine may make.
        """
        ...

    async def prepared(self, group: str, id: str) -> Prepared | None:
        """Who is ready for the event. None if the group is shown no such event."""
        ...

    def record_poll(
        self,
        machine: str,
        group: str,
        version: str,
        incarnation: int,
        events: Collection[str],
        now: Now,
    ) -> None:
        """A document that lists these events was answered to the machine."""
        ...

    def sign_of_life(self, group: str) -> None:
        """A sign of life that was answered with nothing."""
        ...


class LocalUpstream:
    def __init__(self, guests: Guests, store: Store) -> None:
        self._guests = guests
        self._store = store
        self.record_poll = guests.poll_index.polled

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        def on_commit(_commit: Commit, changed: Mapping[str, Group]) -> None:
            for group in changed.values():
                sink(group_news(group))

        self._store.attach(on_commit)
        for group in self._store.groups.values():
            sink(group_news(group))

    def now(self) -> Now:
        return self._guests.writer.now()

    async def enable(self, group: str) -> None:
        try:
            await self._guests.enable(group)
        except (StoreFailed, OutcomeUnknown) as failure:
            raise _not_taken(failure) from failure

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        try:
            decision = await self._guests.approve(machine, group, ids)
        except (StoreFailed, OutcomeUnknown) as failure:
            raise _not_taken(failure) from failure
        return not isinstance(decision, Refused)

    async def prepare(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Prepared | None:
        try:
            decision = await self._guests.prepare(machine, group, id, ready, note)
        except (StoreFailed, OutcomeUnknown) as failure:
            raise _not_taken(failure) from failure
        if isinstance(decision, Refused):
            if decision.reason is Reason.CONFLICT:
                raise TooOften
            return None
        return await self.prepared(group, id)

    async def prepared(self, group: str, id: str) -> Prepared | None:
        event = self._guests.listed(group, id)
        return Prepared(event, self._store.groups[group].alive) if event is not None else None

    def sign_of_life(self, group: str) -> None:
        self._guests.poll_index.alive(group, self.now())

    # For those who report what others have answered.

    def group_of(self, machine: str) -> str | None:
        return self._guests.machine_index.group_of(machine)

    def knows(self, group: str) -> bool:
        return group in self._store.groups

    def record_repeated(self, machine: str, times: int) -> None:
        """So many more polls, which showed nothing that is not known of already."""
        if polls := self._guests.poll_index.polls(machine):
            polls.count += times


class SilentUpstream(LocalUpstream):
    """For a face that nobody sees, since others are it."""

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        del sink


def _not_taken(failure: Exception) -> NotDurable:
    kind = OutcomeNotKnown if isinstance(failure, OutcomeUnknown) else NotDurable
    return kind(str(failure))


def group_news(group: Group) -> GroupNews:
    return GroupNews(view(group), group.machines, group.place)
