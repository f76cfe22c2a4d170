"""What a rollout does next: a pure function of the rollout and the events it has caused.

Nothing is remembered between two calls except answers of gates, and these can be lost: gates are
then asked again. `explain` shows the same `waits` that were decided on. The progress of each step
and lane is `progress.py`.
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
    step_text,
)
from forewarn.core.rollouts.windows import LOOK_AHEAD, next_span
from forewarn.core.time import SECOND, Duration, Now, Time, ceil_second
from forewarn.support.text import in_words

GATE_EVERY: Duration = 10 * SECOND
GATE_EVERY_LEAST: Duration = SECOND // 4  # however fast the clock runs

DONE, ABORTED = "done", "aborted"


class GateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer of the gate after a step."""

    at: Time
    passed: bool
    message: str = ""


class Appointment(msgspec.Struct, frozen=True):
    """When a step that is announced now may start."""

    not_before: Time
    span: Span | None = None


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollout does now, and what it waits for."""

    lanes: tuple[LaneProgress, ...]
    announce: tuple[Step, ...] = ()
    withdraw: tuple[Event, ...] = ()
    ask: tuple[str, ...] = ()  # ask the gate for the steps with these causes
    wake: Time | None = None  # when to compute the next step again, if nothing happens before
    pause: str = ""  # why it pauses itself; empty: it does not
    over: str = ""  # DONE or ABORTED; empty: it is not over
    waits: tuple[Wait, ...] = ()


def appointment(rollout: Rollout, now: Now) -> Appointment | None:
    """Return the first instant after the notice that lies in a window; None if no window opens."""
    earliest = _earliest(rollout, now)
    if not rollout.windows:
        return Appointment(earliest)
    span = next_span(rollout.windows, earliest)
    return None if span is None else Appointment(max(earliest, ceil_second(span.opens)), span)


def _earliest(rollout: Rollout, now: Now) -> Time:
    return ceil_second(now.at + now.rules.paced(rollout.event_notice))


def next_step(
    rollout: Rollout,
    events: Mapping[str, Sequence[Event]],  # by cause, in the order of raising
    gate_answers: Mapping[str, GateAnswer],  # by the cause of the step before the gate
    machines_of: Callable[[Step], Sequence[str]],  # the current machines of a step
    now: Now,
) -> Next:
    """Decide what a rollout does now."""
    computation = _NextStep(rollout, events, gate_answers, machines_of, now)
    if rollout.ended_at is not None:
        return Next(lanes=computation.lanes, over=ABORTED if rollout.aborted else DONE)
    if rollout.aborted is not None:
        return computation.aborting()
    if now.untrusted is not None:
        return computation.clock_untrusted()
    return computation.continuing()


class _NextStep:
    """One computation of `next_step`: collects what to do and what is waited for."""

    def __init__(
        self,
        rollout: Rollout,
        events: Mapping[str, Sequence[Event]],
        gate_answers: Mapping[str, GateAnswer],
        machines_of: Callable[[Step], Sequence[str]],
        now: Now,
    ) -> None:
        self.rollout, self.gate_answers, self.now = rollout, gate_answers, now
        self.lanes = tuple(
            lane_progress(rollout, lane, events, machines_of) for lane in rollout.lanes
        )
        self._proven = proven_until(rollout, self.lanes, now)
        self._announce: list[Step] = []
        self._withdraw: list[Event] = []
        self._ask: list[str] = []
        self._wakes: list[Time] = []
        self._waits: list[Wait] = []
        self._pause = ""

    @cached_property
    def _appointment(self) -> Appointment | None:
        """When a step that is announced now may start: the same for all, computed on demand."""
        return appointment(self.rollout, self.now)

    def aborting(self) -> Next:
        """Withdraw what has not started, and wait for the end of what has."""
        active = [event for lane in self.lanes for event in lane.active]
        self._withdraw += [event for event in active if event.status is Status.SCHEDULED]
        for lane in self.lanes:
            if lane.active and any(event.status is Status.STARTED for event in lane.active):
                self._waits.append(lane.wait(self.rollout))
        return self._result(over="" if active else ABORTED)

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
                unblocked_by="correcting the wall clock, or an admin, by accepting it",
            )
        )
        return self._result()

    def continuing(self) -> Next:
        """Wait for lanes in progress, and announce the next steps of as many others as allowed."""
        in_progress = 0
        ready: list[tuple[bool, LaneProgress]] = []
        finished = 0
        for lane in self.lanes:
            if lane.active:
                in_progress += 1
                self._wait_for_events(lane)
            elif self._bakes_or_waits_at_gate(lane):
                in_progress += 1
            elif lane.next is None:
                finished += 1
            elif lane.next.state is StepState.CANCELLED:  # it does not count as in progress
                self._waits.append(lane.wait(self.rollout))
            else:
                ready.append((not lane.begun, lane))
        if finished == len(self.lanes):
            return self._result(over=DONE)
        ready.sort(key=lambda entry: entry[0])  # lanes that have begun come first
        free = max(0, self.rollout.at_once - in_progress)
        for _, lane in ready[:free]:
            self._announce_next(lane)
        self._wait_for_turn([lane for _, lane in ready[free:]])
        return self._result()

    def _wait_for_events(self, lane: LaneProgress) -> None:
        """Wait for the lane's active events; withdraw those whose window has closed."""
        self._waits.append(lane.wait(self.rollout))
        for event in lane.active:
            if event.status is Status.SCHEDULED and event.span and event.span.closes is not None:
                if event.span.closes <= self.now.at:
                    self._withdraw.append(event)
                else:
                    self._wakes.append(event.span.closes)

    def _bakes_or_waits_at_gate(self, lane: LaneProgress) -> bool:
        """Is the last step still baking, or waiting for its gate?"""
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
                    message=f"{step_text(last.step)} is done; its bake time is"
                    f" {in_words(rollout.bake)}",
                    since=last.ended_at,
                    until=baked,
                    unblocked_by="time only",
                )
            )
            return True
        if rollout.gate is None or self._gate_passed(lane, baked):
            return False
        self._wait_at_gate(lane, last.step, baked)
        return True

    def _gate_passed(self, lane: LaneProgress, baked: Time) -> bool:
        """Has the gate passed, by its answer or by what was announced after it?"""
        last = lane.last_done
        assert last is not None
        answer = self.gate_answers.get(last.step.cause)
        if answer is not None and answer.passed:
            return True
        if lane.last_raised >= last.ended_at and lane.last_raised_cause != last.step.cause:
            return True
        return lane.next is None and baked <= self._proven

    def _wait_at_gate(self, lane: LaneProgress, last: Step, baked: Time) -> None:
        gate, now = self.rollout.gate, self.now
        assert gate is not None
        resumed = self.rollout.resumed.at if self.rollout.resumed else baked
        since = max(baked, resumed, now.steady_since or baked)
        until = since + now.rules.paced(gate.timeout)
        answer = self.gate_answers.get(last.cause)
        fresh = answer is not None and answer.at >= since
        answered = f"; it answered: {answer.message}" if answer is not None else ""
        self._waits.append(
            Wait(
                kind=WaitKind.GATE,
                lane=lane.lane.name,
                message=f"{step_text(last)} is done; the gate ({gate.description}) has not passed"
                f" yet{answered}",
                since=baked,
                until=until,
                unblocked_by=f"the gate ({gate.description}), or an operator, by aborting the"
                " rollout",
            )
        )
        if not self.rollout.running:
            return  # the answer would not be used
        if fresh and now.at >= until:
            self._pause = self._pause or (
                f"the gate ({gate.description}) did not pass within {in_words(gate.timeout)} after"
                f" {step_text(last)} of '{lane.lane.name}'{answered}"
            )
            return
        every = max(now.rules.paced(GATE_EVERY), GATE_EVERY_LEAST)
        if answer is None or not fresh or now.at >= answer.at + every:
            self._ask.append(last.cause)
        else:
            self._wakes.append(min(answer.at + every, until))

    def _announce_next(self, lane: LaneProgress) -> None:
        """Announce the lane's next step, unless it is paused or its window is too far away."""
        assert lane.next is not None
        if not self.rollout.running:
            return
        appointment = self._appointment
        if appointment is None:
            self._pause = f"none of its windows opens within {in_words(LOOK_AHEAD)}"
            return
        window_is_later = appointment.not_before > _earliest(self.rollout, self.now)
        if window_is_later and appointment.not_before - self.now.at > MAX_NOTICE:
            announced = appointment.not_before - MAX_NOTICE
            self._wakes.append(announced)
            self._waits.append(
                Wait(
                    kind=WaitKind.WINDOW,
                    lane=lane.lane.name,
                    message=f"{step_text(lane.next.step)} is announced {in_words(MAX_NOTICE)}"
                    " before its window opens",
                    since=self.now.at,
                    until=announced,
                    unblocked_by="time only",
                )
            )
            return
        self._announce.append(lane.next.step)

    def _wait_for_turn(self, lanes: Sequence[LaneProgress]) -> None:
        if not lanes:
            return
        names = f"{lanes[0].lane.name}" + (f" and {len(lanes) - 1} more" if lanes[1:] else "")
        self._waits.append(
            Wait(
                kind=WaitKind.TURN,
                lane=lanes[0].lane.name,
                message=f"{names}: waiting for their turn; at most {self.rollout.at_once} at once",
                since=self.rollout.created_at,
                unblocked_by="the end of a lane in progress",
            )
        )

    def _result(self, over: str = "") -> Next:
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
    reason = f" because {paused.why}" if paused.why else ""
    return Wait(
        kind=WaitKind.PAUSED,
        lane="",
        message=f"paused by {paused.by}{reason}; nothing new is announced, and announced events"
        " continue",
        since=paused.at,
        unblocked_by="an operator, by resuming or aborting the rollout",
    )
