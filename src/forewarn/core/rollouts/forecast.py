"""When a rollout would do what: the same `step` that decides, over events that are pretended.

Nobody approves early, nothing else is in the way, every gate passes at once, and each event
stays Started for as long as one says.
"""

from __future__ import annotations

import msgspec

from forewarn.core.events import Event, Source, Status
from forewarn.core.rollouts.model import Lane, Rollout, Step
from forewarn.core.rollouts.next_step import Next, Seen, appointment, step
from forewarn.core.time import DAY, MINUTE, Duration, Now, Time

FORECAST_STEPS = 500  # that are looked ahead
FORECAST_AHEAD: Duration = 730 * DAY
TYPICAL: Duration = 10 * MINUTE  # that an event stays Started, if nobody says


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    lane: str
    step: Step
    announced_at: Time
    not_before: Time
    ends_at: Time


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[Planned, ...]
    done_at: Time | None  # None: not within what is looked ahead
    left_out: int = 0  # steps that are not looked at
    message: str = ""  # why it goes no further, if it does not


def forecast(rollout: Rollout, now: Now, lasts: Duration = TYPICAL) -> Forecast:
    """The plan from here on, with times."""
    shown, left_out = _first(rollout)
    simulation = _Simulation(shown, now, lasts)
    done_at, message = simulation.run()
    return Forecast(
        steps=tuple(simulation.planned.values()),
        done_at=None if left_out else done_at,
        left_out=left_out,
        message=message,
    )


def _first(rollout: Rollout) -> tuple[Rollout, int]:
    """With as many lanes as there are steps to be looked at."""
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
    def __init__(self, rollout: Rollout, now: Now, lasts: Duration) -> None:
        self.rollout, self.now, self.lasts = rollout, now, lasts
        self.lane_of = {s.cause: lane.name for lane in rollout.lanes for s in lane.steps}
        self.events: dict[str, list[Event]] = {}
        self.seen: dict[str, Seen] = {}
        self.planned: dict[str, Planned] = {}

    def run(self) -> tuple[Time | None, str]:
        until = self.now.at + FORECAST_AHEAD
        while self.now.at <= until:
            then = step(self.rollout, self.events, self.seen, lambda s: s.machines, self.now)
            if then.over:
                return self.now.at, ""
            if then.pause:
                return None, then.pause
            for wanted in then.announce:
                self._announce(wanted)
            for cause in then.ask:
                self.seen[cause] = Seen(at=self.now.at, passed=True)
            if not then.announce and not then.ask:
                at = self._pass_time(then)
                if at is None:
                    return None, "it would wait for somebody"
        return None, "it goes on for longer than is looked ahead"

    def _announce(self, wanted: Step) -> None:
        when = appointment(self.rollout, self.now)
        assert when is not None  # or `step` would have said so
        event = Event(
            id=f"{wanted.cause}#{len(self.events)}",
            group=wanted.group,
            type=self.rollout.type,
            source=Source.PLATFORM,
            resources=wanted.machines,
            domain=wanted.domain,
            not_before=when.not_before,
            raised_at=self.now.at,
            by=self.rollout.name,
            cause=wanted.cause,
            span=when.span,
        )
        self.events.setdefault(wanted.cause, []).append(event)
        self.planned[wanted.cause] = Planned(
            lane=self.lane_of[wanted.cause],
            step=wanted,
            announced_at=self.now.at,
            not_before=when.not_before,
            ends_at=when.not_before + self.now.rules.paced(self.lasts),
        )

    def _pass_time(self, then: Next) -> Time | None:
        """To the next instant at which something happens by itself."""
        active = [event for lane in then.lanes for event in lane.active]
        ends = {e.id: self.planned[e.cause].ends_at for e in active}
        instants = [then.wake] if then.wake is not None else []
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
            after if known.id == event.id else known for known in self.events[event.cause]
        ]
