"""Announce one step of a rollout, if the rollout still wants it when it is committed.

While the driver is asked, anything may happen: the rollout is paused, machines come and go, a
window closes. Such a change is a reason to try again, not to give up.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import msgspec

from forewarn.core import Refused
from forewarn.core import commands as c
from forewarn.core.refusal import conflict
from forewarn.core.rollouts.model import Rollout, Step
from forewarn.core.rollouts.next_step import announced, appointment, earliest
from forewarn.core.rollouts.progress import Configurations
from forewarn.core.time import Duration, Now, Time
from forewarn.core.windows import Span
from forewarn.service.platform.hosts import Hosts, MaintenanceMode
from forewarn.service.platform.platform import Outcomes, Platform
from forewarn.service.rollouts.step_machines import StepMachines
from forewarn.store.port import States, Store

ANNOUNCE_TRIES = 5  # in a row, each refused because of a change at the moment of the commit

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


def start_time(rollout: Rollout, now: Now, configurations: Configurations = ()) -> StartTime | None:
    """Return when a step that is announced now may start; None if there is no such time, or not
    before the deadline."""
    soon = announced(now)
    when = appointment(rollout, soon, configurations)
    if when is None:
        return None
    if when.not_before > earliest(rollout, soon):
        return StartTime(not_before=when.not_before, span=when.span)
    return StartTime(notice=rollout.notice, span=when.span)


def start_time_passed(
    rollout: Rollout, before: Now, now: Now, configurations: Configurations = ()
) -> bool:
    """Has the time that was planned for been missed meanwhile?"""
    planned = start_time(rollout, before, configurations)
    current = start_time(rollout, now, configurations)
    if planned is None or current is None:
        return True
    return planned.not_before is not None and planned != current


class Announcer:
    def __init__(self, store: Store, platform: Platform, hosts: Hosts) -> None:
        self._store = store
        self._platform = platform
        self._hosts = hosts
        self._writer = platform.writer

    def step_machines(
        self, rollout: Rollout, on_read: Callable[[str, Sequence[str]], None] | None = None
    ) -> StepMachines:
        index = self._platform.machine_index
        return StepMachines(self._store, self._hosts, index, rollout, on_read)

    def configurations_of(self, rollout: Rollout, step: Step) -> Configurations:
        """Return the configurations that a step has to obey now."""
        machines = self.step_machines(rollout)
        return machines.configurations(machines.present(step), self._writer.now())

    async def announce(self, rollout: Rollout, step: Step) -> AnnounceResult | Refused:
        result: AnnounceResult | Refused = AnnounceResult.OVERTAKEN
        for _ in range(ANNOUNCE_TRIES):
            now = self._writer.now()
            attempt = _Attempt(self._platform, self._hosts, rollout, step)
            step_machines = self.step_machines(rollout)
            machines = tuple(step_machines.present(step))
            if not machines:
                return AnnounceResult.OVERTAKEN  # they have left since the step was planned
            configurations = step_machines.configurations(machines, now)
            result = await attempt.announce(machines, now, configurations)
            if not isinstance(result, Refused):
                return result
            if start_time_passed(rollout, now, self._writer.now(), configurations):
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

    async def announce(
        self, machines: tuple[str, ...], now: Now, configurations: Configurations
    ) -> AnnounceResult | Refused:
        when = start_time(self._rollout, now, configurations)
        if when is None:
            return AnnounceResult.OVERTAKEN
        outcomes = await (self._maintain(when) if self._step.host else self._raise(machines, when))
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
        wanted = current is not None and current.running and cause not in current.skipped
        return STOPPED if active or not wanted else None

    async def _raise(self, machines: tuple[str, ...], when: StartTime) -> Outcomes | Refused:
        rollout = self._rollout
        command = c.Raise(
            id=self._platform.new_id(),
            type=rollout.type,
            machines=machines,
            by=rollout.name,
            short_notice=rollout.short_notice,
            description=rollout.description,
            duration=rollout.duration,
            ticket=rollout.ticket,
            cause=self._step.cause,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
            ignore_windows=rollout.ignore_windows,
        )
        commands = [(self._step.group, command)]
        return await self._platform.announce_all(commands, unless=self._check)

    async def _maintain(self, when: StartTime) -> Outcomes | Refused:
        rollout = self._rollout
        return await self._hosts.maintain(
            self._step.host,
            MaintenanceMode(rollout.kind),
            rollout.name,
            short_notice=rollout.short_notice,
            description=rollout.description or None,
            duration=rollout.duration if rollout.duration >= 0 else None,
            ticket=rollout.ticket,
            cause=self._step.cause,
            domain=self._step.domain if self._step.split else None,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
            ignore_windows=rollout.ignore_windows,
            unless=self._check,
        )
