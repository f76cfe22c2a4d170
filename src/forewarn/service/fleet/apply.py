"""Apply a fleet to the inventory: all of it in one commit, or nothing.

Reading, comparing and most of the deciding happens in a thread, on a state that cannot change; the
commit only checks that the groups are still the same. One fleet is applied at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ParamSpec, TypeAlias, TypeVar

import msgspec

from forewarn.core import Group, Refused, apply, decide
from forewarn.core.commands import Define
from forewarn.core.fleet import Host
from forewarn.core.refusal import conflict, invalid
from forewarn.service.engine.writer import Check, CommitPlan, Decided, Writer
from forewarn.service.fleet import read as read_fleet
from forewarn.service.fleet import recheck
from forewarn.service.fleet.build import Fleet, FleetError
from forewarn.service.fleet.diff import Comparison, Difference, compare, declared, with_carried
from forewarn.store.port import States, Store

READ, COMPARED, DECIDED = 0.4, 0.5, 0.65  # fractions of the work, as a rule

Groups: TypeAlias = Mapping[str, Group]
Prepare: TypeAlias = Callable[[Fleet, Groups], Fleet]
P = ParamSpec("P")
T = TypeVar("T")


class Progress(msgspec.Struct, frozen=True):
    stage: str = ""  # reading, comparing, deciding, storing; empty: nothing is under way
    fraction: float = 0.0


class FleetApply:
    """`prepare` may change a fleet before it is compared: `dev` assigns addresses."""

    def __init__(self, store: Store, writer: Writer, prepare: Prepare | None = None) -> None:
        self._store = store
        self._writer = writer
        self._prepare = prepare
        self._busy = False
        self._serving = True
        self.progress = Progress()

    async def text(
        self,
        text: str,
        *,
        by: str,
        force: bool = False,
        plan: bool = False,
        unless: Check | None = None,
    ) -> Difference | Refused:
        """Apply a fleet file, or with `plan` only return what that would change."""

        def read(_groups: Groups, _hosts: Mapping[str, Host]) -> Fleet:
            return read_fleet.parse(text, self._progress("reading", 0, READ))

        return await self._applied(read, by=by, force=force, plan=plan, unless=unless)

    async def fleet(
        self,
        fleet: Fleet,
        *,
        by: str,
        force: bool = False,
        plan: bool = False,
        serving: bool = True,
    ) -> Difference | Refused:
        """Apply a fleet. Before the service serves anybody, no thread is needed."""
        self._serving = serving
        try:
            return await self._applied(lambda *_: fleet, by=by, force=force, plan=plan)
        finally:
            self._serving = True

    async def change(
        self,
        change: Callable[[Fleet], Fleet | Refused],
        *,
        by: str,
        force: bool = False,
        unless: Check | None = None,
    ) -> Difference | Refused:
        """Apply the current fleet with a change."""
        return await self._applied(
            lambda groups, hosts: change(fleet_of(groups, hosts)),
            by=by,
            force=force,
            unless=unless,
        )

    def current(self) -> Fleet:
        return fleet_of(self._store.groups, self._store.registry.hosts)

    async def _applied(
        self,
        wanted: Callable[[Groups, Mapping[str, Host]], Fleet | Refused],
        *,
        by: str,
        force: bool,
        plan: bool = False,
        unless: Check | None = None,
    ) -> Difference | Refused:
        if self._busy:
            progress = f"{self.progress.stage or 'beginning'}, {self.progress.fraction:.0%}"
            return conflict(
                f"another fleet is being applied ({progress}); try again when it is done"
            )
        with self._turn():
            groups, hosts = dict(self._store.groups), self._store.registry.hosts
            comparison = await self._in_thread(self._compared, wanted, groups, hosts)
            if isinstance(comparison, Refused) or plan or comparison.difference.nothing:
                return comparison if isinstance(comparison, Refused) else comparison.difference
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
            warnings = recheck.unhealthy_warnings(fresh, states, hosts)
            difference = msgspec.structs.replace(comparison.difference, warnings=warnings)
            puts = recheck.with_current_hosts(comparison.puts, hosts, by)
            return CommitPlan(tuple(fresh.items()), puts, {} if stale else decided)

        done = await self._writer.commit(plan)
        return done if isinstance(done, Refused) else difference

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
    ) -> Comparison | Refused:
        try:
            fleet = wanted(groups, hosts)
            if isinstance(fleet, Refused):
                return fleet
            if self._prepare is not None:
                fleet = self._prepare(fleet, groups)
        except FleetError as error:
            return invalid(
                error.message, field=error.field, line=error.line, suggestion=error.suggestion
            )
        report = self._progress("comparing", READ, COMPARED)
        report(0)
        comparison = compare(groups, hosts, fleet, report)
        if comparison.stranded:
            return recheck.stranded(comparison.stranded)
        warnings = recheck.unhealthy_warnings(comparison.defines, groups, hosts)
        difference = msgspec.structs.replace(comparison.difference, warnings=warnings)
        return msgspec.structs.replace(comparison, difference=difference)

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

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self._busy = True
        self.progress = Progress("reading", 0.0)
        try:
            yield
        finally:
            self._busy = False
            self.progress = Progress()


def fleet_of(groups: Groups, hosts: Mapping[str, Host]) -> Fleet:
    """Return the fleet that would change nothing."""
    return Fleet(
        {
            group.name: Define(
                kind=group.kind,
                machines=tuple(map(declared, group.machines)),
                policy=group.policy,
                place=group.place,
                labels=group.labels,
            )
            for group in groups.values()
            if group.machines
        },
        tuple(Host(name=host.name, labels=host.labels) for host in hosts.values()),
    )
