"""Apply a fleet to the inventory: all of it in one commit, or nothing.

Reading, comparing and most of the deciding happens in a thread, on a state that cannot change; the
commit only checks that the groups are still the same. One fleet is applied at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, ParamSpec, TypeAlias, TypeVar

import msgspec

from forewarn.core import Group, Refused, apply, decide
from forewarn.core.commands import Define
from forewarn.core.deciding.configurations import never_maintained
from forewarn.core.fleet import Host, Placement
from forewarn.core.refusal import conflict, invalid
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.service.engine.writer import Check, CommitPlan, Decided, Writer
from forewarn.service.fleet import read as read_fleet
from forewarn.service.fleet import recheck
from forewarn.service.fleet.addresses import ANY_ADDRESS, AddressRules
from forewarn.service.fleet.build import Fleet, FleetError
from forewarn.service.fleet.diff import (
    Comparison,
    Difference,
    ExcessRemovals,
    as_known,
    compare,
    declared,
    declared_host,
    with_carried,
)
from forewarn.service.fleet.removal_limit import (
    NAMED,
    RemovalLimit,
    Removals,
    empties,
    too_many,
    wrong_number,
)
from forewarn.service.indexes.hosts import HostIndex
from forewarn.store.port import States, Store

READ, COMPARED, DECIDED = 0.4, 0.5, 0.65  # fractions of the work, as a rule

Groups: TypeAlias = Mapping[str, Group]
Prepare: TypeAlias = Callable[[Fleet, Groups], Fleet]
P = ParamSpec("P")
T = TypeVar("T")


class Progress(msgspec.Struct, frozen=True):
    stage: str = ""  # reading, comparing, deciding, storing; empty: nothing is under way
    fraction: float = 0.0


class _Authority(NamedTuple):
    """Which source counts for the hosts of machines; see `core.commands.Define`."""

    placement: Placement | None
    observed: bool


class FleetApply:
    """`prepare` may change a fleet before it is compared: `dev` assigns addresses. `placement` says
    what counts if a fleet names another host for a machine than the one it is known to be on.
    `removal_limit` says how many machines may be removed without giving their number, and
    `addresses` which ones machines in texts can have."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        host_index: HostIndex,
        prepare: Prepare | None = None,
        placement: Placement | None = None,
        removal_limit: RemovalLimit | None = None,
        addresses: AddressRules = ANY_ADDRESS,
    ) -> None:
        self.addresses = addresses
        self.placement = placement
        self.removal_limit = removal_limit
        self._store = store
        self._writer = writer
        self._host_index = host_index
        self._prepare = prepare
        self._turn = asyncio.Lock()
        self._serving = True
        self.progress = Progress()

    async def text(
        self,
        text: str,
        *,
        by: str,
        force: bool = False,
        plan: bool = False,
        placement: Placement | None = None,
        remove: int | None = None,
        unless: Check | None = None,
    ) -> Difference | Refused:
        """Apply a fleet file, or with `plan` only return what that would change. `placement`
        overrides the setting. `remove` is how many machines it is meant to remove: with another
        number, it is refused."""

        def read(_groups: Groups, _hosts: Mapping[str, Host]) -> Fleet:
            progress = self._progress("reading", 0, READ)
            return read_fleet.parse(text, progress, self.addresses)

        return await self._applied(
            read,
            by=by,
            force=force,
            plan=plan,
            placement=placement,
            remove=remove,
            observed=True,
            unless=unless,
        )

    async def fleet(
        self,
        fleet: Fleet,
        *,
        by: str,
        force: bool = False,
        plan: bool = False,
        serving: bool = True,
    ) -> Difference | Refused:
        """Apply a fleet. Before the service serves anybody, no thread is needed. Its hosts are not
        what somebody has just observed: it may be a file that is applied at every start. Nobody
        has looked at what it changes, so unless forced it never removes all machines."""
        self._serving = serving
        try:
            return await self._applied(
                lambda *_: fleet,
                by=by,
                force=force,
                plan=plan,
                observed=False,
                unattended=not force,
            )
        finally:
            self._serving = True

    async def change(
        self,
        change: Callable[[Fleet], Fleet | Refused],
        *,
        by: str,
        force: bool = False,
        remove: int | None = None,
        only: Callable[[], Collection[str]] | None = None,
        unless: Check | None = None,
    ) -> Difference | Refused:
        """Apply the current fleet with a change. A change of these groups `only` is given no
        others, is quick however large the fleet is, and waits for its turn."""
        return await self._applied(
            lambda groups, hosts: change(fleet_of(groups, hosts)),
            by=by,
            force=force,
            remove=remove,
            observed=False,
            only=None if self._prepare is not None else only,
            unless=unless,
        )

    def current(self) -> Fleet:
        """Return the fleet with the hosts that machines are known to be on."""
        registry = self._store.registry
        return fleet_of(self._store.groups, registry.hosts, registry.configurations, known=True)

    async def _applied(
        self,
        wanted: Callable[[Groups, Mapping[str, Host]], Fleet | Refused],
        *,
        by: str,
        force: bool,
        plan: bool = False,
        placement: Placement | None = None,
        remove: int | None = None,
        observed: bool,
        unattended: bool = False,
        only: Callable[[], Collection[str]] | None = None,
        unless: Check | None = None,
    ) -> Difference | Refused:
        if self._turn.locked() and only is None:
            progress = f"{self.progress.stage or 'beginning'}, {self.progress.fraction:.0%}"
            return conflict(
                f"another fleet is being applied ({progress}); try again when it is done"
            )
        async with self._turn:
            self.progress = Progress("reading", 0.0)
            try:
                return await self._compared_and_committed(
                    wanted,
                    _Authority(placement or self.placement, observed),
                    by=by,
                    force=force,
                    plan=plan,
                    remove=remove,
                    unattended=unattended,
                    only=only,
                    unless=unless,
                )
            finally:
                self.progress = Progress()

    async def _compared_and_committed(
        self,
        wanted: Callable[[Groups, Mapping[str, Host]], Fleet | Refused],
        who: _Authority,
        *,
        by: str,
        force: bool,
        plan: bool,
        remove: int | None,
        unattended: bool,
        only: Callable[[], Collection[str]] | None,
        unless: Check | None,
    ) -> Difference | Refused:
        stored, hosts = self._store.groups, self._store.registry.hosts
        groups = dict(stored) if only is None else {n: stored[n] for n in only() if n in stored}
        planned = self._host_index.maintained()
        comparison = await self._in_thread(
            self._compared, wanted, groups, hosts, who, planned, only is None
        )
        if isinstance(comparison, Refused):
            return comparison
        if not (comparison.defines or comparison.puts):
            return comparison.difference
        count = comparison.removals.count
        most = self._most_removals(comparison.removals, remove)
        excess = count > most
        given = None if remove in (None, NAMED, count) else remove
        if plan and (excess or given is not None):
            refused_for = ExcessRemovals(count=count, allowed=most, given=given)
            return msgspec.structs.replace(comparison.difference, refused_for=refused_for)
        if plan:
            return comparison.difference
        if given is not None:
            return wrong_number(comparison.removals, given)
        if unattended and comparison.removals.empties:
            return empties(comparison.removals)
        if excess:
            return too_many(comparison.removals, most)
        if comparison.difference.blocked_by and not force:
            return recheck.blocked_by(comparison.difference.blocked_by)
        return await self._committed(comparison, groups, by=by, force=force, unless=unless)

    async def _committed(
        self, comparison: Comparison, groups: Groups, *, by: str, force: bool, unless: Check | None
    ) -> Difference | Refused:
        commands = {
            name: msgspec.structs.replace(define, force=force, by=by)
            for name, define in comparison.defines.items()
        }
        decided = await self._in_thread(self._decided, commands, groups)
        self.progress = Progress("storing", DECIDED)
        difference = comparison.difference

        def plan(states: States) -> CommitPlan | Refused:
            nonlocal difference
            if unless is not None and (refused := unless(states)):
                return refused
            sources = set(comparison.moved.values())
            stale = {name for name in sources if states.get(name) is not groups.get(name)}
            fresh = commands
            if stale:  # something has happened to a machine since
                fresh = {
                    name: with_carried(define, comparison.moved, states)
                    for name, define in commands.items()
                }
            blocked_by, stays = recheck.changes_since(states, groups, fresh, comparison.puts)
            if stays:
                return recheck.stranded(stays)
            if blocked_by and not force:
                return recheck.blocked_by(blocked_by)
            hosts = states.registry.hosts
            planned = self._host_index.maintained()
            warnings = recheck.arrival_warnings(fresh, states, hosts, planned)
            warnings = (*warnings, *comparison.warnings)
            difference = msgspec.structs.replace(comparison.difference, warnings=warnings)
            puts = recheck.with_current_hosts(comparison.puts, hosts, by)
            return CommitPlan(tuple(fresh.items()), puts, {} if stale else decided)

        done = await self._writer.commit(plan)
        return done if isinstance(done, Refused) else difference

    def _most_removals(self, removals: Removals, remove: int | None) -> int:
        """Return how many machines may be removed; the number that was given only if it is
        right."""
        if self.removal_limit is None or remove in (NAMED, removals.count):
            return removals.count
        return self.removal_limit.most(removals.machines)

    async def _in_thread(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Call a function in a thread, so that guests are answered meanwhile."""
        if self._serving:
            return await asyncio.to_thread(call, *arguments, **keywords)
        return call(*arguments, **keywords)

    # These run in a thread.

    def _compared(
        self,
        wanted: Callable[[Groups, Mapping[str, Host]], Fleet | Refused],
        groups: Groups,
        hosts: Mapping[str, Host],
        who: _Authority,
        planned: Collection[str],
        with_hosts: bool,
    ) -> Comparison | Refused:
        try:
            fleet = wanted(groups, hosts)
            if isinstance(fleet, Refused):
                return fleet
            if self._prepare is not None:
                fleet = self._prepare(fleet, groups)
        except FleetError as error:
            return msgspec.structs.replace(
                _refusal(error), others=tuple(_refusal(other) for other in error.others)
            )
        fleet = Fleet(
            {
                name: msgspec.structs.replace(
                    define,
                    placement=who.placement,
                    observed=who.observed or define.observed,
                )
                for name, define in fleet.groups.items()
            },
            fleet.hosts,
            fleet.configurations,
        )
        report = self._progress("comparing", READ, COMPARED)
        report(0)
        compared = (hosts, fleet) if with_hosts else ({}, Fleet(fleet.groups))
        configurations = dict(self._store.registry.configurations)
        comparison = compare(groups, *compared, report, configurations)
        if comparison.stranded:
            return recheck.stranded(comparison.stranded)
        warnings = recheck.arrival_warnings(comparison.defines, groups, hosts, planned)
        closed = self._never_maintained(fleet, comparison, configurations)
        difference = msgspec.structs.replace(comparison.difference, warnings=(*warnings, *closed))
        return msgspec.structs.replace(comparison, difference=difference, warnings=closed)

    def _never_maintained(
        self,
        fleet: Fleet,
        comparison: Comparison,
        stored: Mapping[str, MaintenanceConfiguration],
    ) -> tuple[str, ...]:
        """Return warnings about groups for which a fleet leaves no time for maintenance, among
        those that it changes."""
        configurations = tuple(stored.values())
        changed: Mapping[str, Define] = comparison.defines
        if fleet.configurations is not None and set(fleet.configurations) != set(configurations):
            configurations, changed = fleet.configurations, fleet.groups
        now = msgspec.structs.replace(self._writer.now(), configurations=configurations)
        groups = (
            Group(name=name, machines=wanted.machines, policy=wanted.policy, labels=wanted.labels)
            for name, wanted in changed.items()
        )
        return never_maintained(groups, now)

    def _decided(self, commands: Mapping[str, Define], groups: Groups) -> dict[str, Decided]:
        """Decide the commands for groups without events, which do not depend on the time."""
        report = self._progress("deciding", COMPARED, DECIDED)
        now = self._writer.now()
        decided = {}
        for number, (name, define) in enumerate(commands.items()):
            before = groups.get(name)
            group = before or Group(name=name)
            if group.events:
                continue
            changes = decide(group, define, now)
            if not isinstance(changes, Refused):
                decided[name] = Decided(before, changes, apply(group, changes.items))
            report(number / len(commands))
        return decided

    def _progress(self, stage: str, begin: float, end: float) -> Callable[[float], None]:
        def report(fraction: float) -> None:
            self.progress = Progress(stage, begin + (end - begin) * fraction)

        return report


def fleet_of(
    groups: Groups,
    hosts: Mapping[str, Host],
    configurations: Mapping[str, MaintenanceConfiguration] | None = None,
    *,
    known: bool = False,
) -> Fleet:
    """Return the fleet that would change nothing; with `known`, with the hosts that machines are
    known to be on instead of those in the inventory."""
    shown = as_known if known else declared
    return Fleet(
        {
            group.name: Define(
                kind=group.kind,
                machines=tuple(map(shown, group.machines)),
                policy=group.policy,
                place=group.place,
                labels=group.labels,
            )
            for group in groups.values()
            if group.machines
        },
        tuple(map(declared_host, hosts.values())),
        None if configurations is None else tuple(configurations.values()),
    )


def _refusal(error: FleetError) -> Refused:
    return invalid(error.message, field=error.field, line=error.line, suggestion=error.suggestion)
