"""Filters of the lists, and the order of some. An iterator starts after the last item of the
previous page (`after`), in an order that does not change when items are added or removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from forewarn.control.http.orders import Member, Place, by_group, in_order
from forewarn.control.schema.queries import GroupQuery, HostQuery, MachineQuery
from forewarn.core import Event, Group, Machine, Status, Time
from forewarn.core.events import EventType, Source
from forewarn.core.fleet import Host
from forewarn.core.labels import Selector, labels_of, matches
from forewarn.core.rollouts.model import caused
from forewarn.service.indexes.events import StartKey
from forewarn.service.platform.hosts import HostNode
from forewarn.service.platform.platform import Platform
from forewarn.service.rollouts.rollouts import RolloutSummary
from forewarn.support import guard
from forewarn.support.text import natural_key

ACTIVE_AT_ONCE = 1_000  # active events that are looked at without a pause
NO_NODE = "none"  # instead of the state of a node
PAST_AT_ONCE = 500  # events that are over, read from the store at a time


Members: TypeAlias = Iterable[tuple[Group, Iterable[Machine]]]


def machines(
    members: Members,
    labels: Selector,
    given: MachineQuery,
    covered: Callable[[Machine, str], bool],
    place: Callable[[Member], Place] | None,
    after: tuple[str, str] | None,
) -> Iterator[Member]:
    """Yield the machines of a page that match, and one more if there is. Without a place, they are
    ordered by their group's name, then by their own, and only the groups that are needed are looked
    at."""
    most = given.limit + 1
    if place is not None:
        yield from in_order(_matching(members, labels, given, covered), place, after, most)
        return
    first = None if after is None else natural_key(after[0])
    for member in sorted(members, key=lambda member: natural_key(member[0].name)):
        if first is None or natural_key(member[0].name) >= first:
            found = _matching([member], labels, given, covered)
            yield from in_order(found, by_group, after, most)


def _matching(
    members: Members,
    labels: Selector,
    given: MachineQuery,
    covered: Callable[[Machine, str], bool],
) -> Iterator[Member]:
    for group, of_group in members:
        if given.enabled not in (None, group.enabled):
            continue
        for machine in of_group:
            if (
                given.gone in (None, not machine.alive)
                and given.not_back in (None, machine.alive and machine.not_back is not None)
                and (given.coverage is None or covered(machine, given.coverage))
                and (not labels or matches(labels, labels_of(group, machine)))
            ):
                yield group, machine


def groups(groups: Iterable[Group], labels: Selector, given: GroupQuery) -> Iterator[Group]:
    for group in groups:
        if (
            given.kind in (None, group.kind.value)
            and given.enabled in (None, group.enabled)
            and matches(labels, group.labels)
        ):
            yield group


def hosts(
    hosts: Iterable[Host],
    labels: Selector,
    given: HostQuery,
    node_of: Callable[[Host], HostNode | None],
) -> Iterator[Host]:
    for host in hosts:
        if given.health in (None, host.health.value) and matches(labels, host.labels):
            node = None if given.node is None else node_of(host)
            if given.node in (None, NO_NODE if node is None else node.state.value):
                yield host


def rollouts(
    summaries: Iterable[RolloutSummary], state: str | None, after: tuple[bool, int, str] | None
) -> Iterator[RolloutSummary]:
    """Yield the rollouts in progress, then those that have ended, each the latest first."""
    for summary in sorted(summaries, key=rollout_key):
        if (after is None or rollout_key(summary) > after) and state in (None, summary.state):
            yield summary


def rollout_key(summary: RolloutSummary) -> tuple[bool, int, str]:
    """Return the sort key of a rollout in its list."""
    rollout = summary.rollout
    return rollout.ended_at is not None, -rollout.created_at, rollout.id


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on an event, all of which must hold; None: any."""

    group: str | None = None
    machine: str | None = None
    host: str | None = None
    type: EventType | None = None
    status: Status | None = None
    source: Source | None = None
    cause: str | None = None
    rollout: str | None = None
    raised_since: Time | None = None
    start: Time | None = None  # with a NotBefore from here on
    end: Time | None = None  # and before this
    past: bool = False
    sees: Callable[[str], bool] = lambda _: True
    labelled: Callable[[Event], bool] = lambda _: True

    def __call__(self, event: Event) -> bool:
        return (
            self.group in (None, event.group)
            and (self.machine is None or self.machine in event.resources)
            and self.host in (None, event.host)
            and self.type in (None, event.type)
            and self.status in (None, event.status)
            and self.source in (None, event.source)
            and self.cause in (None, event.cause)
            and (self.rollout is None or caused(event.cause) == self.rollout)
            and (self.raised_since is None or event.raised_at >= self.raised_since)
            and (self.start is None or event.not_before >= self.start)
            and (self.end is None or event.not_before < self.end)
            and self.sees(event.group)
            and self.labelled(event)
        )

    @property
    def over(self) -> bool:
        """Whether to include events that are over."""
        return self.past or (self.status is not None and self.status.over)


def labelled(selector: Selector, groups: Mapping[str, Group]) -> Callable[[Event], bool]:
    """Return whether an event affects a machine with these labels."""

    def affects(event: Event) -> bool:
        group = groups.get(event.group)
        if not selector or group is None:
            return not selector
        machines = group.named(event.resources).values()
        return any(matches(selector, labels_of(group, machine)) for machine in machines)

    return affects


EventKey = tuple[bool, int, str]  # sort key: whether it is over, when it was raised, its id


async def events(
    platform: Platform, criteria: EventFilter, after: EventKey | None
) -> AsyncIterator[Event]:
    """Yield active events in the order they were raised, then the others, the latest first."""
    if after is None or not after[0]:
        async for event in matching(_active_after(platform.active(), after), criteria):
            yield event
    if criteria.over:
        async for event in _past(platform, criteria.group, after if after and after[0] else None):
            if criteria.raised_since is not None and event.raised_at < criteria.raised_since:
                return
            if criteria(event):
                yield event


async def events_by_start(
    platform: Platform, criteria: EventFilter, after: StartKey | None
) -> AsyncIterator[Event]:
    """Yield active events in the order in which they may start."""
    starts = platform.active_by_start(criteria.start, criteria.end, after)
    async for event in matching(starts, criteria):
        yield event


async def matching(events: Iterable[Event], criteria: EventFilter) -> AsyncIterator[Event]:
    """Yield the events that match, and let others go on meanwhile if there are many."""
    for number, event in enumerate(events, 1):
        if criteria(event):
            yield event
        if number % ACTIVE_AT_ONCE == 0:
            await guard.pause(0)


def _active_after(active: list[Event], after: EventKey | None) -> list[Event]:
    """Return the active events after the previous page. If its last event is no longer active,
    start with those raised at the same instant: an event may be listed twice, but none is left
    out."""
    if after is None:
        return active
    ids = [event.id for event in active]
    if after[2] in ids:
        return active[ids.index(after[2]) + 1 :]
    return [event for event in active if event.raised_at >= after[1]]


async def _past(
    platform: Platform, group: str | None, after: EventKey | None
) -> AsyncIterator[Event]:
    before: str | None = None
    latest: Any = None  # events raised later than this have been listed
    if after is not None:
        known = await platform.events([after[2]])
        before, latest = (after[2], None) if known else (None, after[1])
    while True:
        page = await platform.past(group, PAST_AT_ONCE, before)
        for event in page:
            if latest is None or event.raised_at <= latest:
                yield event
        if len(page) < PAST_AT_ONCE:
            return
        before = page[-1].id


def event_key(event: Event) -> EventKey:
    """Return the sort key of an event in its list."""
    return event.status.over, event.raised_at, event.id
