"""The operators' verbs for halts: place, list and release.

A halt is one entry of the registry, however many groups it covers: what it keeps from starting is
decided where something might start (`core/deciding/holds.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from forewarn.core import Group, Refused, Status
from forewarn.core.deciding.holds import HaltedMachines
from forewarn.core.halts import Halt
from forewarn.core.labels import parse
from forewarn.core.refusal import conflict, unknown
from forewarn.core.registry import PLACED, HaltPut, HaltReleased
from forewarn.core.world import World
from forewarn.service.engine.writer import CommitPlan
from forewarn.service.platform.platform import Platform
from forewarn.store.port import States, Store
from forewarn.support.text import listing

MAX_HALTS = 100  # that stand at once: each is looked at with every decision


class HaltReport(msgspec.Struct, frozen=True, kw_only=True):
    """A halt, and what it covers now."""

    halt: Halt
    machines: int
    events: int  # that are Scheduled, and do not start while it stands
    notes: tuple[str, ...] = ()


class Halts:
    def __init__(self, store: Store, platform: Platform) -> None:
        self._store = store
        self._platform = platform
        self._writer = platform.writer

    async def place(
        self,
        *,
        by: str,
        note: str = "",
        groups: Iterable[str] = (),
        label: str = "",
        host_label: str = "",
        plan: bool = False,
    ) -> HaltReport | Refused:
        """Keep everything from starting that has not started: in the whole fleet, in these groups,
        on machines with this label, or on hosts with that one. If there already is such a halt,
        return that one. With `plan`, only count what it would cover."""
        names = tuple(dict.fromkeys(groups))
        selector, of_hosts = (",".join(map(str, parse(text))) for text in (label, host_label))
        halt = Halt(
            id="" if plan else self._platform.new_id(),
            by=by,
            at=self._writer.now().at,
            note=note,
            groups=names,
            label=selector,
            host_label=of_hosts,
        )
        if refused := await self._covers_nothing(halt):
            return refused
        if plan:
            return await self._report(halt)
        standing: list[Halt] = []

        def commit(states: States) -> CommitPlan | Refused:
            standing.clear()
            halts = states.registry.halts.values()
            standing.extend(
                h for h in halts if (h.groups, h.label, h.host_label) == (names, selector, of_hosts)
            )
            if standing:
                return CommitPlan()
            if len(halts) >= MAX_HALTS:
                return conflict(
                    f"there are {MAX_HALTS} halts, which is the maximum; release one first"
                )
            return CommitPlan(puts=[HaltPut(halt, PLACED, by)])

        done = await self._writer.commit(commit)
        if isinstance(done, Refused):
            return done
        if standing:
            already = f"it was already halted by {standing[0].by}; nothing has changed"
            return msgspec.structs.replace(await self._report(standing[0]), notes=(already,))
        return await self._report(halt)

    async def release(self, id: str, by: str, note: str = "") -> HaltReport | Refused:
        """Release a halt: events start that waited only for it."""
        halt = self.find(id)
        if isinstance(halt, Refused):
            return halt
        report = await self._report(halt)

        def plan(states: States) -> CommitPlan | Refused:
            if halt.id not in states.registry.halts:
                return unknown(f"halt {halt.id} has just been released")
            return CommitPlan(puts=[HaltReleased(halt.id, halt.scope, note, by)])

        done = await self._writer.commit(plan)
        return done if isinstance(done, Refused) else report

    def find(self, id: str) -> Halt | Refused:
        """Find a halt by its id, or by the beginning of its id if only one has it."""
        prefix = id.strip().upper()
        halts = self._store.registry.halts.values()
        found = [halt for halt in halts if prefix and halt.id.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if found:
            return conflict(f"'{id}' is ambiguous; it could be {listing([h.id for h in found])}")
        standing = listing([halt.id for halt in halts]) if halts else "none"
        return unknown(f"no halt '{id}'; active halts: {standing}")

    async def report(self, id: str) -> HaltReport | Refused:
        halt = self.find(id)
        return halt if isinstance(halt, Refused) else await self._report(halt)

    async def list(self, sees: Callable[[str], bool] | None = None) -> list[HaltReport]:
        """Return the active halts, the oldest first. For a caller who does not see all groups,
        return those that cover any that it sees, of which alone they name and count groups."""
        halts = sorted(self._store.registry.halts.values(), key=lambda halt: (halt.at, halt.id))
        if sees is None:
            return [await self._report(halt) for halt in halts]
        reports = [
            await self._report(msgspec.structs.replace(halt, groups=groups), sees)
            for halt in halts
            if (groups := tuple(filter(sees, halt.groups))) or not halt.groups
        ]
        return [report for report in reports if report.machines or not report.halt.partial]

    async def _report(self, halt: Halt, sees: Callable[[str], bool] = lambda _: True) -> HaltReport:
        """Count what a halt covers: in a thread, because all machines may have to be looked at."""
        groups = [
            group
            for group in self._platform.machine_index.groups()
            if (not halt.groups or group.name in halt.groups) and sees(group.name)
        ]
        now = self._writer.now_with(halt)
        return await asyncio.to_thread(_counted, halt, groups, now)

    async def _covers_nothing(self, halt: Halt) -> Refused | None:
        """Refuse a halt that protects nobody, since a name or a label is probably misspelt."""
        index = self._platform.machine_index
        for name in halt.groups:
            if index.group(name) is None:
                return index.unknown_group(name)
        if halt.partial and not (await self._report(halt)).machines:
            return unknown(f"no machine matches this halt ({halt.scope}); check the label")
        return None


def _counted(halt: Halt, groups: Iterable[Group], now: World) -> HaltReport:
    machines = events = 0
    for group in groups:
        halted = HaltedMachines(group, now)
        machines += len(halted.machines(halt))
        events += sum(e.status is Status.SCHEDULED and halted.stop(e) for e in group.events)
    return HaltReport(halt=halt, machines=machines, events=events)
