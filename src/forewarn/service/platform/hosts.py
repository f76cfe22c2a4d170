"""The operators' verbs for hosts: maintenance, evacuation, degraded hardware, failure, repair.

A host is worked on once: its maintenance is one event for each group on it, and all of them go
together (core/deciding/joint.py). Machines that can go separately get separate events.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from forewarn.core import Event, EventType, Machine, Refused, Status, Time
from forewarn.core import commands as c
from forewarn.core.deciding.holds import Hold
from forewarn.core.events import FAILURE_TYPE, UNKNOWN_DURATION, Joint, types_that
from forewarn.core.fleet import REVOKED, Health, Host, domain_name
from forewarn.core.labels import Selector, matches
from forewarn.core.refusal import Hint, conflict, unknown_name
from forewarn.core.registry import HostPut, Put
from forewarn.core.rollouts import model
from forewarn.core.time import DAY, Duration
from forewarn.core.windows.model import Span
from forewarn.service.engine.writer import Check, RequestContext
from forewarn.service.indexes.host_drivers import HostDriver
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.platform.explain import summary
from forewarn.service.platform.host_state import (
    Affected,
    affected_by,
    disputed_notes,
    first_refusal,
    health_check,
    health_problem,
    known_check,
    machines_changed,
    not_enabled,
    placement_problem,
    revoked,
    unchanged_check,
    with_cordon,
    with_health,
    with_node,
)
from forewarn.service.platform.platform import Outcomes, Platform
from forewarn.store.port import States, Store
from forewarn.support.text import counted, listing, utc

BY_NODE = "node"  # who has joined, in the history
DEGRADED_NOTICE: Duration = 7 * DAY

MAINTENANCE_SECONDS = 9  # pause of a machine during an update of its host
MIGRATION_SECONDS = 5  # pause of a machine during a live migration

DESCRIPTIONS = {
    "maintenance": "Host server is undergoing maintenance.",
    "migration": "Virtual machine is being paused because of a memory-preserving Live Migration"
    " operation.",
    "repair": "Host server is undergoing an emergency repair.",
}


class LiveMigration(enum.Enum):
    """That maintenance of a host moves each machine on it to another host."""

    LIVE_MIGRATION = model.LIVE_MIGRATION


LIVE_MIGRATION = LiveMigration.LIVE_MIGRATION

# What maintenance of a host means for the machines on it: an event of a type that they share, or a
# live migration of each.
MaintenanceMode: TypeAlias = EventType | LiveMigration
MAINTENANCE_MODES: Mapping[str, MaintenanceMode] = {
    **{type.value: type for type in types_that(lambda traits: traits.host_maintenance)},
    LIVE_MIGRATION.value: LIVE_MIGRATION,
}


class NodeState(enum.Enum):
    """Whether the node of a host is connected to control."""

    JOINED = "joined"
    DISCONNECTED = "disconnected"  # it is cut off: its machines cannot be informed
    UNKNOWN = "unknown"  # to this control node, because it does not decide


class HostNode(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the node of a host."""

    state: NodeState
    since: Time | None = None  # of the state; None: not known
    version: str = ""  # of the node; empty: not known
    lag: Duration | None = None  # since it was sent what it has not confirmed; None: not known
    heard: Time | None = None  # when it sent something last; None: not known
    ended: str = ""  # why its last connection, before the present one, was ended; empty: not known


class HostPlan(msgspec.Struct, frozen=True):
    """Events about a host that start together, or one that starts alone, and what they wait for."""

    events: tuple[Event, ...]
    holds: tuple[Hold, ...]
    message: str


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """A host, its machines, and what is planned or under way for it."""

    host: Host
    machines: tuple[str, ...]
    message: str
    plans: tuple[HostPlan, ...] = ()
    others: tuple[Event, ...] = ()  # of machines on it, and not about the host
    if_drained: str = ""  # where its machines would go; if something is planned, nothing is said


class Hosts:
    def __init__(self, store: Store, platform: Platform, host_index: HostIndex) -> None:
        self._store = store
        self._platform = platform
        self._host_index = host_index

    def for_request(self, request: RequestContext) -> Hosts:
        """Return the same verbs, whose commits carry the context of one request."""
        return Hosts(self._store, self._platform.for_request(request), self._host_index)

    def host(self, name: str) -> Host | Refused:
        hosts = self._store.registry.hosts
        return hosts.get(name) or unknown_name("host", name, list(hosts))

    def hosts(self, selector: Selector | None = None) -> list[Host]:
        hosts = self._store.registry.hosts.values()
        return [host for host in hosts if selector is None or matches(selector, host.labels)]

    def members_on(self, names: Iterable[str]) -> dict[str, list[Machine]]:
        """Return the machines on any of these hosts, including gone ones, by their group."""
        return self._host_index.members_on(names)

    def machines_on(self, name: str) -> list[Machine]:
        return self._host_index.machines_on(name)

    @property
    def platform(self) -> Platform:
        return self._platform

    def disputed_on(self, name: str) -> list[Machine]:
        return self._host_index.disputed_on(name)

    def events_about(self, name: str) -> list[Event]:
        return self._host_index.events_about(name)

    def on_reach(self, listener: Callable[[str], None]) -> None:
        """Have a function called with each host that is cut off, has joined again, or is declared
        to be without a node."""
        self._host_index.unreachable.on_change(listener)

    def node_of(self, host: Host) -> HostNode | None:
        """Return what is known of the node of a host; None if it is not expected to have one."""
        unreachable = self._host_index.unreachable
        if not host.node:
            return None
        if not unreachable.known:
            return HostNode(state=NodeState.UNKNOWN)
        since, state = unreachable.since(host.name), NodeState.DISCONNECTED
        if since is None:
            since, state = unreachable.joined_at(host.name), NodeState.JOINED
        connection = unreachable.connection(host.name)
        if connection is None:
            return HostNode(state=state, since=since)
        return HostNode(
            state=state,
            since=since,
            version=connection.version,
            lag=connection.lag,
            heard=connection.heard,
            ended=connection.ended,
        )

    def driver_of(self, host: Host) -> HostDriver | None:
        """Return what is known of the driver process of a host; None: it has none that this control
        node knows of."""
        drivers = self._host_index.drivers
        return drivers.of(host.name) if drivers.known else None

    def unreachable(self) -> set[str]:
        """Return the hosts for whose machines nothing starts, because their node, or their driver
        process, is not connected."""
        unreachable, drivers = self._host_index.unreachable, self._host_index.drivers
        without_driver = {} if drivers.awaited else drivers.disconnected()
        return {*filter(unreachable.is_unreachable, unreachable.hosts), *without_driver}

    async def node_joined(self, name: str) -> Refused | None:
        """Record that a node has joined for a host, which is expected to have one from now on. If
        it was already, nothing is committed."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        if host.node:
            return None
        puts = with_node(name, BY_NODE, node=True)
        done = await self._platform.announce_all([], (), puts, known_check(name))
        return done if isinstance(done, Refused) else None

    async def without_node(self, name: str, by: str) -> Outcomes | Refused:
        """Record that no node serves a host any longer, so that nothing waits for it to be told."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        notes = () if host.node else (f"host '{name}' was not expected to have a node",)
        puts = with_node(name, by, node=False)
        unless = first_refusal(known_check(name), lambda _: self._node_problem(name))
        return await self._platform.announce_all([], notes, puts, unless)

    async def revoke(self, name: str, by: str) -> Outcomes | Refused:
        """Accept no certificate and no token of a host any longer, until it is enrolled anew."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        keys = {host.node_key, host.driver_key}
        revoked_before = keys == {REVOKED} and host.enrollment is None
        notes = (f"the certificates of host '{name}' were already revoked",)
        return await self._platform.announce_all(
            [], notes if revoked_before else (), revoked(name, by), known_check(name)
        )

    def _node_problem(self, name: str) -> Refused | None:
        """Refuse to do without a node that serves the machines of its host."""
        node = self.node_of(self._store.registry.hosts[name])
        if node is None or node.state is not NodeState.JOINED:
            return None
        return conflict(
            f"the node of host '{name}' has joined and serves its machines; stop it first"
        )

    async def maintain(
        self,
        name: str,
        mode: MaintenanceMode,
        by: str,
        *,
        evacuate: bool = False,
        notice: Duration | None = None,
        not_before: Time | None = None,
        short_notice: bool = False,
        ignore_windows: bool = False,
        description: str | None = None,
        duration: int | None = None,
        ticket: str = "",
        span: Span | None = None,
        cause: str = "",
        domain: int | None = None,
        only: Collection[str] | None = None,
        unless: Check = lambda _: None,
    ) -> Outcomes | Refused:
        """Announce maintenance of a host: for all its groups at one instant, or for its machines
        one by one; with `domain`, only for the machines of this update domain, and with `only`, for
        these machines. `unless` is asked in the commit and may still refuse."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        affected = affected_by(self._store, self._host_index, name)
        if pending := self.events_about(name):
            return conflict(
                f"maintenance of host '{name}' is already planned or under way:"
                f" {listing([f'{event.type.value} {event.id}' for event in pending])}; wait until"
                " it is over, or cancel it"
            )
        if problem := placement_problem(self._host_index, name):
            return problem
        puts = with_cordon(name, by, default_note="evacuated") if evacuate else lambda _: ()
        if not affected:
            notes = (f"no machine is on host '{name}': there is nothing to announce",)
            if not evacuate:
                return Outcomes((), notes)
            return await self._platform.announce_all([], notes, puts, known_check(name))
        one_by_one = evacuate or isinstance(mode, LiveMigration)
        template = c.Raise(
            id="",
            type=EventType.FREEZE if one_by_one else EventType(mode.value),
            machines=(),
            by=by,
            notice=notice,
            not_before=not_before,
            short_notice=short_notice,
            ignore_windows=ignore_windows,
            description=DESCRIPTIONS["migration" if one_by_one else "maintenance"]
            if description is None
            else description,
            duration=_impact_seconds(mode, one_by_one) if duration is None else duration,
            ticket=ticket,
            host=name,
            span=span,
            moves=one_by_one,
            cause=cause or f"host/{name}/{self._platform.new_id()}",
        )
        concerned = _narrowed(affected, domain, only)
        targets: dict[str, str] = {}
        if one_by_one:
            (targets,) = self.where_to([_names(concerned)])
            if problem := self._nowhere(concerned, targets):
                return problem
        commands = (
            self._one_by_one(concerned, template)
            if one_by_one
            else self._jointly(concerned, template, domain)
        )
        if isinstance(commands, Refused):
            return commands
        unless = first_refusal(
            unless,
            machines_changed(self._host_index, name, affected),
            lambda _: placement_problem(self._host_index, name),
            known_check(name),
        )
        return await self._platform.announce_all(
            commands,
            (*not_enabled(concerned), *self._not_listening(concerned), *_going(targets)),
            puts=puts,
            unless=unless,
        )

    async def cordon(self, name: str, by: str, *, note: str = "") -> Outcomes | Refused:
        """Let no machine be moved to a host, until `uncordon` or `put_back`."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        notes = (f"host '{name}' was already cordoned",) if host.cordoned else ()
        puts = with_cordon(name, by, note=note)
        return await self._platform.announce_all([], notes, puts, known_check(name))

    async def uncordon(self, name: str, by: str) -> Outcomes | Refused:
        """Allow machines to be moved to a host again."""
        return await self._uncordoned(name, by, [], ())

    async def put_back(self, name: str, by: str) -> Outcomes | Refused:
        """Put a host back into service: withdraw what is still planned to empty it, and let
        machines be moved to it again."""
        leaving = [event for event in self.events_about(name) if event.moves]
        commands: list[tuple[str, c.Command]] = [
            (event.group, c.Cancel(id=event.id, by=by, why=f"host '{name}' is back in service"))
            for event in leaving
            if event.status is Status.SCHEDULED
        ]
        return await self._uncordoned(name, by, commands, _continuing(leaving))

    async def _uncordoned(
        self,
        name: str,
        by: str,
        commands: list[tuple[str, c.Command]],
        notes: tuple[str, ...],
    ) -> Outcomes | Refused:
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        if not host.cordoned:
            notes = (*notes, f"host '{name}' was not cordoned")
        if not host.healthy:
            warning = f"host '{name}' is {host.health.value}, so machines are still not moved to it"
            notes = (*notes, warning)

        def puts(states: States) -> Sequence[Put]:
            current = states.registry.hosts[name]
            if not current.cordoned:
                return ()
            opened = msgspec.structs.replace(current, cordoned=None, cordon_note="")
            return (HostPut(opened, by),)

        return await self._platform.announce_all(commands, notes, puts, known_check(name))

    def _one_by_one(self, affected: Affected, template: c.Raise) -> list[tuple[str, c.Command]]:
        return [
            (group.name, self._for_machines(template, machine.name))
            for group, machines in affected
            for machine in machines
        ]

    def where_to(self, steps: Iterable[Iterable[tuple[str, str]]]) -> list[dict[str, str]]:
        """Return where machines would go now; see `Placement.forecast`."""
        return self._host_index.placement.forecast(steps)

    def _nowhere(self, affected: Affected, targets: Mapping[str, str]) -> Refused | None:
        """Refuse to move machines for which there is no host."""
        machines = [machine for _, found in affected for machine in found]
        stuck = [machine for machine in machines if not targets[machine.name]]
        if not stuck:
            return None
        one, names = len(stuck) == 1, listing([machine.name for machine in stuck])
        others = "".join(f"; {note}" for note in _going(targets))
        return conflict(
            f"{'machine' if one else 'machines'} {names} cannot move: there is no other healthy"
            f" host with room for {'it' if one else 'all of them'} that is not cordoned and for"
            f" which nothing is planned{self._not_offered(stuck[0])}{others}"
        )

    def _not_offered(self, machine: Machine) -> str:
        """Return a hint about hosts that are not offered because they cannot be reached, or because
        the address of the machine is taken there."""
        index, hint = self._host_index, ""
        if unreachable := sorted(index.unreachable.all()):
            hint = f"; not offered, because their nodes are cut off: {listing(unreachable)}"
        if taken := sorted(index.placement.taken(machine) - {machine.host}):
            hint += f"; not offered, because its address is taken there: {listing(taken)}"
        return hint

    def _jointly(
        self, affected: Affected, template: c.Raise, domain: int | None
    ) -> list[tuple[str, c.Command]] | Refused:
        for group, machines in affected:
            domains = {machine.domain for machine in machines}
            if len(domains) > 1:
                first = machines[0]
                move = next(m for m in machines if m.domain != first.domain)
                return conflict(
                    f"maintenance of host '{template.host}' affects all its machines at once, but"
                    f" group '{group.name}' has machines of two update domains on it:"
                    f" '{first.name}' of {domain_name(first.domain)} and '{move.name}' of"
                    f" {domain_name(move.domain)}. Move '{move.name}' to another host first, or"
                    " evacuate the host machine by machine",
                    hint=Hint.EVACUATE,
                    about=move.name,
                )
        joint = Joint(template.cause, tuple(group.name for group, _ in affected), domain)
        return [
            (
                group.name,
                msgspec.structs.replace(
                    template,
                    id=self._platform.new_id(),
                    machines=tuple(machine.name for machine in machines),
                    joint=joint,
                ),
            )
            for group, machines in affected
        ]

    def _for_machines(self, template: c.Raise, *machines: str) -> c.Raise:
        return msgspec.structs.replace(template, id=self._platform.new_id(), machines=machines)

    async def degrade(
        self,
        name: str,
        by: str,
        *,
        notice: Duration = DEGRADED_NOTICE,
        note: str = "",
        ignore_windows: bool = False,
    ) -> Outcomes | Refused:
        """Record that a host's hardware is about to fail, and announce a redeploy of every machine
        on it: in the last window before then, or then if no window opens."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        affected = affected_by(self._store, self._host_index, name)
        if problem := health_problem(host, Health.DEGRADED):
            return problem
        template = c.Raise(
            id="",
            type=EventType.REDEPLOY,
            machines=(),
            by=by,
            notice=notice,
            description=DESCRIPTIONS["repair"],
            host=name,
            ignore_windows=ignore_windows,
            deadline=True,
            cause=f"{_degraded_cause(name)}{self._platform.new_id()}",
        )
        commands = [
            (group.name, self._for_machines(template, machine.name))
            for group, machines in affected
            for machine in machines
        ]
        return await self._platform.announce_all(
            commands,
            self._notes(name, affected),
            puts=self._with_health(name, Health.DEGRADED, by, note),
            unless=self._check(name, Health.DEGRADED, affected),
        )

    async def fail(
        self, name: str, by: str, *, note: str = "", type: EventType = FAILURE_TYPE
    ) -> Outcomes | Refused:
        """Record that a host has failed without notice, and with it every machine on it. Guests
        are shown an event of this type; whichever it is, the machines move to other hosts."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        affected = affected_by(self._store, self._host_index, name)
        if problem := health_problem(host, Health.FAILED):
            return problem
        cause = f"host/{name}/failure/{self._platform.new_id()}"
        commands: list[tuple[str, c.Command]] = []
        for group, machines in affected:
            for domain in sorted({machine.domain for machine in machines}):
                names = tuple(m.name for m in machines if m.domain == domain)
                failure = c.Fail(
                    id=self._platform.new_id(),
                    type=type,
                    machines=names,
                    by=by,
                    cause=cause,
                    host=name,
                )
                commands.append((group.name, failure))
        return await self._platform.announce_all(
            commands,
            self._notes(name, affected),
            puts=self._with_health(name, Health.FAILED, by, note),
            unless=self._check(name, Health.FAILED, affected),
        )

    async def repair(self, name: str, by: str) -> Outcomes | Refused:
        """Record that a host is healthy again, and withdraw what was planned because it was not."""
        host = self.host(name)
        if isinstance(host, Refused):
            return host
        if problem := health_problem(host, Health.HEALTHY):
            return problem
        planned = [e for e in self.events_about(name) if e.cause.startswith(_degraded_cause(name))]
        commands: list[tuple[str, c.Command]] = [
            (event.group, c.Cancel(id=event.id, by=by, why=f"host '{name}' is repaired"))
            for event in planned
            if event.status is Status.SCHEDULED
        ]
        return await self._platform.announce_all(
            commands,
            _continuing(planned),
            puts=self._with_health(name, Health.HEALTHY, by, ""),
            unless=unchanged_check(host),
        )

    def _notes(self, name: str, affected: Affected) -> tuple[str, ...]:
        notes = not_enabled(affected) if affected else ("no machine is on it",)
        return notes + disputed_notes(self._host_index, name)

    def _not_listening(self, affected: Affected) -> tuple[str, ...]:
        """Return a note about machines that will not see what is announced to them."""
        names = [machine.name for _, machines in affected for machine in machines]
        notes = []
        if silent := list(self._platform.not_listening(names)):
            notes.append(
                f"{len(silent):,} of {counted(len(names), 'machine')} will not be warned, because"
                f" no program there has polled in the last hour: {listing(silent)}"
            )
        return tuple(notes)

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
            plans.append(HostPlan(tuple(events), holds, summary(lead, holds)))
        names = {machine.name for machine in machines}
        about = {event.id for plan in plans for event in plan.events}
        others = (e for e in self._platform.active() if e.id not in about)
        return HostReport(
            host=host,
            machines=tuple(machine.name for machine in machines),
            others=tuple(event for event in others if names.intersection(event.resources)),
            message=_state_of(
                host,
                self.node_of(host),
                machines,
                self._host_index.disputed_on(name),
                [event for plan in plans for event in plan.events],
            ),
            plans=tuple(plans),
            if_drained="" if plans or host.health is Health.FAILED else self._if_drained(name),
        )

    def _if_drained(self, name: str) -> str:
        affected = affected_by(self._store, self._host_index, name)
        (targets,) = self.where_to([_names(affected)])
        problem = self._nowhere(affected, targets)
        return problem.message if problem is not None else "".join(_going(targets))

    def _with_health(
        self, name: str, health: Health, by: str, note: str
    ) -> Callable[[States], Sequence[Put]]:
        return with_health(name, health, by, note, lambda: self._platform.writer.now().at)

    def _check(self, name: str, health: Health, affected: Affected) -> Check:
        return first_refusal(
            health_check(name, health),
            machines_changed(self._host_index, name, affected, also_planned=True),
        )


def _narrowed(affected: Affected, domain: int | None, only: Collection[str] | None) -> Affected:
    """Return the machines of an update domain, or those with these names, if any are given."""
    narrowed = [
        (
            group,
            [
                machine
                for machine in machines
                if domain in (None, machine.domain) and (only is None or machine.name in only)
            ],
        )
        for group, machines in affected
    ]
    return [(group, machines) for group, machines in narrowed if machines]


def _names(affected: Affected) -> list[tuple[str, str]]:
    return [(group.name, machine.name) for group, machines in affected for machine in machines]


def _going(targets: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note about where machines would go now."""
    hosts = Counter(target for target in targets.values() if target)
    if not hosts:
        return ()
    numbers = listing([f"{number:,} to {host}" for host, number in hosts.most_common()])
    return (f"as things are, {counted(hosts.total(), 'machine')} can move: {numbers}",)


def _continuing(events: Sequence[Event]) -> tuple[str, ...]:
    return tuple(
        f"{event.id} has started and will continue"
        for event in events
        if event.status is Status.STARTED
    )


def _impact_seconds(mode: MaintenanceMode, one_by_one: bool) -> int:
    if one_by_one:
        return MIGRATION_SECONDS
    keeps_memory = EventType(mode.value).traits.keeps_memory
    return MAINTENANCE_SECONDS if keeps_memory else UNKNOWN_DURATION


def _degraded_cause(host: str) -> str:
    return f"host/{host}/degraded/"


def _state_of(
    host: Host,
    node: HostNode | None,
    machines: Sequence[Machine],
    disputed: Sequence[Machine],
    events: Sequence[Event],
) -> str:
    state = host.health.value + (f" ({host.note})" if host.note else "")
    if host.cordoned:
        state += ", cordoned" + (f" ({host.cordon_note})" if host.cordon_note else "")
    if node is not None and node.since is not None and node.state is NodeState.DISCONNECTED:
        state += f"; it cannot be reached: its node has been cut off since {utc(node.since)}"
    if disputed:
        state += f"; it is not certain whether {listing([m.name for m in disputed])} is on it"
    if not machines:
        location = "no machine is known to be on it"
        if not disputed:
            location = "no machine is on it; it can be worked on at any time"
    else:
        location = f"{counted(len(machines), 'machine')} on it"
    if not events:
        return f"{state}; {location}; nothing is planned for it"
    started = sum(event.status is Status.STARTED for event in events)
    announced_to = {name for event in events for name in event.resources}
    later = [machine.name for machine in machines if machine.name not in announced_to]
    added_later = f"; not announced to machines added later: {listing(later)}" if later else ""
    plans = f"{counted(len(events), 'event')} about it, {started} started{added_later}"
    return f"{state}; {location}; {plans}"
