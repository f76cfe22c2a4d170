"""The progress of a rollout's steps and lanes, derived from the events they have caused.

Also what a lane waits for, and which gates must have passed. What the rollout does next is decided
in `next_step.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from forewarn.core.events import Event, Status
from forewarn.core.rollouts.model import Lane, Rollout, Step
from forewarn.core.time import Duration, Now, Time
from forewarn.support.text import listing


class StepState(enum.Enum):
    WAITING = "waiting"
    ANNOUNCED = "announced"
    STARTED = "started"
    DONE = "done"
    NOTHING = "nothing to do"  # its machines no longer exist, or have moved away
    CANCELLED = "cancelled"  # by an operator: it blocks its lane until the rollout is resumed

    @property
    def over(self) -> bool:
        return self in (StepState.DONE, StepState.NOTHING)


class WaitKind(enum.Enum):
    PAUSED = "paused"
    EVENT = "event"
    BAKE = "bake"
    GATE = "gate"
    WINDOW = "window"
    CANCELLED = "cancelled"
    TURN = "turn"
    CLOCK = "clock"  # the wall clock contradicts the service's time


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane waits for; if `lane` is empty, the rollout as a whole."""

    kind: WaitKind
    lane: str
    message: str
    since: Time
    until: Time | None = None  # at most; None: no time is set
    unblocked_by: str = ""
    events: tuple[str, ...] = ()


class StepProgress(msgspec.Struct, frozen=True, kw_only=True):
    step: Step
    state: StepState
    events: tuple[Event, ...] = ()  # of its last announcement

    @property
    def ended_at(self) -> Time:
        return max((event.ended_at or 0 for event in self.events), default=0)

    @property
    def active(self) -> tuple[Event, ...]:
        return tuple(event for event in self.events if not event.status.over)


class LaneProgress(msgspec.Struct, frozen=True, kw_only=True):
    lane: Lane
    steps: tuple[StepProgress, ...]
    active: tuple[Event, ...]
    next: StepProgress | None  # the first that is not over
    last_done: StepProgress | None  # the last one that was carried out
    begun: bool  # was any of its steps announced?
    last_raised: Time
    last_raised_cause: str
    busy: tuple[
        tuple[Time, Time | None, bool], ...
    ]  # of each event: raised, ended, was it carried out?

    def wait(self, rollout: Rollout) -> Wait:
        """Return what the lane waits for: its active events, or a resume after a cancellation."""
        busy = next((progress for progress in self.steps if progress.active), self.next)
        assert busy is not None
        name, events = self.lane.name, busy.active
        ids = tuple(event.id for event in events)
        match busy.state:
            case StepState.STARTED:
                return Wait(
                    kind=WaitKind.EVENT,
                    lane=name,
                    message=f"{step_text(busy.step)}: its {rollout.type.value} is being carried"
                    " out",
                    since=max(event.started_at or event.raised_at for event in events),
                    unblocked_by="the driver that is carrying it out",
                    events=ids,
                )
            case StepState.ANNOUNCED:
                closes = [e.span.closes for e in events if e.span and e.span.closes is not None]
                return Wait(
                    kind=WaitKind.EVENT,
                    lane=name,
                    message=f"{step_text(busy.step)}: its {rollout.type.value} is announced",
                    since=max(event.raised_at for event in events),
                    until=min(closes, default=None),
                    unblocked_by="see the event",
                    events=ids,
                )
        cancelled = [event for event in busy.events if event.cancelled_by]
        return Wait(
            kind=WaitKind.CANCELLED,
            lane=name,
            message=f"{step_text(busy.step)}: its event was cancelled"
            + (f" by {listing([e.cancelled_by for e in cancelled])}" if cancelled else ""),
            since=busy.ended_at,
            unblocked_by="an operator, by resuming the rollout, which announces it again, or by"
            " aborting it",
        )


def step_text(step: Step) -> str:
    """Describe a step for messages."""
    if step.host:
        return f"host {step.host}"
    return f"domain {step.domain} ({listing(step.machines)})"


def lane_progress(
    rollout: Rollout,
    lane: Lane,
    events: Mapping[str, Sequence[Event]],
    machines_of: Callable[[Step], Sequence[str]],
) -> LaneProgress:
    steps = tuple(
        step_progress(rollout, s, events.get(s.cause, ()), machines_of) for s in lane.steps
    )
    done = [progress for progress in steps if progress.state is StepState.DONE]
    caused = [event for step in lane.steps for event in events.get(step.cause, ())]
    # Steps can end at the same instant: then the later one in the lane counts as later.
    caused.reverse()
    latest = max(caused, key=lambda event: event.raised_at, default=None)
    return LaneProgress(
        lane=lane,
        steps=steps,
        active=tuple(event for progress in steps for event in progress.active),
        next=next((progress for progress in steps if not progress.state.over), None),
        last_done=max(reversed(done), key=lambda progress: progress.ended_at, default=None),
        begun=bool(caused),
        last_raised=latest.raised_at if latest else 0,
        last_raised_cause=latest.cause if latest else "",
        busy=tuple((e.raised_at, e.ended_at, e.status is Status.FINISHED) for e in caused),
    )


def step_progress(
    rollout: Rollout,
    step: Step,
    events: Sequence[Event],
    machines_of: Callable[[Step], Sequence[str]],
) -> StepProgress:
    if not events:
        state = StepState.WAITING if machines_of(step) else StepState.NOTHING
        return StepProgress(step=step, state=state)
    # A step that was announced again has older events; those of one announcement were raised at
    # the same instant.
    last_raised = events[-1].raised_at
    latest = tuple(e for e in events if e.raised_at == last_raised or not e.status.over)
    active = [event for event in latest if not event.status.over]
    if active:
        has_started = any(event.status is Status.STARTED for event in active)
        state = StepState.STARTED if has_started else StepState.ANNOUNCED
        return StepProgress(step=step, state=state, events=latest)
    if any(event.status is Status.FINISHED for event in latest):
        state = StepState.DONE
    elif not any(event.cancelled_by for event in latest) or not machines_of(step):
        state = StepState.NOTHING
    elif any(_blocks(rollout, event) for event in latest):
        state = StepState.CANCELLED
    else:
        state = StepState.WAITING
    return StepProgress(step=step, state=state, events=latest)


def withdrawn(rollout: Rollout, event: Event) -> bool:
    """Was it withdrawn by somebody other than the rollout itself?"""
    return event.cancelled_by not in ("", rollout.name)


def covered(rollout: Rollout, events: Iterable[Event], at: Time) -> tuple[str, ...]:
    """Return the ids of events withdrawn at the instant of a resume, which the resume includes."""
    return tuple(e.id for e in events if e.ended_at == at and withdrawn(rollout, e))


def _blocks(rollout: Rollout, event: Event) -> bool:
    """Was it withdrawn by an operator, and has the rollout not been resumed since?"""
    if not withdrawn(rollout, event):
        return False
    resumed, ended_at = rollout.resumed, event.ended_at or 0
    if resumed is None or resumed.at < ended_at:
        return True
    return resumed.at == ended_at and event.id not in rollout.covers


def proven_until(rollout: Rollout, lanes: Sequence[LaneProgress], now: Now) -> Time:
    """Return the last instant at which the maximum number of lanes (`at_once`) was in progress. A
    lane that was over and had baked by then has passed its gate.

    Answers of gates are not stored. Within a lane, the next step proves that the gate has passed;
    for the last step of a lane, other lanes prove it. A lane is certainly in progress from the
    announcement of a step until it has ended, and baked if it was carried out; while `at_once`
    lanes are in progress, no other lane is waiting at its gate.
    """
    bake = now.rules.paced(rollout.bake)
    changes: list[tuple[Time, int]] = []
    for lane in lanes:
        for begins, ends in _merged(lane.busy, bake, now.at + 1):
            changes += [(begins, 1), (ends, -1)]
    changes.sort()  # at one instant, ends come before beginnings
    proven, busy = -1, 0
    for at, change in changes:
        if busy == rollout.at_once:
            proven = at - 1
        busy += change
    return proven


def _merged(
    busy: Sequence[tuple[Time, Time | None, bool]], bake: Duration, open_end: Time
) -> list[tuple[Time, Time]]:
    """Merge intervals that overlap, and drop those of no length."""
    merged: list[tuple[Time, Time]] = []
    for begins, ended_at, carried_out in sorted(busy, key=lambda interval: interval[0]):
        ends = open_end if ended_at is None else min(ended_at + bake * carried_out, open_end)
        if merged and begins <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(ends, merged[-1][1])
        elif begins < ends:
            merged.append((begins, ends))
    return merged
