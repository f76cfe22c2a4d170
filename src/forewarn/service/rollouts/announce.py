"""Announces one step of a rollout, if that is still what the rollout wants when it is committed.

While a driver is asked anything may happen: the rollout is paused, machines come and go, a
window closes. What has changed meanwhile is a reason to try again, not one to give up.
"""

from __future__ import annotations

import enum

from forewarn.core import Refused
from forewarn.core import commands as c
from forewarn.core.refusal import conflict
from forewarn.core.rollouts.model import Rollout, Step
from forewarn.core.time import Now
from forewarn.service.platform.hosts import Hosts, MaintenanceMode
from forewarn.service.platform.platform import Outcomes, Platform
from forewarn.service.rollouts.appointments import moved_on, when_to_start
from forewarn.service.rollouts.step_machines import StepMachines
from forewarn.store.port import States, Store

ANNOUNCE_TRIES = 5  # in a row, each undone by a change in the very moment of the commit

STOPPED = conflict("the rollout has been paused, aborted or overtaken meanwhile")


class AnnounceResult(enum.Enum):
    """What came of an announcement; else it is refused."""

    ANNOUNCED = "announced"
    STOPPED = "stopped"  # the rollout no longer wants it
    OVERTAKEN = "overtaken"  # things are no longer as they were: look again


class Announcer:
    def __init__(self, store: Store, platform: Platform, hosts: Hosts) -> None:
        self._store = store
        self._platform = platform
        self._hosts = hosts
        self._writer = platform.writer

    def presence(self) -> StepMachines:
        return StepMachines(self._store, self._hosts, self._platform.machine_index)

    async def announce(self, rollout: Rollout, wanted: Step) -> AnnounceResult | Refused:
        done: AnnounceResult | Refused = AnnounceResult.OVERTAKEN
        for _ in range(ANNOUNCE_TRIES):
            now = self._writer.now()
            once = _Once(self._platform, self._hosts, rollout, wanted)
            machines = tuple(self.presence().there(wanted))
            if not machines:
                return AnnounceResult.OVERTAKEN  # they have left since it was looked
            done = await once.announce(machines, now)
            if not isinstance(done, Refused):
                return done
            if moved_on(rollout, now, self._writer.now()):
                return AnnounceResult.OVERTAKEN  # while the driver was asked, the window was missed
            if not once.committing:
                return done
        return done


class _Once:
    """One try."""

    def __init__(self, platform: Platform, hosts: Hosts, rollout: Rollout, wanted: Step) -> None:
        self._platform, self._hosts = platform, hosts
        self._rollout, self._wanted = rollout, wanted
        self.committing = False  # all was well, until it was to be committed

    async def announce(self, machines: tuple[str, ...], now: Now) -> AnnounceResult | Refused:
        host = self._wanted.host
        done = await (self._maintain(now) if host else self._raise(machines, now))
        if done is STOPPED:
            return AnnounceResult.STOPPED
        if isinstance(done, Refused):
            return done
        if not done.events:
            return conflict(f"nothing came of it: {'; '.join(done.notes) or 'no event was raised'}")
        return AnnounceResult.ANNOUNCED

    def _overtaken(self, states: States) -> Refused | None:
        self.committing = True
        current = states.registry.rollouts.get(self._rollout.id)
        group, cause = self._wanted.group, self._wanted.cause
        active = bool(group) and any(event.cause == cause for event in states[group].events)
        return STOPPED if current is None or not current.going or active else None

    async def _raise(self, machines: tuple[str, ...], now: Now) -> Outcomes | Refused:
        rollout, when = self._rollout, when_to_start(self._rollout, now)
        command = c.Raise(
            id=self._platform.new_id(),
            type=rollout.type,
            machines=machines,
            by=rollout.name,
            short_notice=rollout.short_notice,
            description=rollout.description,
            duration=rollout.duration,
            cause=self._wanted.cause,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
        )
        commands = [(self._wanted.group, command)]
        return await self._platform.announce_all(commands, unless=self._overtaken)

    async def _maintain(self, now: Now) -> Outcomes | Refused:
        rollout, when = self._rollout, when_to_start(self._rollout, now)
        return await self._hosts.maintain(
            self._wanted.host,
            MaintenanceMode(rollout.type.value),
            rollout.name,
            short_notice=rollout.short_notice,
            description=rollout.description or None,
            duration=rollout.duration if rollout.duration >= 0 else None,
            cause=self._wanted.cause,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
            unless=self._overtaken,
        )
