"""The progress of a rollout's steps and lanes, derived from the events they have caused.

Also what a lane waits for, and which gates must have passed. What the rollout does next is decided
in `next_step.py`.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from forewarn.core.events import Event, Status
from forewarn.core.fleet import domain_name
from forewarn.core.halts import Halt
from forewarn.core.rollouts.model import Action, Lane, Rollout, Step, Work
from forewarn.core.time import Duration, Time
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.core.world import World
from forewarn.support.text import listing

Configurations: TypeAlias = tuple[MaintenanceConfiguration, ...]  # that a step has to obey


class StepState(enum.Enum):
    WAITING = "waiting"
    ANNOUNCED = "announced"
    STARTED = "started"
    DONE = "done"
    NOTHING = "nothing to do"  # its machines no longer exist, or have moved away
    SKIPPED = "skipped"  # by an operator, because its host has a conflict, or as it is excluded
    CANCELLED = "cancelled"  # by an operator: it blocks its lane until the rollout is resumed

    @property
    def over(self) -> bool:
        return self in (StepState.DONE, StepState.NOTHING, StepState.SKIPPED)


class WaitKind(enum.Enum):
    PAUSED = "paused"
    EVENT = "event"
    WORK = "work"  # on an empty host
    BAKE = "bake"
    GATE = "gate"
    WINDOW = "window"
    HALT = "halt"
    REACH = "reach"  # a host cannot be reached
    CANCELLED = "cancelled"
    TURN = "turn"
    WAVE = "wave"
    DEADLINE = "deadline"
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
    reason: str = ""  # the same for all lanes that wait for the same thing
    count: int = 1  # lanes that it stands for


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout has to know of a host that is being worked on."""

    machines: tuple[str, ...] = ()  # that are, or may be, on it
    cordoned: bool = True


class StepProgress(msgspec.Struct, frozen=True, kw_only=True):
    step: Step
    state: StepState
    events: tuple[Event, ...] = ()  # of its last announcement
    returned_at: Time | None = None  # of work on a host
    work: Work | None = None

    @property
    def ended_at(self) -> Time:
        if self.returned_at is not None:
            return self.returned_at
        return max((event.ended_at or 0 for event in self.events), default=0)

    @property
    def active(self) -> tuple[Event, ...]:
        return tuple(event for event in self.events if not event.status.over)

    @property
    def not_back(self) -> tuple[str, ...]:
        """The machines that have not come back from it."""
        return tuple(name for event in self.events for name in event.not_back)

    @property
    def failed_at(self) -> Time | None:
        """When an event of it began that its driver has failed to carry out, so far or for good, or
        after which a machine was not back; or the work on its host."""
        if self.work is not None and self.work.attempt is not None:
            attempt = self.work.attempt
            return self.work.started_at if attempt.stuck or attempt.note else None
        return max(
            (
                event.started_at
                for event in self.events
                if event.started_at is not None and _failed(event)
            ),
            default=None,
        )


def _failed(event: Event) -> bool:
    attempt = event.attempt
    failed = attempt is not None and bool(attempt.stuck or attempt.note) and not event.carried_out
    return failed or event.abandoned or bool(event.not_back)


class Failure(msgspec.Struct, frozen=True):
    """That a step has failed: when it had begun, and which machines are not back."""

    at: Time
    not_back: tuple[str, ...]


class LaneProgress(msgspec.Struct, frozen=True, kw_only=True):
    lane: Lane
    steps: tuple[StepProgress, ...]
    active: tuple[Event, ...]
    next: StepProgress | None  # the first that is not over
    last_done: StepProgress | None  # the last one that was carried out
    begun: bool  # was any of its steps announced, or its host cordoned?
    last_raised: Time
    last_raised_cause: str
    busy: tuple[
        tuple[Time, Time | None, bool], ...
    ]  # of each event: raised, ended, was it carried out?
    failures: tuple[Failure, ...] = ()  # of its steps

    @property
    def working(self) -> bool:
        """Is its host being worked on, or would be, if it were empty?"""
        progress = self.next
        if progress is None or progress.step.action is not Action.WORK:
            return False
        return progress.state is StepState.STARTED

    def wait(self, rollout: Rollout) -> Wait:
        """Return what the lane waits for: its active events, or a resume after a cancellation."""
        busy = next((progress for progress in self.steps if progress.active), self.next)
        assert busy is not None
        name, events = self.lane.name, busy.active
        ids = tuple(event.id for event in events)
        what = f"its {rollout.type.value} is"
        if busy.step.action is Action.EVACUATION:
            what = "the live migrations of its machines are"
        match busy.state:
            case StepState.STARTED if waiting := [e.waiting for e in events if e.waiting]:
                machines = dict.fromkeys(name for wait in waiting for name in wait.machines)
                return Wait(
                    kind=WaitKind.EVENT,
                    lane=name,
                    reason="waiting for machines to come back",
                    message=f"{step_text(busy.step)}: waiting for {listing(list(machines))} to poll"
                    " again",
                    since=max(wait.since for wait in waiting),
                    unblocked_by="its machines, by polling, or an operator, by finishing the event",
                    events=ids,
                )
            case StepState.STARTED:
                failed = busy.failed_at is not None
                return Wait(
                    kind=WaitKind.EVENT,
                    lane=name,
                    reason="its driver has failed" if failed else "being carried out",
                    message=f"{step_text(busy.step)}: {what} being carried out"
                    + (", but its driver has failed so far" if failed else ""),
                    since=max(event.started_at or event.raised_at for event in events),
                    unblocked_by="the driver that is carrying it out",
                    events=ids,
                )
            case StepState.ANNOUNCED:
                closes = [e.span.closes for e in events if e.span and e.span.closes is not None]
                return Wait(
                    kind=WaitKind.EVENT,
                    lane=name,
                    reason="announced",
                    message=f"{step_text(busy.step)}: {what} announced",
                    since=max(event.raised_at for event in events),
                    until=min(closes, default=None),
                    unblocked_by="see the event",
                    events=ids,
                )
        by = list(dict.fromkeys(e.cancelled_by for e in busy.events if e.cancelled_by))
        return Wait(
            kind=WaitKind.CANCELLED,
            lane=name,
            reason="cancelled",
            message=f"{step_text(busy.step)}: its event was cancelled"
            + (f" by {listing(by)}" if by else ""),
            since=busy.ended_at,
            unblocked_by="an operator, by resuming the rollout, which announces it again, or by"
            " aborting it",
        )


class RolloutProgress:
    """The progress of all lanes, computed again lane by lane as events and machines change.

    It is derived: whoever builds it again from the same events and machines gets the same. Kept
    between two decisions, a decision costs as much as the lanes in progress, not as all of them.
    """

    def __init__(
        self,
        rollout: Rollout,
        events: Mapping[str, Sequence[Event]],  # by cause, in the order of raising
        machines_of: Callable[[Step], Sequence[str]],
        configurations_of: Callable[[Step], Configurations] = lambda _: (),
        excluded: Callable[[Step], bool] = lambda _: False,
        on_host: Callable[[str], HostState] = lambda _: HostState(),
        halts_of: Callable[[Step, World], tuple[Halt, ...]] = lambda _, __: (),
        unreachable_of: Callable[[Step, World], tuple[str, ...]] = lambda _, __: (),
    ) -> None:
        """`on_host` is asked about hosts that are kept empty for work on them."""
        self.rollout = rollout
        self.work = {work.host: work for work in rollout.work}
        self.on_host = on_host
        self.halts_of, self.unreachable_of = halts_of, unreachable_of
        self.configurations_of = configurations_of
        self.excluded = excluded
        self.events = {cause: list(caused) for cause, caused in events.items()}
        self.machines_of = machines_of
        self._skipped = frozenset(rollout.skipped)
        self.failures: dict[int, tuple[Failure, ...]] = {}  # of lanes with failed steps
        self.numbers = {
            step.cause: number for number, lane in enumerate(rollout.lanes) for step in lane.steps
        }
        self.lanes = [self._progress(lane) for lane in rollout.lanes]
        self.begun: list[int] = []  # lanes that have begun and are not known to be complete
        self.waiting: list[int] = []  # lanes that have not begun
        self._stale: set[int] = set()
        self._waits: dict[int, Wait] = {}  # of lanes about which nothing has changed since
        for number in range(len(self.lanes)):
            self._classify(number)

    def put(self, event: Event) -> None:
        """Note a new or changed event."""
        number = self.numbers.get(event.cause)
        if number is None:
            return
        events = self.events.setdefault(event.cause, [])
        known = next((i for i, other in enumerate(events) if other.id == event.id), None)
        if known is None:
            insort(events, event, key=lambda event: event.raised_at)
        else:
            events[known] = event
        self._stale.add(number)

    def machines_changed(self, numbers: Iterable[int]) -> None:
        """Note that machines of these lanes have come, gone or moved."""
        self._stale.update(numbers)

    def refresh(self) -> None:
        """Compute the lanes again about which something was noted."""
        for number in self._stale:
            for numbers in (self.begun, self.waiting):
                _discard(numbers, number)
            self._waits.pop(number, None)
            self.lanes[number] = self._progress(self.rollout.lanes[number])
            self._classify(number)
        self._stale.clear()

    def wait(self, number: int) -> Wait:
        """Return what a lane waits for: its active events, or a resume after a cancellation."""
        if number not in self._waits:
            self._waits[number] = self.lanes[number].wait(self.rollout)
        return self._waits[number]

    def complete(self, number: int) -> None:
        """Note that a lane is over, has baked and has passed its gate: it stays so."""
        _discard(self.begun, number)

    @property
    def active(self) -> Iterable[Event]:
        return (event for number in self.begun for event in self.lanes[number].active)

    def _progress(self, lane: Lane) -> LaneProgress:
        work = self.work.get(lane.name) if self.rollout.works else None
        return lane_progress(self.rollout, lane, self.events, self.machines_of, self._skips, work)

    def _skips(self, step: Step) -> bool:
        return step.cause in self._skipped or self.excluded(step)

    def _classify(self, number: int) -> None:
        lane = self.lanes[number]
        self.failures.pop(number, None)
        if lane.failures:
            self.failures[number] = lane.failures
        if lane.begun:
            insort(self.begun, number)
        elif lane.next is not None:
            insort(self.waiting, number)


def _discard(numbers: list[int], number: int) -> None:
    at = bisect_left(numbers, number)
    if at < len(numbers) and numbers[at] == number:
        del numbers[at]


def step_text(step: Step) -> str:
    """Describe a step for messages."""
    if step.action is not Action.MAINTENANCE:
        return f"host {step.host}, {step.action.value}"
    if step.host:
        return f"host {step.host}" + (f", domain {domain_name(step.domain)}" if step.split else "")
    return f"domain {domain_name(step.domain)} ({listing(step.machines)})"


def lane_progress(
    rollout: Rollout,
    lane: Lane,
    events: Mapping[str, Sequence[Event]],
    machines_of: Callable[[Step], Sequence[str]],
    skips: Callable[[Step], bool],
    work: Work | None = None,
) -> LaneProgress:
    steps: tuple[StepProgress, ...] = ()
    for step in lane.steps:
        if step.action is Action.WORK:
            emptied = all(progress.state.over for progress in steps)
            progress = _work_progress(step, skips, work, emptied)
        else:
            caused_by = events.get(step.cause, ())
            progress = step_progress(rollout, step, caused_by, machines_of, skips, work)
        steps = (*steps, progress)
    done = [  # after an evacuation there is nothing to bake, or to ask a gate about
        progress
        for progress in steps
        if progress.state is StepState.DONE and progress.step.action is not Action.EVACUATION
    ]
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
        begun=bool(caused) or work is not None,
        last_raised=latest.raised_at if latest else 0,
        last_raised_cause=latest.cause if latest else "",
        busy=tuple((e.raised_at, e.ended_at, e.status is Status.FINISHED) for e in caused)
        + (() if work is None else ((work.begun_at, work.returned_at, True),)),
        failures=tuple(
            Failure(at, step.not_back) for step in steps if (at := step.failed_at) is not None
        ),
    )


def step_progress(
    rollout: Rollout,
    step: Step,
    events: Sequence[Event],
    machines_of: Callable[[Step], Sequence[str]],
    skips: Callable[[Step], bool],
    work: Work | None = None,
) -> StepProgress:
    if step.action is Action.EVACUATION:
        return _evacuation_progress(rollout, step, events, machines_of, skips, work)
    if not events:
        if skips(step):
            return StepProgress(step=step, state=StepState.SKIPPED)
        state = StepState.WAITING if machines_of(step) else StepState.NOTHING
        return StepProgress(step=step, state=state)
    latest = _latest(events)
    if active := _active_progress(step, latest):
        return active
    if any(event.status is Status.FINISHED for event in latest):
        state = StepState.DONE
    elif skips(step):
        state = StepState.SKIPPED
    elif not any(event.cancelled_by for event in latest) or not machines_of(step):
        state = StepState.NOTHING
    elif any(_blocks(rollout, event) for event in latest):
        state = StepState.CANCELLED
    else:
        state = StepState.WAITING
    return StepProgress(step=step, state=state, events=latest)


def _latest(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the events of the last announcement, which were raised at the same instant, and what
    is left of earlier ones."""
    last_raised = events[-1].raised_at if events else 0
    return tuple(e for e in events if e.raised_at == last_raised or not e.status.over)


def _active_progress(step: Step, latest: tuple[Event, ...]) -> StepProgress | None:
    active = [event for event in latest if not event.status.over]
    if not active:
        return None
    has_started = any(event.status is Status.STARTED for event in active)
    state = StepState.STARTED if has_started else StepState.ANNOUNCED
    return StepProgress(step=step, state=state, events=latest)


def _evacuation_progress(
    rollout: Rollout,
    step: Step,
    events: Sequence[Event],
    machines_of: Callable[[Step], Sequence[str]],
    skips: Callable[[Step], bool],
    work: Work | None,
) -> StepProgress:
    """An evacuation is over when nobody is left to be moved. Machines of which it was reported that
    they have moved, but which are still on the host, are not moved again."""
    latest = _latest(events)
    if active := _active_progress(step, latest):
        return active
    moved = {n for e in latest if e.status is Status.FINISHED for n in e.resources}
    returned = work is not None and work.returned_at is not None
    if not returned and skips(step):
        state = StepState.SKIPPED
    elif rollout.works and work is None:
        state = StepState.WAITING
    elif returned or moved.issuperset(machines_of(step)):
        state = StepState.DONE if moved else StepState.NOTHING
    elif any(_blocks(rollout, event) for event in latest):
        state = StepState.CANCELLED
    else:
        state = StepState.WAITING
    return StepProgress(step=step, state=state, events=latest)


def _work_progress(
    step: Step, skips: Callable[[Step], bool], work: Work | None, emptied: bool
) -> StepProgress:
    if work is not None and work.returned_at is not None:
        return StepProgress(step=step, state=StepState.DONE, returned_at=work.returned_at)
    if skips(step) and not (work is not None and work.under_way):
        return StepProgress(step=step, state=StepState.SKIPPED)
    state = StepState.STARTED if work is not None and emptied else StepState.WAITING
    return StepProgress(step=step, state=state, work=work)


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


def proven_until(rollout: Rollout, lanes: Sequence[LaneProgress], now: World) -> Time:
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
