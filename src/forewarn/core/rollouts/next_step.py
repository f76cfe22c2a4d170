"""What a rollout does next: a pure function of its plan, its switches and the events it caused.

Nothing is remembered between two calls but what the gates have answered, and that may be
forgotten: it is asked again. `explain` shows the same `waits` that decided. How far each step and
lane has come is `progress.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import msgspec

from forewarn.core.events import MAX_NOTICE, Event, Span, Status
from forewarn.core.rollouts.model import Rollout, Step
from forewarn.core.rollouts.progress import (
    LaneProgress,
    StepState,
    Wait,
    WaitKind,
    lane_progress,
    proven_until,
    what,
)
from forewarn.core.rollouts.windows import LOOK_AHEAD, next_span
from forewarn.core.time import SECOND, Duration, Now, Time, ceil_second
from forewarn.support.text import in_words

GATE_EVERY: Duration = 10 * SECOND
GATE_EVERY_LEAST: Duration = SECOND // 4  # however fast time is made to pass

DONE, ABORTED = "done", "aborted"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate answered after a step, last."""

    at: Time
    passed: bool
    message: str = ""


class Appointment(msgspec.Struct, frozen=True):
    """When a step that is announced now may start."""

    not_before: Time
    span: Span | None = None


class Next(msgspec.Struct, frozen=True, kw_only=True):
    lanes: tuple[LaneProgress, ...]
    announce: tuple[Step, ...] = ()
    withdraw: tuple[Event, ...] = ()
    ask: tuple[str, ...] = ()  # the gate, for the steps with these causes
    wake: Time | None = None
    pause: str = ""  # why it has to pause itself
    over: str = ""
    waits: tuple[Wait, ...] = ()


def appointment(rollout: Rollout, now: Now) -> Appointment | None:
    """The first instant after the notice that lies in a window; None: there is none."""
    earliest = _earliest(rollout, now)
    if not rollout.windows:
        return Appointment(earliest)
    span = next_span(rollout.windows, earliest)
    return None if span is None else Appointment(max(earliest, ceil_second(span.opens)), span)


def _earliest(rollout: Rollout, now: Now) -> Time:
    return ceil_second(now.at + now.rules.paced(rollout.promised))


def step(
    rollout: Rollout,
    events: Mapping[str, Sequence[Event]],  # by cause, in the order of raising
    seen: Mapping[str, Seen],  # by the cause of the step that was over
    there: Callable[[Step], Sequence[str]],  # the machines that a step has now
    now: Now,
) -> Next:
    look = _NextStep(rollout, events, seen, there, now)
    if rollout.ended_at is not None:
        return Next(lanes=look.lanes, over=ABORTED if rollout.aborted else DONE)
    if rollout.aborted is not None:
        return look.aborting()
    if now.untrusted is not None:
        return look.clock_untrusted()
    return look.going()


class _NextStep:
    """One look at a rollout: what is found is gathered, then told."""

    def __init__(
        self,
        rollout: Rollout,
        events: Mapping[str, Sequence[Event]],
        seen: Mapping[str, Seen],
        there: Callable[[Step], Sequence[str]],
        now: Now,
    ) -> None:
        self.rollout, self.seen, self.now = rollout, seen, now
        self.lanes = tuple(lane_progress(rollout, lane, events, there) for lane in rollout.lanes)
        self._proven = proven_until(rollout, self.lanes, now)
        self._announce: list[Step] = []
        self._withdraw: list[Event] = []
        self._ask: list[str] = []
        self._wakes: list[Time] = []
        self._waits: list[Wait] = []
        self._pause = ""

    @cached_property
    def _when(self) -> Appointment | None:
        """The same for every step that is announced now, and not found for nothing."""
        return appointment(self.rollout, self.now)

    def aborting(self) -> Next:
        """What has not started is withdrawn, what has goes on to its end."""
        active = [event for lane in self.lanes for event in lane.active]
        self._withdraw += [event for event in active if event.status is Status.SCHEDULED]
        for lane in self.lanes:
            if lane.active and any(event.status is Status.STARTED for event in lane.active):
                self._waits.append(lane.wait(self.rollout))
        return self._told(over="" if active else ABORTED)

    def clock_untrusted(self) -> Next:
        """Wait for the clock, on which windows, bake times and gates depend."""
        assert self.now.untrusted is not None
        self._wakes.append(self.now.at + GATE_EVERY)
        self._waits.append(
            Wait(
                kind=WaitKind.CLOCK,
                lane="",
                message=self.now.clock_problem,
                since=self.now.untrusted.since,
                unblocked_by="whoever sets the wall clock right, or an admin, by accepting it",
            )
        )
        return self._told()

    def going(self) -> Next:
        taken = 0
        ready: list[tuple[bool, LaneProgress]] = []
        done = 0
        for lane in self.lanes:
            if lane.active:
                taken += 1
                self._in_flight(lane)
            elif self._settling(lane):
                taken += 1
            elif lane.next is None:
                done += 1
            elif lane.next.state is StepState.CANCELLED:  # it takes nobody's place
                self._waits.append(lane.wait(self.rollout))
            else:
                ready.append((not lane.begun, lane))
        if done == len(self.lanes):
            return self._told(over=DONE)
        ready.sort(key=lambda entry: entry[0])  # those that have begun go on first
        free = max(0, self.rollout.at_once - taken)
        for _, lane in ready[:free]:
            self._turn(lane)
        self._others([lane for _, lane in ready[free:]])
        return self._told()

    def _in_flight(self, lane: LaneProgress) -> None:
        """Its events go their own way, but not beyond their window."""
        self._waits.append(lane.wait(self.rollout))
        for event in lane.active:
            if event.status is Status.SCHEDULED and event.span and event.span.closes is not None:
                if event.span.closes <= self.now.at:
                    self._withdraw.append(event)
                else:
                    self._wakes.append(event.span.closes)

    def _settling(self, lane: LaneProgress) -> bool:
        """Is the step before still being watched: its bake time, then its gate?"""
        last = lane.last_done
        if last is None:
            return False
        rollout, paced = self.rollout, self.now.rules.paced
        baked = last.ended_at + paced(rollout.bake)
        if self.now.at < baked:
            self._wakes.append(baked)
            self._waits.append(
                Wait(
                    kind=WaitKind.BAKE,
                    lane=lane.lane.name,
                    message=f"{what(last.step)} is done; it bakes for {in_words(rollout.bake)}",
                    since=last.ended_at,
                    until=baked,
                    unblocked_by="nobody: time alone",
                )
            )
            return True
        if rollout.gate is None or self._passed(lane, baked):
            return False
        self._at_gate(lane, last.step, baked)
        return True

    def _passed(self, lane: LaneProgress, baked: Time) -> bool:
        """Did the gate pass? What came after it proves that it did."""
        last = lane.last_done
        assert last is not None
        answer = self.seen.get(last.step.cause)
        if answer is not None and answer.passed:
            return True
        if lane.last_raised >= last.ended_at and lane.last_raised_cause != last.step.cause:
            return True
        return lane.next is None and baked <= self._proven

    def _at_gate(self, lane: LaneProgress, last: Step, baked: Time) -> None:
        gate, now = self.rollout.gate, self.now
        assert gate is not None
        resumed = self.rollout.resumed.at if self.rollout.resumed else baked
        since = max(baked, resumed, now.steady_since or baked)
        until = since + now.rules.paced(gate.timeout)
        answer = self.seen.get(last.cause)
        fresh = answer is not None and answer.at >= since
        said = f"; it answered: {answer.message}" if answer is not None else ""
        self._waits.append(
            Wait(
                kind=WaitKind.GATE,
                lane=lane.lane.name,
                message=f"{what(last)} is done; the gate ({gate.named}) has not passed yet{said}",
                since=baked,
                until=until,
                unblocked_by=f"whoever looks after {gate.named}; or abort the rollout",
            )
        )
        if not self.rollout.going:
            return  # nobody waits for the answer
        if fresh and now.at >= until:
            self._pause = self._pause or (
                f"the gate ({gate.named}) did not pass within {in_words(gate.timeout)} after"
                f" {what(last)} of '{lane.lane.name}'{said}"
            )
            return
        every = max(now.rules.paced(GATE_EVERY), GATE_EVERY_LEAST)
        if answer is None or not fresh or now.at >= answer.at + every:
            self._ask.append(last.cause)
        else:
            self._wakes.append(min(answer.at + every, until))

    def _turn(self, lane: LaneProgress) -> None:
        """It is this lane's turn: its next step is announced, unless something forbids it."""
        assert lane.next is not None
        if not self.rollout.going:
            return
        when = self._when
        if when is None:
            self._pause = f"none of its windows opens within {in_words(LOOK_AHEAD)}"
            return
        window_is_later = when.not_before > _earliest(self.rollout, self.now)
        if window_is_later and when.not_before - self.now.at > MAX_NOTICE:
            announced = when.not_before - MAX_NOTICE
            self._wakes.append(announced)
            self._waits.append(
                Wait(
                    kind=WaitKind.WINDOW,
                    lane=lane.lane.name,
                    message=f"{what(lane.next.step)} is announced {in_words(MAX_NOTICE)} before its"
                    " window opens",
                    since=self.now.at,
                    until=announced,
                    unblocked_by="nobody: time alone",
                )
            )
            return
        self._announce.append(lane.next.step)

    def _others(self, lanes: Sequence[LaneProgress]) -> None:
        if not lanes:
            return
        some = f"{lanes[0].lane.name}" + (f" and {len(lanes) - 1} more" if lanes[1:] else "")
        self._waits.append(
            Wait(
                kind=WaitKind.TURN,
                lane=lanes[0].lane.name,
                message=f"{some}: not their turn yet; at most {self.rollout.at_once} at once",
                since=self.rollout.created_at,
                unblocked_by="whatever the others wait for",
            )
        )

    def _told(self, over: str = "") -> Next:
        paused = self.rollout.paused
        waits = [] if over or paused is None else [paused_wait(self.rollout)]
        if over:
            return Next(lanes=self.lanes, over=over)
        return Next(
            lanes=self.lanes,
            announce=() if self._pause else tuple(self._announce),
            withdraw=tuple(self._withdraw),
            ask=tuple(self._ask),
            wake=min(self._wakes, default=None),
            pause=self._pause,
            waits=(*waits, *self._waits),
        )


def paused_wait(rollout: Rollout) -> Wait:
    paused = rollout.paused
    assert paused is not None
    because = f" because {paused.why}" if paused.why else ""
    return Wait(
        kind=WaitKind.PAUSED,
        lane="",
        message=f"paused by {paused.by}{because}; nothing new is announced, what is announced goes"
        " on",
        since=paused.at,
        unblocked_by="an operator, by resuming or aborting the rollout",
    )
