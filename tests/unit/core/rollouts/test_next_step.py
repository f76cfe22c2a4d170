"""Rollouts as a pure function: driven over pretended events, forgetting at every point.

What the machine remembers of gates and steps is its own record of what happened, never read by
the code under test; that is only ever given the plan and the events.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from forewarn.core.events import MAX_NOTICE, Event, EventType, Source, Status
from forewarn.core.rollouts.model import Gate, Lane, Rollout, Step, Switch
from forewarn.core.rollouts.next_step import (
    GATE_EVERY,
    GateAnswer,
    Next,
    appointment,
    decide,
    next_step,
)
from forewarn.core.rollouts.progress import RolloutProgress, StepState, WaitKind, covered
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Time
from forewarn.core.windows.syntax import parse_window
from forewarn.core.world import World
from helpers.examples import examples

START: Time = 1_800_000_000 * SECOND  # Friday, 15 January 2027, 08:00
GATE = Gate(http="http://localhost/ready")


def a_rollout(*sizes: int, **fields: Any) -> Rollout:
    """With a lane for each number, and so many domains in it."""
    lanes = tuple(
        Lane(
            name=f"g{i}",
            steps=tuple(
                Step(
                    cause=f"rollout/R/g{i}/{domain}",
                    group=f"g{i}",
                    domain=domain,
                    machines=(f"g{i}_{domain}a", f"g{i}_{domain}b"),
                )
                for domain in range(size)
            ),
        )
        for i, size in enumerate(sizes)
    )
    return Rollout(id="R", type=EventType.REBOOT, lanes=lanes, by="x", created_at=START, **fields)


class RolloutWorld:
    """What the rollout sees of the world, and a hand on all of it."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout
        self.now = World(at=START)
        self.events: dict[str, list[Event]] = {}
        self.gate_answers: dict[str, GateAnswer] = {}
        self.gone: set[str] = set()
        self.count = 0
        self.kept: RolloutProgress | None = None
        self.kept_gone: set[str] = set()

    def there(self, wanted: Step) -> list[str]:
        return [name for name in wanted.machines if name not in self.gone]

    def look(self) -> Next:
        """What it does next, for whoever has kept the progress. Without it the decision is the
        same, except that it may ask a gate again that has passed."""
        then = decide(self._keep(), self.gate_answers, self.now)
        if self.rollout.gate is None:
            assert then == next_step(
                self.rollout, self.events, self.gate_answers, self.there, self.now
            )
        return then

    def _keep(self) -> RolloutProgress:
        if self.kept is None or self.kept.rollout is not self.rollout:
            self.kept = RolloutProgress(self.rollout, self.events, self.there)
        lost = self.gone - self.kept_gone
        for number, lane in enumerate(self.rollout.lanes):
            if any(name in lost for step in lane.steps for name in step.machines):
                self.kept.machines_changed([number])
        self.kept_gone = set(self.gone)
        for cause, events in self.events.items():
            known = self.kept.events.get(cause, [])
            for event in events:
                if event not in known:
                    self.kept.put(event)
        return self.kept

    def at(self, at: Time) -> None:
        self.now = msgspec.structs.replace(self.now, at=at)

    def announce(self, wanted: Step) -> Event:
        when = appointment(self.rollout, self.now)
        assert when is not None
        self.count += 1
        event = Event(
            id=f"E{self.count}",
            group=wanted.group,
            type=self.rollout.type,
            source=Source.PLATFORM,
            resources=tuple(self.there(wanted)),
            domain=wanted.domain,
            not_before=when.not_before,
            raised_at=self.now.at,
            by=self.rollout.name,
            cause=wanted.cause,
            span=when.span,
        )
        self.events.setdefault(wanted.cause, []).append(event)
        return event

    def become(self, event: Event, status: Status, **fields: Any) -> None:
        if status.over:
            fields["ended_at"] = self.now.at
        elif status is Status.STARTED:
            fields["started_at"] = self.now.at
        known = self.events[event.cause]
        known[known.index(event)] = msgspec.structs.replace(event, status=status, **fields)

    def withdraw(self, event: Event, by: str) -> None:
        self.become(event, Status.WITHDRAWN, cancelled_by=by)

    def active(self) -> list[Event]:
        return [e for events in self.events.values() for e in events if not e.status.over]

    def finish(self, *causes: str) -> None:
        for event in self.active():
            if event.cause in causes:
                self.become(event, Status.FINISHED)

    def switch(self, **switches: Any) -> None:
        self.rollout = msgspec.structs.replace(self.rollout, **switches)

    def resume(self) -> None:
        at = self.now.at
        events = [event for caused in self.events.values() for event in caused]
        switch = Switch(by="x", at=at)
        self.switch(paused=None, resumed=switch, covers=covered(self.rollout, events, at))

    def carry_out(self) -> Next:
        """Whatever it says, as long as it says something; gates are not answered here."""
        for _ in range(100):
            then = self.look()
            for event in then.withdraw:
                self.withdraw(event, self.rollout.name)
            for wanted in then.announce:
                self.announce(wanted)
            if then.pause:
                self.switch(paused=Switch(by="itself", at=self.now.at, why=then.pause))
            if not then.withdraw and not then.announce and not then.pause:
                return then
        raise AssertionError("it never comes to rest")


def causes(then: Next) -> list[str]:
    return [wanted.cause.removeprefix("rollout/R/") for wanted in then.announce]


def test_a_groups_domains_go_one_after_the_other() -> None:
    world = RolloutWorld(a_rollout(3))
    assert causes(world.look()) == ["g0/0"]
    world.carry_out()
    world.finish("rollout/R/g0/0")
    assert causes(world.look()) == ["g0/1"]


def test_at_most_so_many_groups_go_at_once() -> None:
    world = RolloutWorld(a_rollout(1, 2, 1, at_once=2))
    assert causes(world.look()) == ["g0/0", "g1/0"]
    then = world.carry_out()
    assert [wait.kind for wait in then.waits] == [WaitKind.EVENT, WaitKind.EVENT, WaitKind.TURN]
    world.finish("rollout/R/g1/0")
    assert causes(world.look()) == ["g1/1"]  # what has begun goes on first
    world.carry_out()
    world.finish("rollout/R/g0/0")
    assert causes(world.look()) == ["g2/0"]


def test_a_rollout_bakes_and_then_asks_the_gate() -> None:
    world = RolloutWorld(a_rollout(2, bake=5 * MINUTE, gate=GATE))
    world.carry_out()
    world.finish("rollout/R/g0/0")
    then = world.look()
    assert (then.announce, then.ask, then.wake) == ((), (), START + 5 * MINUTE)
    world.at(START + 5 * MINUTE)
    assert world.look().ask == ("rollout/R/g0/0",)
    world.gate_answers["rollout/R/g0/0"] = GateAnswer(
        at=world.now.at, passed=False, message="status 503"
    )
    then = world.look()
    assert (then.announce, then.ask, then.wake) == ((), (), world.now.at + GATE_EVERY)
    assert "status 503" in then.waits[0].message
    world.at(world.now.at + GATE_EVERY)
    assert world.look().ask == ("rollout/R/g0/0",)
    world.gate_answers["rollout/R/g0/0"] = GateAnswer(at=world.now.at, passed=True)
    assert causes(world.look()) == ["g0/1"]


def test_a_gate_that_does_not_pass_in_time_pauses_the_rollout_with_its_answer() -> None:
    world = RolloutWorld(a_rollout(2, gate=GATE))
    world.carry_out()
    world.finish("rollout/R/g0/0")
    world.gate_answers["rollout/R/g0/0"] = GateAnswer(
        at=START + 9 * MINUTE, passed=False, message="status 503"
    )
    world.at(START + 10 * MINUTE - 1)
    assert not world.look().pause
    world.at(START + 10 * MINUTE)
    assert "within 10 min" in world.look().pause
    assert "status 503" in world.look().pause
    world.carry_out()
    assert world.look().ask == ()  # nobody waits for the answer while it is paused
    gate = next(wait for wait in world.look().waits if wait.kind is WaitKind.GATE)
    assert (gate.until, "resuming" in gate.unblocked_by) == (None, True)
    world.switch(paused=None, resumed=Switch(by="x", at=world.now.at))
    then = world.look()
    assert not then.pause  # the gate gets its whole time again
    assert then.ask == ("rollout/R/g0/0",)


def test_a_gate_without_a_known_answer_is_asked_again_before_it_times_out() -> None:
    world = RolloutWorld(a_rollout(2, gate=GATE))
    world.carry_out()
    world.finish("rollout/R/g0/0")
    world.at(START + DAY)
    then = world.look()
    assert (then.pause, then.ask) == ("", ("rollout/R/g0/0",))


def test_what_came_after_a_gate_proves_that_it_passed() -> None:
    world = RolloutWorld(a_rollout(2, 2, gate=GATE))
    world.carry_out()
    world.finish("rollout/R/g0/0")
    world.gate_answers["rollout/R/g0/0"] = GateAnswer(at=START, passed=True)
    world.carry_out()
    world.finish("rollout/R/g0/1")
    world.gate_answers["rollout/R/g0/1"] = GateAnswer(at=START, passed=True)
    world.at(START + MINUTE)
    world.carry_out()
    world.gate_answers.clear()
    world.kept = None  # a restart
    assert world.look().ask == ()
    assert [wait.lane for wait in world.look().waits] == ["g1"]


def test_the_last_steps_gate_counts_too() -> None:
    world = RolloutWorld(a_rollout(1, 1, gate=GATE))
    world.carry_out()
    world.finish("rollout/R/g0/0")
    assert causes(world.carry_out()) == []
    world.gate_answers["rollout/R/g0/0"] = GateAnswer(at=START, passed=True)
    world.carry_out()
    world.finish("rollout/R/g1/0")
    assert world.look().over == ""
    world.gate_answers["rollout/R/g1/0"] = GateAnswer(at=START, passed=True)
    assert world.look().over == "done"


def test_a_beginning_proves_nothing_while_there_was_room_for_it_anyway() -> None:
    """Two at once: the third begins when one of the first two is done, and who knows which."""
    world = RolloutWorld(a_rollout(1, 1, 1, at_once=2, gate=GATE))
    world.carry_out()
    world.at(START + HOUR)
    world.finish("rollout/R/g0/0", "rollout/R/g1/0")
    world.gate_answers["rollout/R/g0/0"] = GateAnswer(at=world.now.at, passed=True)
    world.carry_out()
    assert [event.group for event in world.active()] == ["g2"]
    world.gate_answers.clear()
    world.kept = None
    assert world.look().ask == ("rollout/R/g0/0", "rollout/R/g1/0")


def test_what_a_gate_answered_before_somebody_resumed_no_longer_counts() -> None:
    world = RolloutWorld(a_rollout(2, gate=GATE))
    world.carry_out()
    world.finish("rollout/R/g0/0")
    world.gate_answers["rollout/R/g0/0"] = GateAnswer(at=START, passed=False, message="status 503")
    world.at(START + 5 * SECOND)
    assert world.look().ask == ()
    world.switch(resumed=Switch(by="x", at=world.now.at))
    assert world.look().ask == ("rollout/R/g0/0",)


def test_a_cancelled_step_blocks_its_lane_until_a_resume() -> None:
    world = RolloutWorld(a_rollout(2))
    world.carry_out()
    world.withdraw(world.active()[0], "operator")
    then = world.look()
    assert (then.announce, then.over) == ((), "")
    assert then.waits[0].kind is WaitKind.CANCELLED
    assert "by operator" in then.waits[0].message
    world.at(START + HOUR)
    world.switch(resumed=Switch(by="x", at=world.now.at))
    assert causes(world.look()) == ["g0/0"]


def test_a_blocked_lane_does_not_count_as_in_progress() -> None:
    world = RolloutWorld(a_rollout(2, 1, 1))
    world.carry_out()
    world.withdraw(world.active()[0], "operator")
    assert causes(world.look()) == ["g1/0"]
    world.carry_out()
    world.at(START + HOUR)
    world.resume()
    assert causes(world.look()) == []  # one at a time: it has to wait for its turn again
    world.finish("rollout/R/g1/0")
    assert causes(world.look()) == ["g0/0"]  # but goes before those that have not begun
    world.carry_out()
    assert [event.group for event in world.active()] == ["g0"]


def test_a_lane_that_was_blocked_proves_nothing_about_the_gates_of_others() -> None:
    """Two at once: the third began beside the second at its gate, because the first was blocked."""
    world = RolloutWorld(a_rollout(1, 1, 1, at_once=2, gate=GATE))
    world.carry_out()
    world.withdraw(world.active()[0], "operator")
    world.at(START + HOUR)
    world.finish("rollout/R/g1/0")
    world.carry_out()
    assert [event.group for event in world.active()] == ["g2"]
    world.finish("rollout/R/g2/0")
    world.gate_answers["rollout/R/g2/0"] = GateAnswer(at=world.now.at, passed=True)
    world.resume()
    world.carry_out()
    assert [event.group for event in world.active()] == ["g0"]
    world.gate_answers.clear()
    world.kept = None
    assert "rollout/R/g1/0" in world.look().ask


def test_a_withdrawn_step_does_not_count_as_baked() -> None:
    world = RolloutWorld(a_rollout(1, 1, 1, at_once=2, gate=GATE, bake=5 * MINUTE))
    world.carry_out()
    world.finish("rollout/R/g1/0")
    world.at(START + 6 * MINUTE)
    world.withdraw(world.active()[0], "operator")
    world.carry_out()
    assert [event.group for event in world.active()] == ["g2"]
    world.at(START + 7 * MINUTE)
    assert world.look().ask == ("rollout/R/g1/0",)


def test_a_resume_unblocks_only_steps_cancelled_before_it_even_at_the_same_instant() -> None:
    world = RolloutWorld(a_rollout(1))
    world.carry_out()
    world.withdraw(world.active()[0], "operator")
    world.resume()
    assert causes(world.look()) == ["g0/0"]
    world.carry_out()
    world.withdraw(world.active()[0], "operator")
    assert causes(world.look()) == []
    world.resume()
    assert causes(world.look()) == ["g0/0"]


def test_the_gate_is_asked_after_each_of_several_steps_that_end_at_one_instant() -> None:
    world = RolloutWorld(a_rollout(3, gate=GATE))
    for domain in range(3):
        world.carry_out()
        cause = f"rollout/R/g0/{domain}"
        world.finish(cause)
        assert (causes(world.look()), world.look().ask) == ([], (cause,))
        world.gate_answers[cause] = GateAnswer(at=START, passed=True)
    assert world.look().over == "done"


def test_what_came_after_a_gate_at_the_same_instant_proves_that_it_passed() -> None:
    world = RolloutWorld(a_rollout(2, gate=GATE))
    world.carry_out()
    world.finish("rollout/R/g0/0")
    world.gate_answers["rollout/R/g0/0"] = GateAnswer(at=START, passed=True)
    world.carry_out()
    world.withdraw(world.active()[0], world.rollout.name)
    world.gate_answers.clear()
    world.kept = None
    assert causes(world.look()) == ["g0/1"]


def test_the_longest_notice_is_announced_also_between_two_seconds() -> None:
    world = RolloutWorld(a_rollout(1, notice=MAX_NOTICE))
    world.at(START + 1)
    assert causes(world.look()) == ["g0/0"]


def test_a_step_with_nothing_to_do_is_over_without_baking() -> None:
    world = RolloutWorld(a_rollout(2, bake=HOUR, gate=GATE))
    world.carry_out()
    world.become(world.active()[0], Status.WITHDRAWN, ending="all its machines are gone")
    assert causes(world.look()) == ["g0/1"]


def test_a_step_without_machines_is_left_out() -> None:
    world = RolloutWorld(a_rollout(3))
    world.gone |= {"g0_1a", "g0_1b", "g0_2a"}
    world.carry_out()
    world.finish("rollout/R/g0/0")
    assert causes(world.look()) == ["g0/2"]
    assert world.look().lanes[0].steps[1].state is StepState.NOTHING


def test_when_its_window_closes_a_step_is_withdrawn_and_announced_for_the_next() -> None:
    world = RolloutWorld(a_rollout(1, windows=(parse_window("10:00-11:00"),)))
    world.carry_out()
    (event,) = world.active()
    assert event.not_before == START + 2 * HOUR
    assert world.look().wake == START + 3 * HOUR
    world.at(START + 3 * HOUR)
    assert world.look().withdraw == (event,)
    world.carry_out()
    (event,) = world.active()
    assert event.not_before == START + 26 * HOUR


def test_a_step_whose_notice_ends_in_a_window_starts_then() -> None:
    world = RolloutWorld(a_rollout(1, windows=(parse_window("08:00-09:00"),)))
    world.carry_out()
    (event,) = world.active()
    assert event.not_before == START + 15 * MINUTE
    assert event.span is not None
    assert (event.span.opens, event.span.closes) == (START, START + HOUR)


@pytest.mark.parametrize(("lasts", "not_before"), [(HOUR, START + 2 * HOUR), (HOUR + SECOND, None)])
def test_a_step_may_last_exactly_as_long_as_its_window(lasts: int, not_before: Time | None) -> None:
    rollout = a_rollout(
        1, windows=(parse_window("10:00-11:00"),), lasts=lasts, must_end_in_window=True
    )
    found = appointment(rollout, World(at=START))
    assert (found and found.not_before) == not_before


def test_a_window_far_away_is_waited_for_before_anything_is_announced() -> None:
    """The next fifth Monday in February is years away, but there is one in some other month."""
    world = RolloutWorld(a_rollout(1, windows=(parse_window("5th mon 02:00-06:00"),)))
    world.at(START + 75 * DAY)  # just after 29 March; the next fifth Monday is 31 May
    world.carry_out()
    assert world.active()
    far = RolloutWorld(
        a_rollout(1, notice=80 * DAY, windows=(parse_window("5th sun 02:00-06:00"),))
    )
    far.at(START + 17 * DAY)  # 1 February: with the notice, after 2 May; the next is on 30 May
    then = far.carry_out()
    assert then.announce == ()
    assert then.waits[0].kind is WaitKind.WINDOW
    assert then.wake is not None
    far.at(then.wake)
    assert causes(far.look()) == ["g0/0"]


def test_aborting_withdraws_what_has_not_started_and_waits_for_what_has() -> None:
    world = RolloutWorld(a_rollout(1, 1, at_once=2))
    world.carry_out()
    first, second = world.active()
    world.become(first, Status.STARTED)
    world.switch(aborted=Switch(by="x", at=START))
    then = world.look()
    assert (then.withdraw, then.over, then.announce) == ((second,), "", ())
    world.carry_out()
    world.finish(first.cause)
    assert world.look().over == "aborted"


def test_while_it_is_paused_nothing_is_announced_but_it_can_end() -> None:
    world = RolloutWorld(a_rollout(2))
    world.carry_out()
    world.switch(paused=Switch(by="x", at=START, why="lunch"))
    world.finish("rollout/R/g0/0")
    then = world.look()
    assert then.announce == ()
    assert then.waits[0].kind is WaitKind.PAUSED
    assert "x because lunch" in then.waits[0].message
    world.switch(paused=None)
    world.carry_out()
    world.switch(paused=Switch(by="x", at=START))
    world.finish("rollout/R/g0/1")
    assert world.look().over == "done"


WINDOWS = {
    "none": (),
    "night": (parse_window("22:00-23:30"),),
    "two": (parse_window("fri 08:00-09:00"), parse_window("12:00-14:00 Europe/Berlin")),
}


class RollingMachine(RuleBasedStateMachine):
    """Anything may happen, in any order; the rollout may be forgotten and read anew in between."""

    @initialize(
        sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        at_once=st.integers(1, 3),
        bake=st.sampled_from([0, 5 * MINUTE]),
        gated=st.booleans(),
        windows=st.sampled_from(sorted(WINDOWS)),
    )
    def begin(self, sizes: list[int], at_once: int, bake: int, gated: bool, windows: str) -> None:
        self.world = RolloutWorld(
            a_rollout(
                *sizes,
                at_once=at_once,
                bake=bake,
                gate=GATE if gated else None,
                windows=WINDOWS[windows],
            )
        )
        self.healthy = True
        self.passed: dict[str, bool] = {}  # did the gate pass after this step's end? Not forgotten
        self.over = ""

    # What the conductor does: all of it, or a part of it before it dies.

    @rule(part=st.integers(0, 3))
    def act(self, part: int) -> None:
        """At most so many of the things it should do; the rest is lost with the process."""
        then = self.world.look()
        todo: list[Any] = [*then.withdraw, *then.announce]
        for one in todo[:part]:
            if isinstance(one, Event):
                self.world.withdraw(one, self.world.rollout.name)
            else:
                self._announce(one)
        if part:
            if then.pause:
                self.world.switch(paused=Switch(by="itself", at=self.world.now.at, why=then.pause))
            self._answer(then)
            self.over = then.over

    @rule()
    def go_on(self) -> None:
        """All it should do, and all its events are carried out in due time."""
        self.act(9)
        for event in self.world.active():
            if event.status is Status.SCHEDULED and event.span is None:
                self.world.at(max(self.world.now.at, event.not_before))
                self.world.become(event, Status.STARTED)
        for event in self.world.active():
            if event.status is Status.STARTED:
                self.world.become(event, Status.FINISHED)
                self.passed[event.cause] = False
        self.act(9)

    @rule()
    def rush(self) -> None:
        """The same, approved early and carried out in no time at all."""
        self.act(9)
        for event in self.world.active():
            if event.status is Status.SCHEDULED and event.span is None:
                self.world.become(event, Status.STARTED)
        for event in self.world.active():
            if event.status is Status.STARTED:
                self.world.become(event, Status.FINISHED)
                self.passed[event.cause] = False
        self.act(9)

    @rule()
    def forget(self) -> None:
        """A restart: what gates answered is forgotten, and service is steady from now on."""
        self.world.gate_answers.clear()
        self.world.kept = None
        self.world.now = msgspec.structs.replace(self.world.now, steady_since=self.world.now.at)

    # What happens to its events.

    @precondition(lambda self: self.world.active())
    @rule(data=st.data(), early=st.booleans())
    def start(self, data: st.DataObject, early: bool) -> None:
        event = data.draw(st.sampled_from(self.world.active()))
        span, now = event.span, self.world.now.at
        shut = span is not None and not span.opens <= now < (span.closes or now + 1)
        if event.status is Status.SCHEDULED and not shut and (early or now >= event.not_before):
            self.world.become(event, Status.STARTED)

    @precondition(lambda self: self.world.active())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.world.active()))
        if event.status is Status.STARTED:
            self.world.become(event, Status.FINISHED)
            self.passed[event.cause] = False

    @precondition(lambda self: self.world.active())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.world.active()))
        if event.status is Status.SCHEDULED:
            self.world.withdraw(event, "operator")

    @rule(data=st.data())
    def lose_a_machine(self, data: st.DataObject) -> None:
        wanted = data.draw(st.sampled_from(self.world.rollout.steps))
        self.world.gone |= {data.draw(st.sampled_from(wanted.machines))}
        for event in self.world.active():
            if set(event.resources) <= self.world.gone:
                over = Status.WITHDRAWN if event.status is Status.SCHEDULED else Status.FINISHED
                self.world.become(event, over)
                if over is Status.FINISHED:
                    self.passed[event.cause] = False

    # What time and people do.

    @rule(minutes=st.sampled_from([1, 5, 15, 60, 600]))
    def wait(self, minutes: int) -> None:
        self.world.at(self.world.now.at + minutes * MINUTE)

    @rule()
    def wait_as_required(self) -> None:
        wake = self.world.look().wake
        if wake is not None:
            assert wake > self.world.now.at
            self.world.at(wake)

    @rule(healthy=st.booleans())
    def change_health(self, healthy: bool) -> None:
        self.healthy = healthy

    @rule()
    def pause(self) -> None:
        if not self.over:
            self.world.switch(paused=Switch(by="x", at=self.world.now.at))

    @rule()
    def resume(self) -> None:
        self.world.resume()

    @precondition(lambda self: len(self.passed) > 3)
    @rule()
    def abort(self) -> None:
        if not self.over:
            self.world.switch(aborted=Switch(by="x", at=self.world.now.at))

    # What must hold.

    def _announce(self, wanted: Step) -> None:
        world, rollout = self.world, self.world.rollout
        assert rollout.paused is None
        assert rollout.aborted is None
        lane = next(lane for lane in rollout.lanes if wanted in lane.steps)
        for other in lane.steps:
            events = world.events.get(other.cause, [])
            assert not any(not event.status.over for event in events), "one domain at a time"
            self._rested(other, events)
            if other.domain < wanted.domain:
                assert not world.there(other) or any(
                    event.status is Status.FINISHED
                    or (event.status is Status.WITHDRAWN and not event.cancelled_by)
                    for event in events
                ), "in ascending order"
        assert sum(self._in_progress(other) for other in rollout.lanes if other is not lane) < (
            rollout.at_once
        )
        event = world.announce(wanted)
        assert event.not_before >= world.now.at + 15 * MINUTE
        if rollout.windows:
            assert event.span is not None
            assert event.span.closes is not None
            assert event.span.opens <= event.not_before < event.span.closes

    def _rested(self, wanted: Step, events: list[Event]) -> None:
        """Whatever was carried out before has baked and passed the gate."""
        rollout, now = self.world.rollout, self.world.now.at
        for event in events:
            if event.status is Status.FINISHED:
                assert event.ended_at is not None
                assert now >= event.ended_at + rollout.bake, "bake time"
                assert rollout.gate is None or self.passed[wanted.cause], "gate"

    def _in_progress(self, lane: Lane) -> bool:
        world, rollout = self.world, self.world.rollout
        caused = [event for one in lane.steps for event in world.events.get(one.cause, [])]
        if not caused:
            return False
        if any(not event.status.over for event in caused):
            return True
        last = max(
            (event for event in caused if event.status is Status.FINISHED),
            key=lambda event: event.ended_at or 0,
            default=None,
        )
        if last is None:
            return False
        settled = world.now.at >= (last.ended_at or 0) + rollout.bake
        return not settled or (rollout.gate is not None and not self.passed[last.cause])

    def _answer(self, then: Next) -> None:
        for cause in then.ask:
            says = "status 200" if self.healthy else "status 503"
            self.world.gate_answers[cause] = GateAnswer(
                at=self.world.now.at, passed=self.healthy, message=says
            )
            if self.healthy:
                self.passed[cause] = True

    @invariant()
    def no_step_is_carried_out_twice(self) -> None:
        for events in self.world.events.values():
            assert sum(event.status is Status.FINISHED for event in events) <= 1
            assert sum(not event.status.over for event in events) <= 1

    @invariant()
    def what_is_done_has_passed_every_gate(self) -> None:
        rollout = self.world.rollout
        if self.world.look().over == "done" and rollout.gate is not None:
            assert not any(map(self._in_progress, rollout.lanes))

    @invariant()
    def whoever_waits_says_for_what(self) -> None:
        then = self.world.look()
        if not then.over and not then.announce and not then.pause and not then.withdraw:
            assert then.waits

    def teardown(self) -> None:
        """In a world where all goes well from here, every rollout comes to its end."""
        world = getattr(self, "world", None)
        if world is None:
            return
        self.healthy = True
        world.resume()
        for _ in range(2_000):
            then = world.look()
            if then.over:
                break
            for event in then.withdraw:
                world.withdraw(event, world.rollout.name)
            for wanted in then.announce:
                self._announce(wanted)
            self._answer(then)
            if then.pause:
                world.resume()
            if then.withdraw or then.announce or then.ask:
                continue
            instants = [event.not_before for event in world.active()]
            instants += [then.wake] if then.wake is not None else []
            world.at(max(world.now.at, min(instants, default=world.now.at)))
            for event in world.active():
                if event.status is Status.STARTED:
                    world.become(event, Status.FINISHED)
                    self.passed[event.cause] = False
                elif world.now.at >= event.not_before and (
                    event.span is None or world.now.at < (event.span.closes or 0)
                ):
                    world.become(event, Status.STARTED)
        assert world.look().over == ("aborted" if world.rollout.aborted else "done")
        if world.rollout.aborted is None:
            for wanted in world.rollout.steps:
                ends = [e for e in world.events.get(wanted.cause, []) if not e.cancelled_by]
                assert ends or not world.there(wanted)


RollingMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=60, deadline=None
)
TestRolling = pytest.mark.filterwarnings("ignore::pytest.PytestReturnNotNoneWarning")(
    RollingMachine.TestCase
)
