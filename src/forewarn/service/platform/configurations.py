"""The operators' verbs for maintenance configurations: set one, remove one."""

from __future__ import annotations

import asyncio

from forewarn.core import Refused
from forewarn.core.deciding.configurations import never_maintained
from forewarn.core.refusal import conflict, unknown_name
from forewarn.core.registry import ConfigurationPut, ConfigurationRemoved
from forewarn.core.windows.model import MAX_CONFIGURATIONS, MaintenanceConfiguration
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.store.port import States, Store


class Configurations:
    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    def all(self) -> list[MaintenanceConfiguration]:
        configurations = self._store.registry.configurations
        return [configurations[name] for name in sorted(configurations)]

    async def set(
        self, configuration: MaintenanceConfiguration, by: str
    ) -> tuple[str, ...] | Refused:
        """Add a configuration, or replace the one of this name. Return notes for the caller."""

        def plan(states: States) -> CommitPlan | Refused:
            known = states.registry.configurations
            if configuration.name not in known and len(known) >= MAX_CONFIGURATIONS:
                return conflict(
                    f"there are {MAX_CONFIGURATIONS} maintenance configurations, which is the"
                    " maximum"
                )
            if known.get(configuration.name) == configuration:
                return CommitPlan()
            return CommitPlan(puts=[ConfigurationPut(configuration, by)])

        done = await self._writer.commit(plan)
        if isinstance(done, Refused):
            return done
        groups = list(self._store.groups.values())
        # In a thread: it looks at the labels of all machines, and guests are answered meanwhile.
        now = self._writer.now()
        return await asyncio.to_thread(never_maintained, groups, now, configuration.name)

    async def remove(self, name: str, by: str) -> MaintenanceConfiguration | Refused:
        removed: list[MaintenanceConfiguration] = []

        def plan(states: States) -> CommitPlan | Refused:
            known = states.registry.configurations
            if name not in known:
                return unknown_name("maintenance configuration", name, list(known))
            removed[:] = [known[name]]
            return CommitPlan(puts=[ConfigurationRemoved(name, by)])

        done = await self._writer.commit(plan)
        return done if isinstance(done, Refused) else removed[0]
