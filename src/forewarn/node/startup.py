"""How a node takes up its work: where an earlier run ended, and what the fleet file wants."""

from __future__ import annotations

from forewarn.core import Refused, Time
from forewarn.node.config import Config
from forewarn.service.engine.clock import Clock
from forewarn.service.fleet.apply import FleetApply
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.indexes.polls import PollIndex
from forewarn.store import Store
from forewarn.store.port import PollSightings
from forewarn.support.logs import logger

log = logger("forewarn")


async def take_up(store: Store, poll_index: PollIndex, clock: Clock) -> tuple[PollSightings, Time]:
    """Where did an earlier run end, and how long has nobody been serving since?"""
    sightings = await poll_index.load()
    served_until, lost = sightings.served_until or 0, sightings.lost
    async for commit in store.commits(max(store.seq - 1, 0)):
        if commit.at >= served_until:
            served_until, lost = commit.at, max(lost, commit.lost)
    copied = sightings.copied is not None
    clock.resume(served_until or None, lost, floor=served_until, copied=copied)
    return sightings, served_until


async def define(config: Config, fleet_apply: FleetApply, machine_index: MachineIndex) -> None:
    """Make the inventory what the fleet says; what it no longer names is removed."""
    if config.fleet is None:
        if not any(machine_index.groups()):
            log.info("there are no machines yet; say which: forewarn apply FLEET.yaml")
        return
    done = await fleet_apply.fleet(config.fleet, by="start", force=config.insist, serving=False)
    if isinstance(done, Refused):
        log.warning(
            "the fleet file is not applied, the inventory stays as it was",
            why=done.says,
            run=f"forewarn apply {config.fleet_file or 'FLEET.yaml'} --plan",
        )
    elif removed := done.machines.removed + done.hosts.removed:
        log.warning("what the fleet file no longer names is removed", removed=removed)
