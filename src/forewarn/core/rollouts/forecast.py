"""A forecast of a rollout that is planned or under way: `next_step` over simulated events.

It assumes that nobody approves early, that nothing else holds an event, that every gate passes at
once, and that each event stays Started for a given time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from forewarn.core.events import Event, Source, Status
from forewarn.core.rollouts.model import Rollout, Step, Work
from forewarn.core.rollouts.next_step import EXPIRED, GateAnswer, Next, appointment, decide
from forewarn.core.rollouts.progress import (
    Configurations,
    LaneProgress,
    RolloutProgress,
    StepState,
)
from forewarn.core.time import DAY, MINUTE, Duration, Time
from forewarn.core.world import World

FORECAST_AHEAD: Duration = 3_650 * DAY
TYPICAL_DURATION: Duration = 10 * MINUTE  # of an event in status Started, unless given


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    lane: str
    step: Step
    announced_at: Time
    not_before: Time
    ends_at: Time


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[Planned, ...]
    done_at: Time | None  # None: unknown, or later than FORECAST_AHEAD
    message: str = ""  # why the forecast ends early, if it does


def forecast(
    rollout: Rollout,
    now: World,
    configurations: Mapping[str, Configurations] = MappingProxyType({}),
    lanes: Sequence[LaneProgress] = (),
) -> Forecast:
    """Return the plan of a rollout, with times. Each event stays Started for as long as the rollout
    expects, and whenever the rollout would pause itself after a wave, it is resumed at once.
    `configurations` are those that steps have to obey, by cause; `lanes` are its progress, if it
    is under way: then the plan is of what remains."""
    lasts = TYPICAL_DURATION if rollout.lasts is None else rollout.lasts
    resumed = msgspec.structs.replace(rollout, pause_after=())
    undisturbed = msgspec.structs.replace(
        now, untrusted=None, uninformed={}, halts=(), unreachable={}, strayed={}
    )
    simulation = _Simulation(resumed, undisturbed, lasts, configurations, lanes)
    done_at, message = simulation.run()
    return Forecast(steps=tuple(simulation.planned.values()), done_at=done_at, message=message)


class _Simulation:
    def __init__(
        self,
        rollout: Rollout,
        now: World,
        event_duration: Duration,
        configurations: Mapping[str, Configurations],
        lanes: Sequence[LaneProgress],
    ) -> None:
        self.rollout, self.now, self.event_duration = rollout, now, event_duration
        known = {step.step.cause: step for lane in lanes for step in lane.steps}
        empty = {cause for cause, step in known.items() if step.state is StepState.NOTHING}
        skipped = {cause for cause, step in known.items() if step.state is StepState.SKIPPED}
        self.progress = RolloutProgress(
            rollout,
            {cause: step.events for cause, step in known.items()},
            lambda step: () if step.cause in empty else step.machines,
            lambda step: configurations.get(step.cause, ()),
            lambda step: step.cause in skipped,
        )
        self.gate_answers: dict[str, GateAnswer] = {}
        self.planned: dict[str, Planned] = {}

    def run(self) -> tuple[Time | None, str]:
        until = self.now.at + FORECAST_AHEAD
        while self.now.at <= until:
            upcoming = decide(self.progress, self.gate_answers, self.now)
            if upcoming.over == EXPIRED:
                steps = [step for lane in upcoming.lanes for step in lane.steps]
                late = sum(not step.state.over for step in steps)
                return None, f"{late} of {len(steps)} steps would not start before its deadline"
            if upcoming.over:
                return self.now.at, ""
            if upcoming.pause:
                return None, upcoming.pause
            for event in upcoming.withdraw:
                self._become(
                    event, Status.WITHDRAWN, ended_at=self.now.at, cancelled_by=self.rollout.name
                )
            for wanted in upcoming.announce:
                self._announce(wanted)
            for cause in upcoming.ask:
                self.gate_answers[cause] = GateAnswer(at=self.now.at, passed=True)
            self._work()
            if not upcoming.announce and not upcoming.ask and not upcoming.withdraw:
                at = self._pass_time(upcoming)
                if at is None:
                    return None, "it would wait for an operator"
        return None, "it takes longer than the forecast covers"

    def _announce(self, wanted: Step) -> None:
        if self.rollout.works and wanted.host not in self.progress.work:
            work = Work(host=wanted.host, begun_at=self.now.at)
            self._set_work(wanted, work)
            if not wanted.machines:
                self._plan(wanted, self.now.at, self.now.at)
            return  # its evacuation is announced next
        appointed = appointment(self.rollout, self.now, self.progress.configurations_of(wanted))
        assert appointed is not None  # otherwise `next_step` would have paused
        event = Event(
            id=f"{wanted.cause}#{len(self.planned)}",
            group=wanted.group,
            type=self.rollout.type,
            source=Source.PLATFORM,
            resources=wanted.machines,
            domain=wanted.domain,
            not_before=appointed.not_before,
            raised_at=self.now.at,
            by=self.rollout.name,
            cause=wanted.cause,
            span=appointed.span,
        )
        self.progress.put(event)
        lasts = self.now.rules.paced(self.event_duration)
        self._plan(wanted, appointed.not_before, appointed.not_before + lasts)

    def _plan(self, step: Step, not_before: Time, ends_at: Time) -> None:
        self.planned[step.cause] = Planned(
            lane=self.rollout.lanes[self.progress.numbers[step.cause]].name,
            step=step,
            announced_at=self.now.at,
            not_before=not_before,
            ends_at=ends_at,
        )

    def _work(self) -> None:
        """Begin the work on hosts that are empty now, which takes as long as an event."""
        self.progress.refresh()
        for number in self.progress.begun:
            lane = self.progress.lanes[number]
            if lane.working and lane.next is not None and lane.next.step.cause not in self.planned:
                ends_at = self.now.at + self.now.rules.paced(self.event_duration)
                self._plan(lane.next.step, self.now.at, ends_at)

    def _set_work(self, step: Step, work: Work) -> None:
        self.progress.work[step.host] = work
        self.progress.machines_changed([self.progress.numbers[step.cause]])

    def _pass_time(self, upcoming: Next) -> Time | None:
        """Advance to the next instant at which something happens by itself, if there is one."""
        active = list(self.progress.active)
        ends = {event.id: self._ends_at(event) for event in active}
        instants = [upcoming.wake] if upcoming.wake is not None else []
        instants += ends.values()
        worked = [
            lane.next.step
            for lane in map(self.progress.lanes.__getitem__, self.progress.begun)
            if lane.working and lane.next is not None
        ]
        instants += [self.planned[step.cause].ends_at for step in worked]
        if not instants:
            return None
        at = max(min(instants), self.now.at)
        self.now = msgspec.structs.replace(self.now, at=at)
        for step in worked:
            if (ends_at := self.planned[step.cause].ends_at) <= at:
                work = self.progress.work[step.host]
                self._set_work(step, msgspec.structs.replace(work, returned_at=ends_at))
        for event in active:
            if ends[event.id] <= at:
                self._become(event, Status.FINISHED, ended_at=ends[event.id])
            elif event.not_before <= at and event.status is Status.SCHEDULED:
                self._become(event, Status.STARTED, started_at=event.not_before)
        return at

    def _ends_at(self, event: Event) -> Time:
        if event.cause in self.planned:
            return self.planned[event.cause].ends_at
        starts = (
            max(event.not_before, self.now.at) if event.started_at is None else event.started_at
        )
        return max(self.now.at, starts + self.now.rules.paced(self.event_duration))

    def _become(self, event: Event, status: Status, **fields: object) -> None:
        self.progress.put(msgspec.structs.replace(event, status=status, **fields))
