"""The operators' verbs that remove machines or make them fail: evict, delete, scale in, fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forewarn.core import EventType, Group, GroupKind, Policy, Refused
from forewarn.core import commands as c
from forewarn.core.deciding.removals import policy_problem
from forewarn.core.refusal import conflict, invalid
from forewarn.service.engine.writer import RequestContext
from forewarn.service.platform.platform import Outcome, Outcomes, Platform
from forewarn.store.port import States
from forewarn.support.text import counted, listing


class Removals:
    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._machine_index = platform.machine_index

    def for_request(self, request: RequestContext) -> Removals:
        """Return the same verbs, whose commits carry the context of one request."""
        return Removals(self._platform.for_request(request))

    async def evict(self, machine: str, by: str) -> Outcome | Refused:
        return await self._announce(machine, lambda id: c.Evict(id=id, machine=machine, by=by))

    async def delete(self, machine: str, by: str) -> Outcome | Refused:
        return await self._announce(machine, lambda id: c.Delete(id=id, machine=machine, by=by))

    async def evict_each(
        self, machines: Sequence[str], by: str, cause: str = ""
    ) -> Outcomes | Refused:
        """Evict several spot machines, all in one commit or none."""
        return await self._platform.announce_each(
            machines, lambda id, machine: c.Evict(id=id, machine=machine, by=by, cause=cause)
        )

    async def delete_each(
        self, machines: Sequence[str], by: str, cause: str = ""
    ) -> Outcomes | Refused:
        """Delete several machines, all in one commit or none."""
        return await self._platform.announce_each(
            machines, lambda id, machine: c.Delete(id=id, machine=machine, by=by, cause=cause)
        )

    async def fail(self, machine: str, type: EventType, by: str) -> Outcome | Refused:
        return await self._announce(
            machine, lambda id: c.Fail(id=id, type=type, machines=(machine,), by=by)
        )

    async def evict_all(self, name: str, by: str) -> Outcomes | Refused:
        """Evict every spot machine of a group, or of all placement groups of a scale set."""
        groups = self._groups_named(name)
        if isinstance(groups, Refused):
            return groups
        spot = [(g.name, m.name) for g in groups for m in g.machines if m.alive and m.spot]
        not_spot = [m.name for g in groups for m in g.machines if m.alive and not m.spot]
        if not spot:
            return conflict(f"'{name}' has no spot machines, and only spot machines can be evicted")
        cause = f"evict/{self._platform.new_id()}"
        notes = (
            (f"not evicted, because they are not spot machines: {listing(not_spot)}",)
            if not_spot
            else ()
        )
        return await self._platform.announce_all(
            [
                (group, c.Evict(id=self._platform.new_id(), machine=machine, by=by, cause=cause))
                for group, machine in spot
            ],
            notes,
        )

    async def scale_in(
        self, name: str, by: str, *, count: int | None = None, to: int | None = None
    ) -> Outcomes | Refused:
        """Delete members of a scale set, those with the highest numbers first: `count` of them, or
        as many as leave `to`."""
        groups = self._groups_named(name)
        if isinstance(groups, Refused):
            return groups
        if any(group.kind is not GroupKind.SCALE_SET for group in groups):
            return invalid(f"'{name}' is not a scale set; delete its machines one by one")
        if (count is None) == (to is None):
            return invalid("pass either how many machines to delete or how many to keep")
        staying = sum(len(group.staying) for group in groups)
        if count is not None and not 1 <= count <= staying:
            return invalid(
                f"'{name}' has {counted(staying, 'machine')} left that can be deleted;"
                f" the count must be from 1 to {staying}, not {count}"
            )
        if to is not None and not 0 <= to <= staying:
            return invalid(f"'{name}' has {counted(staying, 'machine')}; it cannot have {to}")
        left = to if to is not None else staying - (count or 0)
        if left == staying:
            return Outcomes((), (f"'{name}' already has {counted(staying, 'machine')}",))
        cause = f"scale-in/{self._platform.new_id()}"
        return await self._platform.announce_all(self._deletes(groups, left, by, cause))

    async def update_scale_set(
        self,
        groups: Sequence[Group],
        by: str,
        *,
        change: Callable[[Policy], Policy],
        to: int | None,
        cause: str,
    ) -> Outcomes | Refused:
        """Change the policies of all groups of a scale set and, unless `to` is None, delete the
        members with the highest numbers until so many are left: all in one commit or nothing."""
        commands: list[tuple[str, c.Command]] = []
        for group in groups:
            policy = change(group.policy)
            if problem := policy_problem(group.kind, policy):
                return invalid(f"group '{group.name}': {problem}")
            if policy != group.policy:
                commands.append((group.name, c.SetPolicy(policy=policy, by=by)))
        if to is not None:
            commands += self._deletes(groups, to, by, cause)

        def unless(states: States) -> Refused | None:
            changed = [g.name for g in groups if states[g.name].policy != g.policy]
            if not changed:
                return None
            return conflict(f"the policy of {listing(changed)} has just been changed; try again")

        return await self._platform.announce_all(commands, unless=unless)

    def _deletes(
        self, groups: Sequence[Group], to: int, by: str, cause: str
    ) -> list[tuple[str, c.Command]]:
        """Return the commands that leave a scale set so many members."""
        members = [(group, machine.name) for group in groups for machine in group.staying]
        members.sort(key=lambda member: _number(*member))
        return [
            (group.name, c.Delete(id=self._platform.new_id(), machine=machine, by=by, cause=cause))
            for group, machine in reversed(members[to:])
        ]

    async def _announce(
        self, machine: str, command: Callable[[str], c.Command]
    ) -> Outcome | Refused:
        group = self._platform.common_group((machine,))
        if isinstance(group, Refused):
            return group
        return await self._platform.announce(group, command(self._platform.new_id()))

    def _groups_named(self, name: str) -> list[Group] | Refused:
        """Return the group of this name, or all placement groups of the scale set of this name."""
        groups = [g for g in self._machine_index.groups() if name in (g.name, g.place.scale_set)]
        return groups or self._machine_index.unknown_group(name)


def _number(group: Group, machine: str) -> int:
    """Return the number of a member of a scale set. In a flexible one, none has a number, and those
    are deleted first that are last in the fleet file."""
    return 0 if group.place.flexible else int(machine.rpartition("_")[2])
