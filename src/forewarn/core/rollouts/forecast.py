"""A forecast of a rollout: `next_step` over simulated events.

It assumes that nobody approves early, that nothing else holds an event, that every gate passes at
once, and that each event stays Started for a given time.
"""

from __future__ import annotations

import msgspec

from forewarn.core.events import Event, Source, Status
from forewarn.core.rollouts.model import Lane, Rollout, Step
from forewarn.core.rollouts.next_step import GateAnswer, Next, appointment, next_step
from forewarn.core.time import DAY, MINUTE, Duration, Now, Time

FORECAST_STEPS = 500  # at most
FORECAST_AHEAD: Duration = 730 * DAY
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
    left_out: int = 0  # steps beyond FORECAST_STEPS
    message: str = ""  # why the forecast ends early, if it does


def forecast(rollout: Rollout, now: Now, event_duration: Duration = TYPICAL_DURATION) -> Forecast:
    """Return the remaining plan of a rollout, with times."""
    shown, left_out = _limited(rollout)
    simulation = _Simulation(shown, now, event_duration)
    done_at, message = simulation.run()
    return Forecast(
        steps=tuple(simulation.planned.values()),
        done_at=None if left_out else done_at,
        left_out=left_out,
        message=message,
    )


def _limited(rollout: Rollout) -> tuple[Rollout, int]:
    """Return the rollout with the first lanes only, and the number of steps left out."""
    lanes: list[Lane] = []
    count = 0
    for lane in rollout.lanes:
        if lanes and count + len(lane.steps) > FORECAST_STEPS:
            break
        lanes.append(lane)
        count += len(lane.steps)
    total = sum(len(lane.steps) for lane in rollout.lanes)
    return msgspec.structs.replace(rollout, lanes=tuple(lanes)), total - count


class _Simulation:
    def __init__(self, rollout: Rollout, now: Now, event_duration: Duration) -> None:
        self.rollout, self.now, self.event_duration = rollout, now, event_duration
        self.lane_of = {s.cause: lane.name for lane in rollout.lanes for s in lane.steps}
        self.events: dict[str, list[Event]] = {}
        self.gate_answers: dict[str, GateAnswer] = {}
        self.planned: dict[str, Planned] = {}

    def run(self) -> tuple[Time | None, str]:
        until = self.now.at + FORECAST_AHEAD
        while self.now.at <= until:
            upcoming = next_step(
                self.rollout, self.events, self.gate_answers, lambda s: s.machines, self.now
            )
            if upcoming.over:
                return self.now.at, ""
            if upcoming.pause:
                return None, upcoming.pause
            for wanted in upcoming.announce:
                self._announce(wanted)
            for cause in upcoming.ask:
                self.gate_answers[cause] = GateAnswer(at=self.now.at, passed=True)
            if not upcoming.announce and not upcoming.ask:
                at = self._pass_time(upcoming)
                if at is None:
                    return None, "it would wait for an operator"
        return None, "it takes longer than the forecast covers"

    def _announce(self, wanted: Step) -> None:
        appointed = appointment(self.rollout, self.now)
        assert appointed is not None  # otherwise `next_step` would have paused
        event = Event(
            id=f"{wanted.cause}#{len(self.events)}",
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
        self.events.setdefault(wanted.cause, []).append(event)
        self.planned[wanted.cause] = Planned(
            lane=self.lane_of[wanted.cause],
            step=wanted,
            announced_at=self.now.at,
            not_before=appointed.not_before,
            ends_at=appointed.not_before + self.now.rules.paced(self.event_duration),
        )

    def _pass_time(self, upcoming: Next) -> Time | None:
        """Advance to the next instant at which something happens by itself, if there is one."""
        active = [event for lane in upcoming.lanes for event in lane.active]
        ends = {e.id: self.planned[e.cause].ends_at for e in active}
        instants = [upcoming.wake] if upcoming.wake is not None else []
        instants += ends.values()
        if not instants:
            return None
        at = max(min(instants), self.now.at)
        self.now = msgspec.structs.replace(self.now, at=at)
        for event in active:
            if ends[event.id] <= at:
                self._become(event, Status.FINISHED, ended_at=ends[event.id])
            elif event.not_before <= at and event.status is Status.SCHEDULED:
                self._become(event, Status.STARTED, started_at=event.not_before)
        return at

    def _become(self, event: Event, status: Status, **fields: Time) -> None:
        after = msgspec.structs.replace(event, status=status, **fields)
        self.events[event.cause] = [
            after if other.id == event.id else other for other in self.events[event.cause]
        ]
