"""The endpoint's port to the service, and its implementation for a service in the same process.

News of a group arrives before the caller that caused it is answered, so that the next GET after an
approval shows its effects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import msgspec

from forewarn.core import Event, Group, GroupView, Machine, Refused, World, view
from forewarn.core.fleet import Place
from forewarn.core.refusal import Reason
from forewarn.core.time import Time
from forewarn.service.access.machine_tokens import MachineToken, MachineTokens
from forewarn.service.indexes.unknown_callers import UnknownCaller
from forewarn.service.platform.guests import Guests
from forewarn.store import port
from forewarn.store.port import Commit, Store, StoreFailed

ANSWER_WITHIN = 8.0  # seconds in which a change has to be durable, if the state is a database

LATE = f"the database has not confirmed a change for {ANSWER_WITHIN:g} s"

T = TypeVar("T")


class GroupNews(msgspec.Struct, frozen=True):
    """Everything that the endpoint needs to know about a group."""

    view: GroupView
    machines: tuple[Machine, ...]
    place: Place


class Prepared(msgspec.Struct, frozen=True):
    """An event that is listed to a group, and the machines of the group that are not gone."""

    event: Event
    alive: frozenset[str]


class NotDurable(Exception):
    """The change could not be made durable, or the service cannot be reached: no effect, unless a
    database makes it durable later. The caller may repeat it."""


class OutcomeUnknown(NotDurable):
    """The change may have taken effect or not. The caller gets no answer."""


class TooOften(Exception):
    """The machine has changed its readiness as often as it may: no effect."""


class NotPostponed(Exception):
    """The event cannot be postponed like that, and why: no effect."""


class Upstream(Protocol):
    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        """Call `sink` with every group, now and after every change."""
        ...

    def now(self) -> World: ...

    async def enable(self, group: str) -> None:
        """Return once the group has a document. Raises NotDurable."""
        ...

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        """Approve events, durably. Returns False, without effect, if one of the ids was never
        listed to the group. Raises NotDurable."""
        ...

    async def prepare(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Prepared | None:
        """Record, durably, whether a machine is ready for an event. Returns None if no such event
        is listed to its group. Raises NotDurable, or TooOften."""
        ...

    async def prepared(self, group: str, id: str) -> Prepared | None:
        """Return the event and who is ready; None if no such event is listed to the group."""
        ...

    async def postpone(self, machine: str, group: str, id: str, until: Time) -> Time | None:
        """Postpone an event, durably, and return its NotBefore, which may be later than `until`;
        None if no such event is listed to the group. Raises NotDurable, or NotPostponed."""
        ...

    @property
    def issues_tokens(self) -> bool:
        """Do machines have managed identities?"""
        ...

    async def token(self, machine: str, group: str, resource: str) -> MachineToken | None:
        """Return a token of a machine's own for a resource; None if there is none for it. Raises
        NotDurable."""
        ...

    def record_poll(
        self,
        machine: str,
        group: str,
        version: str,
        incarnation: int,
        events: Collection[str],
        now: World,
    ) -> None:
        """Record that a document that lists these events was answered to the machine."""
        ...

    def sign_of_life(self, group: str) -> None:
        """Record a request of the group that was not answered with a document."""
        ...

    def unknown_caller(self, address: str) -> None:
        """Record a request from an address that no machine has."""
        ...


class LocalUpstream:
    def __init__(self, guests: Guests, store: Store) -> None:
        self._guests = guests
        self._store = store
        self._answer_within = None if store.leadership is None else ANSWER_WITHIN
        self.record_poll = guests.poll_index.polled
        self.machine_tokens: MachineTokens | None = None  # None: machines have no identities

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        def on_commit(_commit: Commit, changed: Mapping[str, Group]) -> None:
            for group in changed.values():
                sink(group_news(group))

        self._store.on_commit(on_commit)
        for group in self._store.groups.values():
            sink(group_news(group))

    def now(self) -> World:
        return self._guests.writer.now()

    def instant(self) -> World:
        """Return the time alone, without what decisions look at beside it."""
        return self._guests.writer.instant()

    async def enable(self, group: str) -> None:
        with _failures():
            await self._guests.enable(group)

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> bool:
        decision = await self._in_time(self._guests.approve(machine, group, ids))
        return not isinstance(decision, Refused)

    async def prepare(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Prepared | None:
        decision = await self._in_time(self._guests.prepare(machine, group, id, ready, note))
        if isinstance(decision, Refused):
            if decision.reason is Reason.CONFLICT:
                raise TooOften
            return None
        return await self.prepared(group, id)

    async def prepared(self, group: str, id: str) -> Prepared | None:
        event = self._guests.listed(group, id)
        return Prepared(event, self._store.groups[group].alive) if event is not None else None

    async def postpone(self, machine: str, group: str, id: str, until: Time) -> Time | None:
        event = self._guests.listed(group, id)
        if event is None:
            return None
        refused = await self._in_time(self._guests.postpone(machine, event, until))
        if refused is not None:
            raise NotPostponed(refused.message)
        event = self._guests.listed(group, id)
        return None if event is None else event.not_before

    @property
    def issues_tokens(self) -> bool:
        return self.machine_tokens is not None

    async def token(self, machine: str, group: str, resource: str) -> MachineToken | None:
        if self.machine_tokens is None or self.group_of(machine) != group:
            return None
        return self.machine_tokens.issue(machine, resource)

    async def _in_time(self, change: Awaitable[T]) -> T:
        """Wait for a change, but not for ever. A commit that is under way is not affected."""
        with _failures():
            try:
                async with asyncio.timeout(self._answer_within):
                    return await change
            except TimeoutError:
                raise NotDurable(LATE) from None

    def sign_of_life(self, group: str) -> None:
        self._guests.poll_index.alive(group, self.now())

    def unknown_caller(self, address: str) -> None:
        self._guests.poll_index.unknown_callers.record(address, self.now().at)

    # For reports of nodes.

    def unknown_calls(self, calls: UnknownCaller) -> None:
        """Record requests from an address that no machine has, or none on that host."""
        index = self._guests.machine_index
        if index.present_at(calls.address, calls.host) is None:  # it may have one now
            self._guests.poll_index.unknown_callers.add(calls)

    def group_of(self, machine: str) -> str | None:
        return self._guests.machine_index.group_of(machine)

    def knows(self, group: str) -> bool:
        return group in self._store.groups

    def active(self, group: str) -> dict[str, Time]:
        """Return the events of a group that are not over, and when they were raised."""
        return {event.id: event.raised_at for event in self._store.groups[group].events}

    def record_shown(self, machine: str, group: str, id: str, at: Time) -> None:
        """Record that a machine was shown an active event."""
        self._guests.poll_index.shown(machine, group, (id,), at)

    def record_ended(self, machine: str, group: str, ids: Iterable[str], at: Time) -> None:
        """Record that a machine was shown events that are over by now, if there were such."""
        self._guests.poll_index.shown_before(machine, group, ids, at)

    def last_poll(self, machine: str) -> Time:
        """Return when a machine polled last; 0: it never has."""
        polls = self._guests.poll_index.polls(machine)
        return polls.last if polls else 0

    def record_repeated(self, machine: str, times: int, before: Time) -> None:
        """Count polls since `before` that showed nothing new."""
        self._guests.poll_index.repeated(machine, times, before)


class SilentUpstream(LocalUpstream):
    """Upstream of control whose guests are served by nodes on hosts: delivers no documents."""

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        del sink


@contextmanager
def _failures() -> Iterator[None]:
    """Turn failures of the store into those of the port."""
    try:
        yield
    except port.OutcomeUnknown as failure:
        raise OutcomeUnknown(str(failure)) from failure
    except StoreFailed as failure:
        raise NotDurable(str(failure)) from failure


def group_news(group: Group) -> GroupNews:
    return GroupNews(view(group), group.machines, group.place)
