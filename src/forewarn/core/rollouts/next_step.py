"""What a rollout does next: a pure function of the rollout and the events it has caused.

Nothing is remembered between two calls except answers of gates, and these can be lost: gates are
then asked again. `explain` shows the same `waits` that were decided on. The progress of each step
and lane is `progress.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import msgspec

from forewarn.core.events import MAX_NOTICE, Event, Status
from forewarn.core.fleet import reached_by
from forewarn.core.halts import Halt
from forewarn.core.rollouts.model import Rollout, Step, Work, WorkBy
from forewarn.core.rollouts.progress import (
    Configurations,
    LaneProgress,
    RolloutProgress,
    StepState,
    Wait,
    WaitKind,
    proven_until,
    step_text,
)
from forewarn.core.time import SECOND, Duration, Time, ceil_second
from forewarn.core.windows.model import MaintenanceConfiguration, Span
from forewarn.core.windows.openings import LOOK_AHEAD, next_open, next_span
from forewarn.core.world import World
from forewarn.support.text import counted, in_words, listing, utc

ANNOUNCING: Duration = SECOND  # that an announcement may take, while its driver is asked

GATE_EVERY: Duration = 10 * SECOND
GATE_EVERY_LEAST: Duration = SECOND // 4  # however fast the clock runs

DONE, ABORTED, EXPIRED = "done", "aborted", "expired"


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
    returned: tuple[str, ...] = ()  # hosts that have been put back into service after work on them
    work: tuple[str, ...] = ()  # hosts that the driver is to work on now
    ask: tuple[str, ...] = ()  # ask the gate for the steps with these causes
    wake: Time | None = None  # when to compute the next step again, if nothing happens before
    pause: str = ""  # why it pauses itself; empty: it does not
    over: str = ""  # DONE, ABORTED or EXPIRED; empty: it is not over
    wave: int = 0  # the first that is not complete
    waits: tuple[Wait, ...] = ()


def ending(rollout: Rollout) -> str:
    """Return how a rollout has ended."""
    if rollout.aborted is not None:
        return ABORTED
    return EXPIRED if rollout.steps_over not in (None, len(rollout.steps)) else DONE


def appointment(
    rollout: Rollout, now: World, configurations: Configurations = ()
) -> Appointment | None:
    """Return the first instant after the notice that lies in a window of the rollout and that the
    configurations of a step allow; None if there is none, or not before the deadline."""
    deadline = rollout.deadline
    when: Appointment | None = Appointment(now.after_notice(rollout.event_notice))
    if rollout.windows or configurations:
        when = _in_windows(rollout, now, configurations)
    if when is None or deadline is None:
        return when
    if when.not_before >= deadline:
        return None
    span = when.span or Span(now.at)
    closes = deadline if span.closes is None else min(span.closes, deadline)
    return Appointment(when.not_before, Span(span.opens, closes))


def announced(now: World) -> World:
    """Return when a step is announced about which its driver is asked now."""
    return msgspec.structs.replace(now, at=now.at + ANNOUNCING)


def _in_windows(rollout: Rollout, now: World, configurations: Configurations) -> Appointment | None:
    soonest = now.after_notice(rollout.event_notice)
    lasts = now.rules.paced(rollout.lasts or 0) if rollout.must_end_in_window else 0
    own = MaintenanceConfiguration(name="", windows=rollout.windows)
    at = soonest
    while at <= soonest + LOOK_AHEAD:
        span = next_open((own, *configurations), at)
        if span is None:
            return None
        not_before = max(soonest, ceil_second(span.opens))
        if not lasts:  # configurations hold an event by themselves, for as long as they apply
            window = next_span(rollout.windows, not_before) if rollout.windows else None
            return Appointment(not_before, window)
        if span.closes is None:
            return Appointment(not_before, span)
        if not_before + lasts <= span.closes:  # started later, it would not end in the window
            return Appointment(not_before, Span(span.opens, span.closes - lasts + 1))
        at = span.closes
    return None


def uninformed(event: Event, now: World) -> bool:
    """Does it not start because there are machines on its host that do not know of it?"""
    planned = event.status is Status.SCHEDULED and event.joint is not None
    return planned and bool(now.uninformed.get(event.host))


def next_step(
    rollout: Rollout,
    events: Mapping[str, Sequence[Event]],  # by cause, in the order of raising
    gate_answers: Mapping[str, GateAnswer],  # by the cause of the step before the gate
    machines_of: Callable[[Step], Sequence[str]],  # the current machines of a step
    now: World,
) -> Next:
    """Decide what a rollout does now."""
    return decide(RolloutProgress(rollout, events, machines_of), gate_answers, now)


def decide(progress: RolloutProgress, gate_answers: Mapping[str, GateAnswer], now: World) -> Next:
    """Decide what a rollout does now, given its progress so far."""
    progress.refresh()
    rollout = progress.rollout
    computation = _Decision(progress, gate_answers, now)
    if rollout.ended_at is not None:
        return Next(lanes=tuple(progress.lanes), over=ending(rollout))
    if rollout.aborted is not None:
        return computation.aborting()
    if now.untrusted is not None:
        return computation.clock_untrusted()
    return computation.continuing()


class _Decision:
    """One decision: collects what to do and what is waited for."""

    def __init__(
        self, progress: RolloutProgress, gate_answers: Mapping[str, GateAnswer], now: World
    ) -> None:
        self.progress, self.rollout = progress, progress.rollout
        self.gate_answers, self.now = gate_answers, now
        self._announce: list[Step] = []
        self._withdraw: list[Event] = []
        self._returned: list[str] = []
        self._work: list[str] = []
        self._ask: list[str] = []
        self._wakes: list[Time] = []
        self._waits: list[Wait] = []
        self._pause = ""
        self._appointments: dict[Configurations, Appointment | None] = {}

    @cached_property
    def _appointment(self) -> Appointment | None:
        """When a step that is announced now may start, as far as the rollout is concerned."""
        return appointment(self.rollout, announced(self.now))

    def _appointment_of(self, configurations: Configurations) -> Appointment | None:
        """When a step that is announced now may start: the same for all steps with these
        configurations."""
        if configurations not in self._appointments:
            found = appointment(self.rollout, announced(self.now), configurations)
            self._appointments[configurations] = found
        return self._appointments[configurations]

    @cached_property
    def _proven(self) -> Time:
        return proven_until(self.rollout, self.progress.lanes, self.now)

    @cached_property
    def _latest_wave(self) -> int:
        """The last wave that has begun: the gates of the waves before it have passed."""
        return max((lane.lane.wave for lane in self.progress.lanes if lane.begun), default=0)

    def aborting(self) -> Next:
        """Withdraw what has not started, and wait for the end of what has."""
        active = list(self.progress.active)
        working = False  # on a host
        self._withdraw += [event for event in active if event.status is Status.SCHEDULED]
        for number in self.progress.begun:
            lane = self.progress.lanes[number]
            if lane.active and any(event.status is Status.STARTED for event in lane.active):
                self._waits.append(self.progress.wait(number))
            elif lane.working and self.progress.work[lane.lane.name].under_way:
                self._wait_for_work(lane)
                working = True
        return self._result(over="" if active or working else ABORTED)

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
        progress = self.progress
        in_progress = 0
        ready: list[int] = []  # lanes that have begun and could continue: they come first
        for number in tuple(progress.begun):
            lane = progress.lanes[number]
            if lane.active:
                in_progress += 1
                self._wait_for_events(number)
            elif lane.working:
                in_progress += 1
                self._wait_for_work(lane)
            elif self._bakes_or_waits_at_gate(lane):
                in_progress += 1
            elif lane.next is None:
                progress.complete(number)
            elif lane.next.state is StepState.CANCELLED:  # it does not count as in progress
                self._waits.append(progress.wait(number))
            else:
                ready.append(number)
        if not progress.begun and not progress.waiting:
            return self._result(over=DONE)
        if self._too_late():
            if not in_progress:
                return self._result(over=EXPIRED)
            self._wait_for_deadline(len(ready) + len(progress.waiting))
            return self._result()
        self._count_failures()
        wave = self._first_wave()
        free = max(0, self.rollout.at_once - in_progress)
        turn = self._waiting_in(wave)
        if turn and free > len(ready) and self.rollout.running:
            self._confirm(wave)
        # Lanes that are halted, out of reach, or may start only after the deadline, take no place.
        halted: dict[tuple[Halt, ...], list[int]] = {}
        unreachable: dict[tuple[str, ...], list[int]] = {}
        late: list[int] = []
        in_turn: list[int] = []
        for number in (*ready, *turn):
            if free and (halts := self._halts(progress.lanes[number])):
                halted.setdefault(halts, []).append(number)
            elif free and (hosts := self._unreachable(progress.lanes[number])):
                unreachable.setdefault(hosts, []).append(number)
            elif free and self._late(progress.lanes[number]):
                late.append(number)
            elif free:
                self._announce_next(progress.lanes[number])
                free -= 1
            else:
                in_turn.append(number)
        for halts, numbers in halted.items():
            self._wait_for_release(halts, numbers)
        for hosts, numbers in unreachable.items():
            self._wait_for_reach(hosts, numbers)
        self._wait_for_windows(late)
        self._wait_for_turn(in_turn)
        self._wait_for_wave(wave, len(progress.waiting) - len(turn))
        return self._result()

    def _too_late(self) -> bool:
        """Can nothing be announced any more that could start before the deadline?"""
        deadline = self.rollout.deadline
        if deadline is None:
            return False
        if self.now.at < deadline:
            self._wakes.append(deadline)
        return self._appointment is None

    def _halts(self, lane: LaneProgress) -> tuple[Halt, ...]:
        """Return the halts because of which the lane's next step is not announced."""
        if not self.now.halts or not self.rollout.running or lane.next is None:
            return ()
        return self.progress.halts_of(lane.next.step, self.now)

    def _unreachable(self, lane: LaneProgress) -> tuple[str, ...]:
        """Return the hosts that cannot be reached of the lane's next step, so that it is not
        announced."""
        if not self.now.unreachable or not self.rollout.running or lane.next is None:
            return ()
        return self.progress.unreachable_of(lane.next.step, self.now)

    def _late(self, lane: LaneProgress) -> bool:
        """Do windows and blackouts let the lane's next step start, but only after the deadline?"""
        assert lane.next is not None
        rollout = self.rollout
        if rollout.deadline is None or not rollout.running:
            return False
        configurations = self.progress.configurations_of(lane.next.step)
        if self._appointment_of(configurations) is not None:
            return False
        endless = msgspec.structs.replace(rollout, deadline=None)
        return appointment(endless, announced(self.now), configurations) is not None

    def _count_failures(self) -> None:
        """Pause the rollout if more steps have failed than allowed, since it was last resumed. If
        no number is given, it goes on while drivers fail, but not while machines are not back."""
        if not self.rollout.running:
            return
        since = self.rollout.resumed.at if self.rollout.resumed else -1
        failures = [
            (number, failure)
            for number, failures in self.progress.failures.items()
            for failure in failures
            if failure.at > since
        ]
        allowed = self.rollout.max_failures
        lost = dict.fromkeys(name for _, failure in failures for name in failure.not_back)
        if allowed is None:
            if lost:
                self._pause = self._pause or f"not back after their events: {listing(list(lost))}"
            return
        failed = [number for number, _ in failures]
        if len(failed) > allowed:
            names = dict.fromkeys(self.rollout.lanes[number].name for number in failed)
            self._pause = self._pause or (
                f"{counted(len(failed), 'step')} failed, which is more than the {allowed} allowed:"
                f" {listing(list(names))}" + (f"; not back: {listing(list(lost))}" if lost else "")
            )

    def _first_wave(self) -> int:
        """Return the first wave that is not complete."""
        firsts = [numbers[0] for numbers in (self.progress.begun, self.progress.waiting) if numbers]
        return self.rollout.lanes[min(firsts)].wave

    def _waiting_in(self, wave: int) -> list[int]:
        """Return the lanes of a wave that have not begun. Lanes are in the order of their waves."""
        lanes, waiting = self.rollout.lanes, self.progress.waiting
        return waiting[: bisect_right(waiting, wave, key=lambda number: lanes[number].wave)]

    def _confirm(self, wave: int) -> None:
        """Pause the rollout before a wave for which an operator has to resume it."""
        rollout = self.rollout
        if any(rollout.confirmed <= number < wave for number in rollout.pause_after):
            self._pause = self._pause or (
                f"wave {wave} of {rollout.waves} is complete; the next one begins when"
                " an operator resumes the rollout"
            )

    def _wait_for_deadline(self, count: int) -> None:
        deadline = self.rollout.deadline
        if deadline is None or not count:
            return
        self._waits.append(
            Wait(
                kind=WaitKind.DEADLINE,
                lane="",
                count=count,
                message=f"{counted(count, 'lane')} will not continue, because no step could start"
                f" before the deadline, {utc(deadline)}",
                since=self.now.at,
                unblocked_by="nothing; start another rollout for them",
            )
        )

    def _wait_for_wave(self, wave: int, count: int) -> None:
        if not count:
            return
        self._waits.append(
            Wait(
                kind=WaitKind.WAVE,
                lane="",
                count=count,
                message=f"{counted(count, 'lane')} of later waves will begin when wave {wave + 1}"
                f" of {self.rollout.waves} is complete",
                since=self.rollout.created_at,
                unblocked_by="the end of the wave",
            )
        )

    def _wait_for_events(self, number: int) -> None:
        """Wait for a lane's active events; withdraw those whose window has closed, and those that
        cannot start because machines have come to their host that were not warned."""
        self._waits.append(self.progress.wait(number))
        for event in self.progress.lanes[number].active:
            if event.status is not Status.SCHEDULED:
                continue
            if self.rollout.running and uninformed(event, self.now):
                self._withdraw.append(event)
            elif event.span and event.span.closes is not None:
                if event.span.closes <= self.now.at:
                    self._withdraw.append(event)
                else:
                    self._wakes.append(event.span.closes)

    def _wait_for_work(self, lane: LaneProgress) -> None:
        """Wait until the lane's host, which was emptied, is put back into service."""
        name, work = lane.lane.name, self.progress.work[lane.lane.name]
        host = self.progress.on_host(name)
        if not host.cordoned:
            self._returned.append(name)
            return
        if self.rollout.work_by is WorkBy.DRIVER and not host.machines:
            self._wait_for_driver(lane, work)
            return
        emptied = max((step.ended_at for step in lane.steps), default=0)
        self._waits.append(
            Wait(
                kind=WaitKind.WORK,
                lane=name,
                reason="not empty" if host.machines else "empty and cordoned, for work",
                message=f"host {name} is not empty: {listing(host.machines)} is or may be on it"
                if host.machines
                else f"host {name} is empty and cordoned, and can be worked on",
                since=max(work.begun_at, emptied),
                unblocked_by="an operator, by recording on which other host each of them is"
                if host.machines
                else "an operator, by putting the host back into service when the work is done",
            )
        )

    def _wait_for_driver(self, lane: LaneProgress, work: Work) -> None:
        """Have the driver work on the lane's host, which is empty, or wait for it."""
        name, attempt, now = lane.lane.name, work.attempt, self.now
        until: Time | None = None
        if attempt is None:
            if halts := self._halts(lane):
                self._wait_for_release(halts, [self.progress.numbers[lane.steps[-1].step.cause]])
                return
            if self.rollout.running:
                self._work.append(name)
        elif not attempt.open and attempt.next_at is not None:
            until = attempt.next_at
            if now.at < until:
                self._wakes.append(until)
            else:
                self._work.append(name)
        note = f": {attempt.note}" if attempt is not None and attempt.note else ""
        reason, message = "worked on by the driver", f"the driver is working on host {name}"
        unblocked_by = "the driver"
        if attempt is not None and attempt.stuck:
            reason = "it is unknown whether the work was done"
            message = f"it is unknown whether the work on host {name} was done{note}"
            unblocked_by = (
                "an operator, by putting the host back into service if it was done, or by resuming"
                " the rollout, which has it done again"
            )
        elif note:
            reason, message = "its driver has failed", f"the work on host {name} has failed{note}"
        self._waits.append(
            Wait(
                kind=WaitKind.WORK,
                lane=name,
                reason=reason,
                message=message,
                since=work.started_at or now.at,
                until=until,
                unblocked_by=unblocked_by,
            )
        )

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
                    reason="bake time",
                    lane=lane.lane.name,
                    message=f"{step_text(last.step)} is done; its bake time is"
                    f" {in_words(rollout.bake)}",
                    since=last.ended_at,
                    until=baked,
                    unblocked_by="the passage of time",
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
        if lane.next is None and lane.lane.wave < self._latest_wave:
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
                reason="the gate has not passed",
                lane=lane.lane.name,
                message=f"{step_text(last)} is done; the gate ({gate.description}) has not passed"
                f" yet{answered}",
                since=baked,
                until=until if self.rollout.running else None,
                unblocked_by=f"the gate ({gate.description}), or an operator, by aborting the"
                " rollout"
                if self.rollout.running
                else "an operator, by resuming the rollout; the gate is not checked before then",
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
        configurations = self.progress.configurations_of(lane.next.step)
        appointment = self._appointment_of(configurations)
        if appointment is None:
            names = listing([f"'{configuration.name}'" for configuration in configurations])
            others = f" and the windows and blackouts of {names}" if configurations else ""
            self._pause = (
                f"the next step cannot start within {in_words(LOOK_AHEAD)}: its windows{others}"
                " leave no time that is long enough"
            )
            return
        window_is_later = appointment.not_before > announced(self.now).after_notice(
            self.rollout.event_notice
        )
        if window_is_later and appointment.not_before - self.now.at > MAX_NOTICE:
            announced_at = appointment.not_before - MAX_NOTICE
            self._wakes.append(announced_at)
            self._waits.append(
                Wait(
                    kind=WaitKind.WINDOW,
                    reason="announced later, for its window",
                    lane=lane.lane.name,
                    message=f"{step_text(lane.next.step)} is announced {in_words(MAX_NOTICE)}"
                    " before its window opens",
                    since=self.now.at,
                    until=announced_at,
                    unblocked_by="the passage of time",
                )
            )
            return
        self._announce.append(lane.next.step)

    def _wait_for_release(self, halts: Sequence[Halt], numbers: Sequence[int]) -> None:
        """Report lanes whose next steps are announced when these halts have been released."""
        by = [f"{halt.by}: {halt.note}" if halt.note else halt.by for halt in halts]
        reason = f"halted by {listing(by)}"
        self._waits.append(
            Wait(
                kind=WaitKind.HALT,
                lane=self.rollout.lanes[numbers[0]].name,
                count=len(numbers),
                reason=reason,
                message=f"{self._names(numbers)}: {reason}; nothing is announced until the release",
                since=max(self.rollout.created_at, *(halt.at for halt in halts)),
                unblocked_by="an operator, by releasing halt"
                f" {listing([halt.id for halt in halts])}",
            )
        )

    def _wait_for_reach(self, hosts: Sequence[str], numbers: Sequence[int]) -> None:
        """Report lanes whose next steps are announced when these hosts can be reached again."""
        several = len(hosts) > 1
        reason = f"{'hosts' if several else 'host'} {listing(hosts)} cannot be reached"
        nodes = "their nodes have" if several else "its node has"
        since = max(self.now.unreachable_since.get(host, self.now.at) for host in hosts)
        self._waits.append(
            Wait(
                kind=WaitKind.REACH,
                lane=self.rollout.lanes[numbers[0]].name,
                count=len(numbers),
                reason=reason,
                message=f"{self._names(numbers)}: {reason}, because {nodes} been cut off; nothing"
                " is announced to machines there until they can be reached",
                since=max(self.rollout.created_at, since),
                unblocked_by=reached_by(hosts[0]),
            )
        )

    def _names(self, numbers: Sequence[int]) -> str:
        """Name the first of these lanes, and count the others."""
        more = f" and {len(numbers) - 1} more" if numbers[1:] else ""
        return self.rollout.lanes[numbers[0]].name + more

    def _wait_for_windows(self, numbers: Sequence[int]) -> None:
        """Report lanes that may start only after the deadline."""
        if not numbers or self.rollout.deadline is None:
            return
        they = "them" if numbers[1:] else "it"
        self._waits.append(
            Wait(
                kind=WaitKind.DEADLINE,
                lane=self.rollout.lanes[numbers[0]].name,
                count=len(numbers),
                message=f"{self._names(numbers)}: windows and blackouts let {they} start only after"
                f" the deadline, {utc(self.rollout.deadline)}",
                since=self.now.at,
                until=self.rollout.deadline,
                unblocked_by="changing the windows and blackouts; or start another rollout for"
                f" {they}",
            )
        )

    def _wait_for_turn(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        self._waits.append(
            Wait(
                kind=WaitKind.TURN,
                lane=self.rollout.lanes[numbers[0]].name,
                count=len(numbers),
                message=f"{self._names(numbers)}: waiting, because at most {self.rollout.at_once}"
                " may be in progress at once",
                since=self.rollout.created_at,
                unblocked_by="the end of a lane in progress",
            )
        )

    def _result(self, over: str = "") -> Next:
        paused = self.rollout.paused
        waits = [] if over or paused is None else [paused_wait(self.rollout)]
        if over:
            return Next(lanes=tuple(self.progress.lanes), over=over)
        return Next(
            lanes=tuple(self.progress.lanes),
            announce=() if self._pause else tuple(self._announce),
            withdraw=tuple(self._withdraw),
            returned=tuple(self._returned),
            work=tuple(self._work),
            ask=tuple(self._ask),
            wake=min(self._wakes, default=None),
            pause=self._pause,
            waits=(*waits, *self._waits),
            wave=self._first_wave() if self.progress.begun or self.progress.waiting else 0,
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
