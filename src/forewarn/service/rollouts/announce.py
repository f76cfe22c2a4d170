"""Announce one step of a rollout, if the rollout still wants it when it is committed.

While the driver is asked, anything may happen: the rollout is paused, machines come and go, a
window closes. Such a change is a reason to try again, not to give up.
"""

from __future__ import annotations

import enum

import msgspec

from forewarn.core import Refused
from forewarn.core import commands as c
from forewarn.core.events import Span
from forewarn.core.refusal import conflict
from forewarn.core.rollouts.model import Rollout, Step
from forewarn.core.rollouts.next_step import appointment
from forewarn.core.time import SECOND, Duration, Now, Time
from forewarn.service.platform.hosts import Hosts, MaintenanceMode
from forewarn.service.platform.platform import Outcomes, Platform
from forewarn.service.rollouts.step_machines import StepMachines
from forewarn.store.port import States, Store

ANNOUNCE_TRIES = 5  # in a row, each refused because of a change at the moment of the commit
SLACK = SECOND  # between planning and announcing, while the driver is asked

STOPPED = conflict("the rollout has been paused, aborted or overtaken meanwhile")


class AnnounceResult(enum.Enum):
    """The result of an announcement that was not refused."""

    ANNOUNCED = "announced"
    STOPPED = "stopped"  # the rollout no longer wants it
    OVERTAKEN = "overtaken"  # something has changed: plan the step again


class StartTime(msgspec.Struct, frozen=True, kw_only=True):
    """When an event may start: a notice, counted from the commit, or a time if the window opens
    later."""

    notice: Duration | None = None
    not_before: Time | None = None
    span: Span | None = None


def start_time(rollout: Rollout, now: Now) -> StartTime:
    soon = msgspec.structs.replace(now, at=now.at + SLACK)
    when = appointment(rollout, soon) if rollout.windows else None
    if when is None or when.span is None:
        return StartTime(notice=rollout.notice)
    if when.not_before > when.span.opens:
        return StartTime(notice=rollout.notice, span=when.span)
    return StartTime(not_before=when.not_before, span=when.span)


def start_time_passed(rollout: Rollout, before: Now, now: Now) -> bool:
    """Has the window that was planned for been missed meanwhile?"""
    planned = start_time(rollout, before)
    return planned.not_before is not None and planned != start_time(rollout, now)


class Announcer:
    def __init__(self, store: Store, platform: Platform, hosts: Hosts) -> None:
        self._store = store
        self._platform = platform
        self._hosts = hosts
        self._writer = platform.writer

    def step_machines(self) -> StepMachines:
        return StepMachines(self._store, self._hosts, self._platform.machine_index)

    async def announce(self, rollout: Rollout, step: Step) -> AnnounceResult | Refused:
        result: AnnounceResult | Refused = AnnounceResult.OVERTAKEN
        for _ in range(ANNOUNCE_TRIES):
            now = self._writer.now()
            attempt = _Attempt(self._platform, self._hosts, rollout, step)
            machines = tuple(self.step_machines().present(step))
            if not machines:
                return AnnounceResult.OVERTAKEN  # they have left since the step was planned
            result = await attempt.announce(machines, now)
            if not isinstance(result, Refused):
                return result
            if start_time_passed(rollout, now, self._writer.now()):
                return AnnounceResult.OVERTAKEN
            if not attempt.committing:
                return result
        return result


class _Attempt:
    """One attempt to announce a step."""

    def __init__(self, platform: Platform, hosts: Hosts, rollout: Rollout, step: Step) -> None:
        self._platform, self._hosts = platform, hosts
        self._rollout, self._step = rollout, step
        self.committing = False  # it has come as far as the commit

    async def announce(self, machines: tuple[str, ...], now: Now) -> AnnounceResult | Refused:
        host = self._step.host
        outcomes = await (self._maintain(now) if host else self._raise(machines, now))
        if outcomes is STOPPED:
            return AnnounceResult.STOPPED
        if isinstance(outcomes, Refused):
            return outcomes
        if not outcomes.events:
            notes = "; ".join(outcomes.notes)
            return conflict(f"no event was announced: {notes or 'none was needed'}")
        return AnnounceResult.ANNOUNCED

    def _check(self, states: States) -> Refused | None:
        self.committing = True
        current = states.registry.rollouts.get(self._rollout.id)
        group, cause = self._step.group, self._step.cause
        active = bool(group) and any(event.cause == cause for event in states[group].events)
        return STOPPED if current is None or not current.running or active else None

    async def _raise(self, machines: tuple[str, ...], now: Now) -> Outcomes | Refused:
        rollout, when = self._rollout, start_time(self._rollout, now)
        command = c.Raise(
            id=self._platform.new_id(),
            type=rollout.type,
            machines=machines,
            by=rollout.name,
            short_notice=rollout.short_notice,
            description=rollout.description,
            duration=rollout.duration,
            cause=self._step.cause,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
        )
        commands = [(self._step.group, command)]
        return await self._platform.announce_all(commands, unless=self._check)

    async def _maintain(self, now: Now) -> Outcomes | Refused:
        rollout, when = self._rollout, start_time(self._rollout, now)
        return await self._hosts.maintain(
            self._step.host,
            MaintenanceMode(rollout.type.value),
            rollout.name,
            short_notice=rollout.short_notice,
            description=rollout.description or None,
            duration=rollout.duration if rollout.duration >= 0 else None,
            cause=self._step.cause,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
            unless=self._check,
        )
