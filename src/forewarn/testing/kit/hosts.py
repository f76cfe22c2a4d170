"""A host in a test's hands: maintenance, degraded hardware, failure and repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.fleet import Host as Record
from forewarn.service.platform.hosts import DEGRADED_NOTICE, MaintenanceMode
from forewarn.testing.kit.errors import RefusedByService, allowed
from forewarn.testing.kit.events import Event, duration_of
from forewarn.testing.kit.machines import Machine

if TYPE_CHECKING:
    from forewarn.testing.kit.service import Service


class Host:
    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self.name = name

    @property
    def record(self) -> Record:
        found: Record = allowed(self._service.call(self._service.node.hosts.host, self.name))
        return found

    @property
    def health(self) -> str:
        """healthy, degraded or failed."""
        return self.record.health.value

    @property
    def machines(self) -> list[Machine]:
        """Those that are on it now."""
        there = self._service.call(self._service.node.hosts.machines_on, self.name)
        return [Machine(self._service, machine.name) for machine in there]

    @property
    def events(self) -> list[Event]:
        """What is planned or under way because of it."""
        about = self._service.call(self._service.node.hosts.events_about, self.name)
        return [Event(self._service, record) for record in about]

    def maintain(
        self,
        type: str = "Freeze",
        *,
        evacuate: bool = False,
        notice: str | float | None = None,
        short_notice: bool = False,
        description: str | None = None,
        duration: int | None = None,
    ) -> tuple[Event, ...]:
        """An update of the host: `Freeze`, `Reboot` or `live-migration`. One event for each group
        on it, and all of them go together; one for each machine if they are moved away."""
        hows = {how.value.lower(): how for how in MaintenanceMode}
        if type.lower() not in hows:
            kinds = ", ".join(how.value for how in MaintenanceMode)
            raise RefusedByService(f"a host's maintenance is one of {kinds}, not '{type}'")
        return self._service.did_all(
            self._service.node.hosts.maintain(
                *(self.name, hows[type.lower()], "test"),
                evacuate=evacuate,
                notice=None if notice is None else duration_of(notice),
                short_notice=short_notice,
                description=description,
                duration=duration,
            )
        )

    def degrade(self, *, notice: str | float | None = None, note: str = "") -> tuple[Event, ...]:
        """Its hardware is about to fail: a Redeploy for each machine, in seven days if no notice
        is said."""
        until = DEGRADED_NOTICE if notice is None else duration_of(notice)
        hosts = self._service.node.hosts
        return self._service.did_all(hosts.degrade(self.name, "test", notice=until, note=note))

    def fail(self, note: str = "") -> tuple[Event, ...]:
        """It is gone all of a sudden: a Redeploy for each group on it, Started at once."""
        return self._service.did_all(self._service.node.hosts.fail(self.name, "test", note=note))

    def repair(self) -> tuple[Event, ...]:
        """It is well again: what was planned because it was not is withdrawn."""
        return self._service.did_all(self._service.node.hosts.repair(self.name, "test"))

    def explain(self) -> str:
        says: str = allowed(self._service.call(self._service.node.hosts.explain, self.name)).says
        return says

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<host {self.name}>"
