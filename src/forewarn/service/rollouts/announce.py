"""Announce one step of a rollout, if the rollout still wants it when it is committed.

While the driver is asked, anything may happen: the rollout is paused, machines come and go, a
window closes. Such a change is a reason to try again, not to give up.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence

import msgspec

from forewarn.core import Refused
from forewarn.core import commands as c
from forewarn.core.halts import Halt
from forewarn.core.refusal import conflict
from forewarn.core.registry import RolloutPut
from forewarn.core.rollouts.model import BY_ITSELF, Action, Rollout, Step, Work, WorkBy
from forewarn.core.rollouts.next_step import announced, appointment
from forewarn.core.rollouts.progress import Configurations
from forewarn.core.time import Duration, Time
from forewarn.core.windows.model import Span
from forewarn.core.world import World
from forewarn.service.engine.writer import CommitPlan
from forewarn.service.platform.host_state import known_check, with_cordon
from forewarn.service.platform.hosts import LIVE_MIGRATION, MAINTENANCE_MODES, Hosts
from forewarn.service.platform.platform import Outcomes, Platform
from forewarn.service.rollouts.host_work import HostWork
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


def start_time(
    rollout: Rollout, now: World, configurations: Configurations = ()
) -> StartTime | None:
    """Return when a step that is announced now may start; None if there is no such time, or not
    before the deadline."""
    soon = announced(now)
    when = appointment(rollout, soon, configurations)
    if when is None:
        return None
    if when.not_before > soon.after_notice(rollout.event_notice):
        return StartTime(not_before=when.not_before, span=when.span)
    return StartTime(notice=rollout.notice, span=when.span)


def start_time_passed(
    rollout: Rollout, before: World, now: World, configurations: Configurations = ()
) -> bool:
    """Has the time that was planned for been missed meanwhile?"""
    planned = start_time(rollout, before, configurations)
    current = start_time(rollout, now, configurations)
    if planned is None or current is None:
        return True
    return planned.not_before is not None and planned != current


class Announcer:
    def __init__(self, store: Store, platform: Platform, hosts: Hosts, work: HostWork) -> None:
        self._store = store
        self._platform = platform
        self._hosts = hosts
        self._work = work
        self._writer = platform.writer

    def targets(self, rollout: Rollout, steps: Iterable[Step]) -> dict[str, dict[str, str]]:
        """Return where these steps of a rollout, one after the other, would move machines now: by
        cause and machine, with "" for a machine that would have to stay where it is."""
        index = self._platform.machine_index
        moving = {
            step.cause: [(index.group_of(name) or "", name) for name in step.machines]
            for step in steps
            if rollout.moves or step.action is Action.EVACUATION
        }
        return dict(zip(moving, self._hosts.where_to(moving.values()), strict=True))

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
        if rollout.works and all(work.host != step.host for work in rollout.work):
            return await self._begin_work(rollout, step)
        for _ in range(ANNOUNCE_TRIES):
            now = self._writer.now()
            attempt = _Attempt(self._platform, self._hosts, rollout, step, now.halts)
            step_machines = self.step_machines(rollout)
            if now.halts and step_machines.halts(step, now):
                return AnnounceResult.STOPPED
            if now.unreachable and step_machines.unreachable(step, now):
                return AnnounceResult.STOPPED
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

    async def _begin_work(self, rollout: Rollout, step: Step) -> AnnounceResult | Refused:
        """Cordon a host that is to be emptied, and record this."""
        now = self._writer.now()
        if now.halts and self.step_machines(rollout).halts(step, now):
            return AnnounceResult.STOPPED
        work = Work(host=step.host, begun_at=now.at)
        if rollout.work_by is WorkBy.DRIVER:
            work = msgspec.structs.replace(work, id=self._platform.new_id())
            if vetoed := await self._work.veto(rollout, work):
                return vetoed

        def plan(states: States) -> CommitPlan | Refused:
            if step_problem(states, rollout, step, now.halts):
                return STOPPED
            if refused := known_check(step.host)(states):
                return refused
            current = states.registry.rollouts[rollout.id]
            begun = msgspec.structs.replace(current, work=(*current.work, work))
            cordon = with_cordon(step.host, rollout.name, default_note=rollout.name)
            what = f"begun host/{step.host}"
            return CommitPlan(puts=[*cordon(states), RolloutPut(begun, what, BY_ITSELF)])

        done = await self._writer.commit(plan)
        if done is STOPPED:
            return AnnounceResult.STOPPED
        # What is on the host is announced next, if anything is.
        return done if isinstance(done, Refused) else AnnounceResult.OVERTAKEN


def step_problem(
    states: States, rollout: Rollout, step: Step, halts: tuple[Halt, ...]
) -> Refused | None:
    """Return why a rollout no longer wants a step: it was paused, aborted, or the step skipped; or
    other halts are in effect than those under which it was decided on, so it is decided again."""
    current = states.registry.rollouts.get(rollout.id)
    wanted = current is not None and current.running and step.cause not in current.skipped
    return None if wanted and tuple(states.registry.halts.values()) == halts else STOPPED


class _Attempt:
    """One attempt to announce a step."""

    def __init__(
        self,
        platform: Platform,
        hosts: Hosts,
        rollout: Rollout,
        step: Step,
        halts: tuple[Halt, ...],
    ) -> None:
        self._platform, self._hosts = platform, hosts
        self._rollout, self._step, self._halts = rollout, step, halts
        self.committing = False  # it has come as far as the commit

    async def announce(
        self, machines: tuple[str, ...], now: World, configurations: Configurations
    ) -> AnnounceResult | Refused:
        when = start_time(self._rollout, now, configurations)
        if when is None:
            return AnnounceResult.OVERTAKEN
        if self._step.action is Action.EVACUATION:
            outcomes = await self._evacuate(machines, when)
        elif self._step.host:
            outcomes = await self._maintain(when)
        else:
            outcomes = await self._raise(machines, when)
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
        group, cause = self._step.group, self._step.cause
        active = bool(group) and any(event.cause == cause for event in states[group].events)
        return STOPPED if active else step_problem(states, self._rollout, self._step, self._halts)

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

    async def _evacuate(self, machines: tuple[str, ...], when: StartTime) -> Outcomes | Refused:
        """Move these machines away; if the host is to be worked on, it is cordoned too."""
        rollout = self._rollout
        return await self._hosts.maintain(
            self._step.host,
            LIVE_MIGRATION,
            rollout.name,
            evacuate=rollout.works,
            only=machines,
            short_notice=rollout.short_notice,
            ignore_windows=rollout.ignore_windows,
            description=rollout.description or None,
            ticket=rollout.ticket,
            cause=self._step.cause,
            notice=when.notice,
            not_before=when.not_before,
            span=when.span,
            unless=self._check,
        )

    async def _maintain(self, when: StartTime) -> Outcomes | Refused:
        rollout = self._rollout
        return await self._hosts.maintain(
            self._step.host,
            MAINTENANCE_MODES[rollout.kind],
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
