"""The api-versions of the scheduled events endpoint, as a table of what each version shows.

A new version is a new row, and so is a new event type, which all versions from a given one on show.
Code outside this file refers to no version by name, except to the newest.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class EventTypeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An EventType as documents name it, and what it does to a machine."""

    name: str
    since: str  # the first version that shows it
    restarts: bool = False  # the machine reboots
    deletes: bool = False  # the machine no longer exists afterwards


FREEZE = "Freeze"
PREEMPT = "Preempt"

EVENT_TYPES: tuple[EventTypeInfo, ...] = (
    EventTypeInfo(name=FREEZE, since="2017-03-01"),
    EventTypeInfo(name="Reboot", since="2017-03-01", restarts=True),
    EventTypeInfo(name="Redeploy", since="2017-03-01", restarts=True),
    EventTypeInfo(name=PREEMPT, since="2017-11-01", deletes=True),
    EventTypeInfo(name="Terminate", since="2019-01-01", deletes=True),
)
TYPE_NAMES: tuple[str, ...] = tuple(type.name for type in EVENT_TYPES)
RESTARTING: tuple[str, ...] = tuple(type.name for type in EVENT_TYPES if type.restarts)
DELETING: tuple[str, ...] = tuple(type.name for type in EVENT_TYPES if type.deletes)


class Version(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    preview: bool = False
    """ISO 8601 times, a leading underscore on IaaS names, POST without the Metadata header."""
    description: bool = True
    event_source: bool = True
    duration: bool = True

    @property
    def types(self) -> tuple[str, ...]:
        return _TYPES[self.name]

    def resource(self, name: str, *, iaas: bool) -> str:
        """Return a machine's name as this version shows it."""
        return f"_{name}" if self.preview and iaas else name


VERSIONS: tuple[Version, ...] = (
    Version(
        name="2017-03-01",
        preview=True,
        description=False,
        event_source=False,
        duration=False,
    ),
    Version(name="2017-08-01", description=False, event_source=False, duration=False),
    Version(
        name="2017-11-01",
        description=False,
        event_source=False,
        duration=False,
    ),
    Version(name="2019-01-01", description=False, event_source=False, duration=False),
    Version(name="2019-04-01", event_source=False, duration=False),
    Version(name="2019-08-01", duration=False),
    Version(name="2020-07-01"),
)

_TYPES: Mapping[str, tuple[str, ...]] = {
    version.name: tuple(type.name for type in EVENT_TYPES if type.since <= version.name)
    for version in VERSIONS
}
BY_NAME: Mapping[str, Version] = {version.name: version for version in VERSIONS}
NEWEST: Version = VERSIONS[-1]
