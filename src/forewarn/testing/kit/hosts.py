"""`Host`: maintenance, degraded hardware, failure and repair of a host."""

from __future__ import annotations

from typing import Any

from forewarn.core.fleet import Host as Record
from forewarn.service.platform.hosts import DEGRADED_NOTICE, MAINTENANCE_MODES
from forewarn.testing.durations import Duration, in_microseconds, whole_seconds
from forewarn.testing.errors import RefusedError, allowed
from forewarn.testing.kit.events import Event, event_type, events_from
from forewarn.testing.kit.machines import Machine
from forewarn.testing.kit.requests import Requests
from forewarn.testing.names import EventType, MaintenanceMode


class Host:
    """One host: its maintenance, degraded hardware, failure and repair."""

    name: str
    """Its name."""

    def __init__(self, session: Any, name: str) -> None:  # Any: what it is, is not for users
        self._session: Requests = session
        self.name = name

    @property
    def _record(self) -> Record:
        record: Record = allowed(self._session.call(self._session.node.hosts.host, self.name))
        return record

    @property
    def health(self) -> str:
        """The health of the host: `healthy`, `degraded` or `failed`."""
        return self._record.health.value

    @property
    def machines(self) -> list[Machine]:
        """The machines that are on the host now."""
        present = self._session.call(self._session.node.hosts.machines_on, self.name)
        return [Machine(self._session, machine.name) for machine in present]

    @property
    def events(self) -> list[Event]:
        """The events that the host causes and that are not over."""
        about = self._session.call(self._session.node.hosts.events_about, self.name)
        return [Event(self._session, record) for record in about]

    def maintain(
        self,
        type: MaintenanceMode = "Freeze",
        *,
        evacuate: bool = False,
        notice: Duration | None = None,
        short_notice: bool = False,
        description: str | None = None,
        duration: Duration | None = None,
    ) -> tuple[Event, ...]:
        """Announce maintenance of the host: one event for each group on it, which start together.

        Args:
            type: What the maintenance does to the machines.
            evacuate: Empty the host machine by machine instead: a Freeze for each machine.
            notice: The time until NotBefore, as seconds, a timedelta or text such as `"20m"`; by
                default the minimum of the type.
            short_notice: Allow less notice than the type promises.
            description: The text that documents show.
            duration: The expected duration of the impact, in whole seconds or as a timedelta; -1 if
                it is not known.

        Raises:
            RefusedError: A group has machines of several update domains on the host, or the notice
                is too short.
        """
        modes = {name.lower(): mode for name, mode in MAINTENANCE_MODES.items()}
        if type.lower() not in modes:
            names = ", ".join(MAINTENANCE_MODES)
            raise RefusedError(f"a host's maintenance is one of {names}, not '{type}'")
        return events_from(
            self._session,
            self._session.node.hosts.maintain(
                *(self.name, modes[type.lower()], "test"),
                evacuate=evacuate,
                notice=None if notice is None else in_microseconds(notice),
                short_notice=short_notice,
                description=description,
                duration=None if duration is None else whole_seconds(duration),
            ),
        )

    def degrade(self, *, notice: Duration | None = None, note: str = "") -> tuple[Event, ...]:
        """Report that the host's hardware is about to fail: a Redeploy for each machine on it.

        Args:
            notice: The time until NotBefore, as seconds, a timedelta or text; by default 7 days.
            note: What is wrong with the host, for the history.

        Raises:
            RefusedError: The host has failed already.
        """
        until = DEGRADED_NOTICE if notice is None else in_microseconds(notice)
        hosts = self._session.node.hosts
        work = hosts.degrade(self.name, "test", notice=until, note=note)
        return events_from(self._session, work)

    def fail(self, note: str = "", type: EventType = "Redeploy") -> tuple[Event, ...]:
        """Let the host fail without notice: an event for each group on it, Started at once.

        Args:
            note: What is wrong with the host, for the history.
            type: The type of the events: Freeze, Reboot or Redeploy, the default.

        Raises:
            RefusedError: The host has failed already, or this type of event cannot be a failure.
        """
        fail = self._session.node.hosts.fail
        return events_from(self._session, fail(self.name, "test", note=note, type=event_type(type)))

    def repair(self) -> tuple[Event, ...]:
        """Report the host healthy again, and withdraw what was planned because it was not.

        Raises:
            RefusedError: The host is healthy.
        """
        return events_from(self._session, self._session.node.hosts.repair(self.name, "test"))

    def explain(self) -> str:
        """Return a sentence about what the host's maintenance is waiting for."""
        text: str = allowed(self._session.call(self._session.node.hosts.explain, self.name)).message
        return text

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<host {self.name}>"
