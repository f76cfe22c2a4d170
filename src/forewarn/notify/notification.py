"""Notifications: which changes of a commit a table selects, and what is sent about them.

There is one notification for each commit and kind of change, so that the maintenance of a host with
machines of ten groups is announced once. Its id depends on nothing but the table, the commit and
the kind: it is the same whenever it is sent again.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from forewarn.control.schema.feed import FeedChange, FeedCommit
from forewarn.control.views import azure
from forewarn.control.views import feed as views
from forewarn.core import Event, Group
from forewarn.core.fleet import Host
from forewarn.core.labels import Term, labels_of, matches, parse
from forewarn.notify import kinds as k
from forewarn.notify.config import EventGrid, Notify

_STATUSES = uuid.UUID("8a5f6d0e-0d3b-5b0a-9a55-5f1f7d0c2e61")  # namespace of ids
MAX_COMBINED = 100  # notifications whose details are in one message; others are counted


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one kind in one commit."""

    what: str
    commit: FeedCommit
    resource: dict[str, Any] | None = None  # an event, as Azure publishes it

    @property
    def at(self) -> datetime:
        return self.commit.at


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that were not sent because they were too old, or are no longer stored."""

    count: int  # of notifications
    unknown: bool = False  # there may be more, which are no longer stored
    since: datetime | None = None  # of the first
    until: datetime | None = None  # of the last


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent at once: one notification, or for people all that waited."""

    id: str
    what: str  # of all its notifications, if they agree; otherwise of the most severe one
    at: datetime
    notifications: Sequence[Notification] = ()
    more: Mapping[str, int] = {}  # by kind: further ones, which are only counted
    skipped: Skipped | None = None

    @property
    def severity(self) -> str:
        return k.severity(self.what)

    @property
    def count(self) -> int:
        return len(self.notifications) + sum(self.more.values())


class Selection:
    """The filters of a table."""

    def __init__(self, table: Notify) -> None:
        self._target = table.target
        self._kinds = frozenset(
            kind for kind in table.wanted_kinds if k.at_least(kind, table.severity)
        )
        self._groups = frozenset(table.groups)
        owner = (Term("owner", table.owner),) if table.owner else ()
        self._selector = (*parse(table.label), *owner)

    def notifications(
        self, commit: FeedCommit, groups: Mapping[str, Group], hosts: Mapping[str, Host]
    ) -> list[Notification]:
        """Return the notifications of a commit, in the order of its changes."""
        selected: dict[str, set[int]] = {}
        for change in commit.changes:
            if change.what in self._kinds and self._selects(change, groups, hosts):
                selected.setdefault(change.what, set()).add(id(change))
        return [
            Notification(what=what, commit=views.filtered(commit, _among(own)))
            for what, own in selected.items()
        ]

    def published(
        self, commit: FeedCommit, events: Iterable[Event], groups: Mapping[str, Group]
    ) -> list[Notification]:
        """Return one notification for each event that has another status and is published."""
        what = {
            change.event: change.what
            for change in commit.changes
            if change.what in k.STATUS_CHANGES
            and change.what in self._kinds
            and self._selects(change, groups, {})
        }
        resources = {
            event.id: azure.event_resource(azure.event_owner(group, event), group, event)
            for event in events
            if event.id in what and (group := groups.get(event.group)) is not None
            if azure.is_published(group, event)
        }
        assert isinstance(self._target, EventGrid)
        prefix = self._target.subject_begins_with.lower()
        return [
            Notification(what=what[id], commit=commit, resource=resource)
            for id, resource in resources.items()
            if resource["id"].lower().startswith(prefix)
        ]

    def _selects(
        self, change: FeedChange, groups: Mapping[str, Group], hosts: Mapping[str, Host]
    ) -> bool:
        if self._groups and change.group not in self._groups:
            return False
        if not self._selector:
            return True
        if change.group:
            group = groups.get(change.group)
            if group is None:
                return False
            machines = group.named(change.machines).values()
            # A machine that was removed from the inventory has the labels of its group.
            labels = [labels_of(group, machine) for machine in machines] or [group.labels]
            return any(matches(self._selector, of_machine) for of_machine in labels)
        host = hosts.get(change.host)
        return host is not None and matches(self._selector, host.labels)


def _among(ids: set[int]) -> Callable[[FeedChange], bool]:
    return lambda change: id(change) in ids


def single(origin: str, notification: Notification) -> Message:
    id = f"{origin}-{notification.commit.seq}-{notification.what}"
    if (resource := notification.resource) is not None:  # the same in all tables, as in Azure
        id = str(
            uuid.uuid5(_STATUSES, f"{resource['name']}/{resource['properties']['EventStatus']}")
        )
    return Message(
        id=id,
        what=notification.what,
        at=notification.at,
        notifications=(notification,),
    )


def combined(
    origin: str,
    notifications: Sequence[Notification],
    more: Counter[str],
    skipped: Skipped | None,
    until: int,
) -> Message:
    """Return one message about several notifications, the last of which is in commit `until`."""
    if len(notifications) == 1 and not more and skipped is None:
        return single(origin, notifications[0])
    first = notifications[0]
    whats = {notification.what for notification in notifications} | more.keys()
    worst = max(whats, key=lambda what: k.SEVERITIES.index(k.severity(what)))
    return Message(
        id=f"{origin}-{first.commit.seq}-{until}",
        what=next(iter(whats)) if len(whats) == 1 else worst,
        at=notifications[-1].at,
        notifications=tuple(notifications),
        more=dict(more),
        skipped=skipped,
    )


def about_skipped(origin: str, skipped: Skipped, after: int, at: datetime) -> Message:
    return Message(id=f"{origin}-{after}-{k.SKIPPED}", what=k.SKIPPED, at=at, skipped=skipped)


def test_message(origin: str, at: datetime) -> Message:
    return Message(id=f"{origin}-{k.TEST}-{at.timestamp():.6f}", what=k.TEST, at=at)
