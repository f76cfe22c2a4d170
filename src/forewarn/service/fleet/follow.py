"""Makes the inventory follow what drivers see of machines: moves are recorded, what is described at
the hypervisor is added, what was removed there is removed, and a crash is carried out as a failure.

A difference counts once it has been the same for a moment: the parts of a move are seen one after
the other. What cannot be followed is tried again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from forewarn.core import EventType, Refused
from forewarn.core.fleet import GroupKind, Health
from forewarn.drivers.port import SeenMachine
from forewarn.service.fleet.apply import FleetApply
from forewarn.service.fleet.edit import put_machine, remove_machine
from forewarn.service.fleet.removal_limit import NAMED
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.sightings import Difference, DifferenceKind
from forewarn.service.platform.platform import Platform
from forewarn.service.platform.removals import Removals
from forewarn.store.port import Store, StoreFailed
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.text import listing

SETTLE = 0.5  # seconds for which a difference has to be the same
RETRY_EVERY = 30.0  # seconds between two attempts to follow the same difference
HOUR = 3600.0  # seconds in which so many machines are removed as one change may

log = logger("forewarn")


class FollowedInventory:
    def __init__(
        self,
        store: Store,
        platform: Platform,
        fleet_apply: FleetApply,
        host_index: HostIndex,
        *,
        groups: Sequence[str],
        restarts: bool,
    ) -> None:
        """`groups`: patterns of those to which machines may be added. `restarts`: whether what has
        crashed is restarted."""
        self._store = store
        self._platform = platform
        self._machine_index = platform.machine_index
        self._fleet_apply = fleet_apply
        self.sightings = host_index.sightings
        self._groups = groups
        self._restarts = restarts
        self._removed: deque[float] = deque()  # when machines were removed, in guard time
        self.problems: dict[str, str] = {}  # by machine: why its difference is not followed

    async def run(self) -> None:
        changed = asyncio.Event()
        self.sightings.on_change = changed.set
        last: dict[str, Difference] = {}
        tried: dict[str, Difference] = {}
        retry_at = 0.0
        while True:
            differences = dict(self.sightings.all())
            tried = {n: found for n, found in tried.items() if differences.get(n) == found}
            self.problems = {n: why for n, why in self.problems.items() if n in differences}
            if retry := guard.monotonic() >= retry_at:
                retry_at = guard.monotonic() + RETRY_EVERY
            for name, found in differences.items():
                again = retry and name in self.problems
                if last.get(name) == found and (name not in tried or again):
                    tried[name] = found
                    await self._try(found)
            if last == differences:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_EVERY if self.problems else None):
                        await changed.wait()
            last = differences
            changed.clear()
            await guard.pause(SETTLE)

    async def _try(self, found: Difference) -> None:
        try:
            problem = await self._follow(found)
        except StoreFailed as failure:
            problem = str(failure)
        if problem and problem != self.problems.get(found.machine):
            log.warning(
                "the inventory does not follow", machine=found.machine, is_=found.kind, why=problem
            )
        self.problems.pop(found.machine, None)
        if problem:
            self.problems[found.machine] = problem

    async def _follow(self, found: Difference) -> str:
        """Follow a difference. Return why that is not possible, or ""."""
        by = f"driver of {found.hosts[0] if found.hosts else found.known}"
        match found.kind:
            case DifferenceKind.ELSEWHERE:
                known = [found.known] if found.known else []
                if unknown := self._unknown(known, self.sightings.reaches):
                    return f"it may still be on host {unknown}, of which nothing is known"
                return _why(await self._platform.record_move(found.machine, found.hosts[0], by))
            case DifferenceKind.CRASHED if self._restarts:
                type, removals = EventType.REBOOT, Removals(self._platform)
                return _why(await removals.fail(found.machine, type, by))
            case DifferenceKind.UNKNOWN if found.seen is not None and found.seen.group:
                return await self._add(found, found.seen, by)
            case DifferenceKind.MISSING:
                return await self._remove(found, by)
        return ""

    async def _add(self, found: Difference, seen: SeenMachine, by: str) -> str:
        if len(found.hosts) > 1:
            return f"it is on several hosts: {listing(found.hosts)}"
        if not any(fnmatchcase(seen.group, pattern) for pattern in self._groups):
            return f"nothing may be added to group '{seen.group}' (inventory_groups)"
        if not seen.addresses:
            return "none of its addresses is known"
        entry = {
            "group": seen.group,
            "host": found.hosts[0],
            "addresses": seen.addresses,
            "vm_id": seen.vm_id,
            "spot": seen.spot,
        }
        if seen.update_domain is not None:
            entry["update_domain"] = seen.update_domain
        change = put_machine(
            found.machine,
            msgspec.json.encode(entry).decode(),
            self._machine_index,
            addresses=self._fleet_apply.addresses,
        )
        done = await self._fleet_apply.change(change, by=by, only=lambda: {seen.group})
        return _why(done)

    async def _remove(self, found: Difference, by: str) -> str:
        if not self.sightings.was_seen(found.machine):
            return "it was not seen on any host; if it is not to be created, delete it"
        looked = functools.partial(self.sightings.has_looked, missing=found)
        if unknown := self._unknown(self._store.registry.hosts, looked):
            return f"it may be on host {unknown}, which was not enumerated since"
        group = self._store.groups[found.group]
        if len(group.machines) == 1 and group.kind is not GroupKind.STANDALONE:
            return f"it is the last machine of group '{group.name}', which would be removed with it"
        now, limit = guard.monotonic(), self._fleet_apply.removal_limit
        while self._removed and now - self._removed[0] >= HOUR:
            self._removed.popleft()
        most = limit.most(self._machine_index.count + len(self._removed)) if limit else None
        if most is not None and len(self._removed) >= most:
            return f"{len(self._removed)} machines were removed within an hour (max_removals)"
        done = await self._fleet_apply.change(
            remove_machine(found.machine),
            by=by,
            force=True,  # what was planned for it cannot happen any more
            remove=NAMED,
            only=lambda: {found.group},
        )
        if not isinstance(done, Refused):
            self._removed.append(now)
        return _why(done)

    def _unknown(self, hosts: Iterable[str], known: Callable[[str], bool]) -> str:
        """Return those of the hosts that are not known, without those that have failed."""
        stored = self._store.registry.hosts
        unknown = [
            host
            for host in hosts
            if not known(host) and host in stored and stored[host].health is not Health.FAILED
        ]
        return listing(unknown) if unknown else ""


def _why(done: object) -> str:
    return done.message if isinstance(done, Refused) else ""
