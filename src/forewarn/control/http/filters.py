"""Filters of the lists, each in an order that does not change when items come or go, and starting
where the page before ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import msgspec

from forewarn.control.http.paging import natural
from forewarn.core import Event, Group, Machine, Status, Time
from forewarn.core.events import EventType, Source
from forewarn.core.fleet import GroupKind, Health, Host
from forewarn.core.labels import Selector, labels_of, matches
from forewarn.core.rollouts.model import caused
from forewarn.service.platform.platform import Platform
from forewarn.service.rollouts.rollouts import RolloutSummary

PAST_AT_ONCE = 500  # events that are over, read from the store at a time


class MachineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Criteria that must all hold."""

    labels: Selector = ()
    host: str | None = None
    gone: bool | None = None
    listening: bool | None = None
    health: Health | None = None  # of the host it is on


def machines(
    groups: Iterable[Group],
    wanted: MachineFilter,
    health: Callable[[str], Health | None],
    ends: tuple[str, str] | None,
) -> Iterator[tuple[Group, Machine]]:
    """Yield machines ordered by their group's name, then by their own."""
    last = None if ends is None else (natural(ends[0]), natural(ends[1]))
    for group in sorted(groups, key=lambda group: natural(group.name)):
        place = natural(group.name)
        if last is not None and place < last[0]:
            continue
        if wanted.listening not in (None, group.enabled):
            continue
        members = sorted(group.machines, key=lambda machine: natural(machine.name))
        for machine in members:
            if last is not None and (place, natural(machine.name)) <= last:
                continue
            if _machine_wanted(group, machine, wanted, health):
                yield group, machine


def _machine_wanted(
    group: Group,
    machine: Machine,
    wanted: MachineFilter,
    health: Callable[[str], Health | None],
) -> bool:
    return (
        wanted.host in (None, machine.host)
        and wanted.gone in (None, not machine.alive)
        and (wanted.health is None or health(machine.host) is wanted.health)
        and matches(wanted.labels, labels_of(group, machine))
    )


def groups(
    found: Iterable[Group],
    labels: Selector,
    kind: GroupKind | None,
    enabled: bool | None,
    ends: tuple[str, str] | None,
) -> Iterator[Group]:
    last = None if ends is None else natural(ends[0])
    for group in sorted(found, key=lambda group: natural(group.name)):
        if (
            (last is None or natural(group.name) > last)
            and kind in (None, group.kind)
            and enabled in (None, group.enabled)
            and matches(labels, group.labels)
        ):
            yield group


def hosts(
    found: Iterable[Host], labels: Selector, health: Health | None, ends: tuple[str, str] | None
) -> Iterator[Host]:
    last = None if ends is None else natural(ends[0])
    for host in sorted(found, key=lambda host: natural(host.name)):
        if (
            (last is None or natural(host.name) > last)
            and health in (None, host.health)
            and matches(labels, host.labels)
        ):
            yield host


def rollouts(
    found: Iterable[RolloutSummary], state: str | None, ends: tuple[bool, int, str] | None
) -> Iterator[RolloutSummary]:
    """Yield rollouts under way, then those that are over, the latest first."""
    for one in sorted(found, key=rollout_place):
        if (ends is None or rollout_place(one) > ends) and state in (None, one.state):
            yield one


def rollout_place(one: RolloutSummary) -> tuple[bool, int, str]:
    rollout = one.rollout
    return rollout.ended_at is not None, -rollout.created_at, rollout.id


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Criteria that must all hold."""

    group: str | None = None
    machine: str | None = None
    host: str | None = None
    type: EventType | None = None
    status: Status | None = None
    source: Source | None = None
    cause: str | None = None
    rollout: str | None = None
    raised_since: Time | None = None
    past: bool = False
    sees: Callable[[str], bool] = lambda _: True

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
            and self.sees(event.group)
        )

    @property
    def over(self) -> bool:
        """Whether events that are over are wanted, too."""
        return self.past or (self.status is not None and self.status.over)


Ends = tuple[bool, int, str]  # whether it was over, when it was raised, its id


async def events(
    platform: Platform, wanted: EventFilter, ends: Ends | None
) -> AsyncIterator[Event]:
    """Yield active events in the order they were raised, then the others, the latest first."""
    if ends is None or not ends[0]:
        for event in _behind(platform.active(), ends):
            if wanted(event):
                yield event
    if wanted.over:
        async for event in _past(platform, wanted.group, ends if ends and ends[0] else None):
            if wanted.raised_since is not None and event.raised_at < wanted.raised_since:
                return
            if wanted(event):
                yield event


def _behind(active: list[Event], ends: Ends | None) -> list[Event]:
    """Return the active events after the last page. If its last event is no longer active, start
    with those raised at the same instant: one may come twice, none is left out."""
    if ends is None:
        return active
    ids = [event.id for event in active]
    if ends[2] in ids:
        return active[ids.index(ends[2]) + 1 :]
    return [event for event in active if event.raised_at >= ends[1]]


async def _past(platform: Platform, group: str | None, ends: Ends | None) -> AsyncIterator[Event]:
    before: str | None = None
    skipping: Any = None
    if ends is not None:
        known = await platform.events([ends[2]])
        before, skipping = (ends[2], None) if known else (None, ends[1])
    while True:
        page = await platform.past(group, PAST_AT_ONCE, before)
        for event in page:
            if skipping is None or event.raised_at <= skipping:
                yield event
        if len(page) < PAST_AT_ONCE:
            return
        before = page[-1].id


def event_place(event: Event) -> Ends:
    return event.status.over, event.raised_at, event.id
