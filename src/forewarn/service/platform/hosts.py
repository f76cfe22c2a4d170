"""Hosts, and what happens to the machines on them: maintenance, evacuation, degraded hardware,
sudden failure, repair.

A host is worked on once: its maintenance is one event for each group on it, and all of them go
together (core/deciding/joint.py). Machines that can go separately get separate events.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import msgspec

from forewarn.core import Event, EventType, Machine, Refused, Status, Time
from forewarn.core import commands as c
from forewarn.core.deciding.holds import Hold
from forewarn.core.events import UNKNOWN_DURATION, Joint, Span
from forewarn.core.fleet import Health, Host
from forewarn.core.labels import Selector, matches
from forewarn.core.refusal import conflict, unknown
from forewarn.core.registry import Put
from forewarn.core.time import DAY, Duration
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.platform.explain import says
from forewarn.service.platform.host_health import (
    Check,
    another,
    any_of,
    became,
    cannot_become,
    overtaken,
)
from forewarn.service.platform.host_impact import Affected, affected_by, changed, not_listening
from forewarn.service.platform.platform import Outcomes, Platform
from forewarn.store.port import States, Store
from forewarn.support.suggest import instead_of
from forewarn.support.text import listing

DEGRADED_NOTICE: Duration = 7 * DAY

MAINTENANCE_SECONDS = 9  # what a pause for a host's update takes
MIGRATION_SECONDS = 5  # and one for a live migration

DESCRIPTIONS = {
    "maintenance": "Host server is undergoing maintenance.",
    "migration": "Virtual machine is being paused because of a memory-preserving Live Migration"
    " operation.",
    "repair": "Host server is undergoing an emergency repair.",
}


class MaintenanceMode(enum.Enum):
    """What an update of a host means for the machines on it."""

    FREEZE = "Freeze"
    REBOOT = "Reboot"
    LIVE_MIGRATION = "live-migration"


class HostPlan(msgspec.Struct, frozen=True):
    """Events that go together, or one that goes alone, and what they wait for."""

    events: tuple[Event, ...]
    holds: tuple[Hold, ...]
    says: str


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is going on with a host, and what that waits for."""

    host: Host
    machines: tuple[str, ...]
    says: str
    plans: tuple[HostPlan, ...] = ()


class Hosts:
    def __init__(self, store: Store, platform: Platform, host_index: HostIndex) -> None:
        self._store = store
        self._platform = platform
        self._host_index = host_index

    def through(self, platform: Platform) -> Hosts:
        return Hosts(self._store, platform, self._host_index)

    def host(self, name: str) -> Host | Refused:
        hosts = self._store.registry.hosts
        return hosts.get(name) or unknown(f"no host '{name}'; {instead_of(name, list(hosts))}")

    def hosts(self, selector: Selector | None = None) -> list[Host]:
        hosts = self._store.registry.hosts.values()
        return [host for host in hosts if selector is None or matches(selector, host.labels)]

    def machines_on(self, name: str) -> list[Machine]:
        return self._host_index.machines_on(name)

    def events_about(self, name: str) -> list[Event]:
        return self._host_index.events_about(name)

    async def maintain(
        self,
        name: str,
        how: MaintenanceMode,
        by: str,
        *,
        evacuate: bool = False,
        notice: Duration | None = None,
        not_before: Time | None = None,
        short_notice: bool = False,
        description: str | None = None,
        duration: int | None = None,
        span: Span | None = None,
        cause: str = "",
        unless: Check = lambda _: None,
    ) -> Outcomes | Refused:
        """An update of the host: all its groups at one instant, or its machines one by one.
        `unless` is asked in the moment of the commit."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        affected = affected_by(self._store, self._host_index, name)
        if pending := self.events_about(name):
            return conflict(
                f"for host '{name}' this is planned or under way already:"
                f" {listing([f'{event.type.value} {event.id}' for event in pending])}"
            )
        if not affected:
            return Outcomes((), (f"no machine is on host '{name}': nobody has to be told",))
        one_by_one = evacuate or how is MaintenanceMode.LIVE_MIGRATION
        words = c.Raise(
            id="",
            type=EventType.FREEZE if one_by_one else EventType(how.value),
            machines=(),
            by=by,
            notice=notice,
            not_before=not_before,
            short_notice=short_notice,
            description=DESCRIPTIONS["migration" if one_by_one else "maintenance"]
            if description is None
            else description,
            duration=_impact(how, one_by_one) if duration is None else duration,
            host=name,
            span=span,
            moves=one_by_one,
            cause=cause or f"host/{name}/{self._platform.new_id()}",
        )
        commands = (
            self._one_by_one(affected, words) if one_by_one else self._jointly(affected, words)
        )
        if isinstance(commands, Refused):
            return commands
        unless = any_of(unless, changed(self._host_index, name, affected))
        return await self._platform.announce_all(commands, not_listening(affected), unless=unless)

    def _one_by_one(
        self, affected: Affected, words: c.Raise
    ) -> list[tuple[str, c.Command]] | Refused:
        commands: list[tuple[str, c.Command]] = []
        for group, machines in affected:
            for machine in machines:
                if not self._host_index.free_for(group.name, machine.name):
                    return conflict(
                        f"machine '{machine.name}' has nowhere to go: there is no other healthy"
                        " host that nothing is planned for"
                    )
                commands.append((group.name, self._words_for(words, machine.name)))
        return commands

    def _jointly(self, affected: Affected, words: c.Raise) -> list[tuple[str, c.Command]] | Refused:
        for group, machines in affected:
            domains = {machine.update_domain for machine in machines}
            if len(domains) > 1:
                first = machines[0]
                move = next(m for m in machines if m.update_domain != first.update_domain)
                return conflict(
                    f"host '{words.host}' is worked on once, but of group '{group.name}' it has"
                    f" machines of two update domains: '{first.name}' of {first.update_domain}"
                    f" and '{move.name}' of {move.update_domain}. Move '{move.name}' away first"
                    f" (forewarn machine redeploy {move.name}), or empty the host machine by"
                    " machine (--evacuate)"
                )
        joint = Joint(words.cause, tuple(group.name for group, _ in affected))
        return [
            (
                group.name,
                msgspec.structs.replace(
                    words,
                    id=self._platform.new_id(),
                    machines=tuple(machine.name for machine in machines),
                    joint=joint,
                ),
            )
            for group, machines in affected
        ]

    def _words_for(self, words: c.Raise, *machines: str) -> c.Raise:
        return msgspec.structs.replace(words, id=self._platform.new_id(), machines=machines)

    async def degrade(
        self, name: str, by: str, *, notice: Duration = DEGRADED_NOTICE, note: str = ""
    ) -> Outcomes | Refused:
        """The hardware is about to fail: every machine is to be moved away in good time."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        affected = affected_by(self._store, self._host_index, name)
        if no := cannot_become(host, Health.DEGRADED):
            return no
        words = c.Raise(
            id="",
            type=EventType.REDEPLOY,
            machines=(),
            by=by,
            notice=notice,
            description=DESCRIPTIONS["repair"],
            host=name,
            cause=f"{_degrading(name)}{self._platform.new_id()}",
        )
        commands = [
            (group.name, self._words_for(words, machine.name))
            for group, machines in affected
            for machine in machines
        ]
        return await self._platform.announce_all(
            commands,
            not_listening(affected) if affected else ("no machine is on it",),
            puts=self._became(name, Health.DEGRADED, by, note),
            unless=self._overtaken(name, Health.DEGRADED, affected),
        )

    async def fail(self, name: str, by: str, *, note: str = "") -> Outcomes | Refused:
        """The host is gone all of a sudden, and with it every machine on it."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        affected = affected_by(self._store, self._host_index, name)
        if no := cannot_become(host, Health.FAILED):
            return no
        cause = f"host/{name}/failure/{self._platform.new_id()}"
        commands: list[tuple[str, c.Command]] = []
        for group, machines in affected:
            for domain in sorted({machine.update_domain for machine in machines}):
                names = tuple(m.name for m in machines if m.update_domain == domain)
                strike = c.Fail(
                    id=self._platform.new_id(),
                    type=EventType.REDEPLOY,
                    machines=names,
                    by=by,
                    cause=cause,
                    host=name,
                )
                commands.append((group.name, strike))
        return await self._platform.announce_all(
            commands,
            not_listening(affected) if affected else ("no machine is on it",),
            puts=self._became(name, Health.FAILED, by, note),
            unless=self._overtaken(name, Health.FAILED, affected),
        )

    async def repair(self, name: str, by: str) -> Outcomes | Refused:
        """The host is well again: what was planned because it was not is withdrawn."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        if no := cannot_become(host, Health.HEALTHY):
            return no
        planned = [e for e in self.events_about(name) if e.cause.startswith(_degrading(name))]
        commands: list[tuple[str, c.Command]] = [
            (event.group, c.Cancel(id=event.id, by=by, why=f"host '{name}' is repaired"))
            for event in planned
            if event.status is Status.SCHEDULED
        ]
        notes = [
            f"{event.id} has started and goes on"
            for event in planned
            if event.status is Status.STARTED
        ]
        return await self._platform.announce_all(
            commands,
            tuple(notes),
            puts=self._became(name, Health.HEALTHY, by, ""),
            unless=another(host),
        )

    def explain(self, name: str) -> HostReport | Refused:
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        machines = self.machines_on(name)
        together: dict[str, list[Event]] = {}
        for event in self.events_about(name):
            together.setdefault(event.joint.id if event.joint else event.id, []).append(event)
        plans = []
        for events in together.values():
            lead = next((event for event in events if event.attempt is not None), events[0])
            holds = self._platform.holds(lead)
            plans.append(HostPlan(tuple(events), holds, says(lead, holds)))
        return HostReport(
            host=host,
            machines=tuple(machine.name for machine in machines),
            says=_state_of(host, machines, [event for plan in plans for event in plan.events]),
            plans=tuple(plans),
        )

    def _became(
        self, name: str, health: Health, by: str, note: str
    ) -> Callable[[States], Sequence[Put]]:
        return became(name, health, by, note, lambda: self._platform.writer.now().at)

    def _overtaken(self, name: str, health: Health, affected: Affected) -> Check:
        return any_of(
            overtaken(name, health),
            changed(self._host_index, name, affected, also_planned=True),
        )


def _impact(how: MaintenanceMode, one_by_one: bool) -> int:
    if one_by_one:
        return MIGRATION_SECONDS
    return MAINTENANCE_SECONDS if how is MaintenanceMode.FREEZE else UNKNOWN_DURATION


def _degrading(host: str) -> str:
    return f"host/{host}/degraded/"


def _state_of(host: Host, machines: Sequence[Machine], events: Sequence[Event]) -> str:
    state = host.health.value + (f" ({host.note})" if host.note else "")
    if not machines:
        where = "no machine is on it; it can be worked on at any time"
    else:
        where = f"{_count(machines, 'machine')} on it"
    if not events:
        return f"{state}; {where}; nothing is planned for it"
    begun = sum(event.status is Status.STARTED for event in events)
    told = {name for event in events for name in event.resources}
    late = [machine.name for machine in machines if machine.name not in told]
    untold = f"; not told, since they came later: {listing(late)}" if late else ""
    return f"{state}; {where}; {_count(events, 'event')} about it, {begun} started{untold}"


def _count(things: Sequence[object], name: str) -> str:
    return f"1 {name}" if len(things) == 1 else f"{len(things)} {name}s"
