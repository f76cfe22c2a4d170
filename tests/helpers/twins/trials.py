"""The trials of the kit: what happens to a client's machine in one test each.

A good client comes through every trial without a finding.
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn.testing.names import FaultKind
from forewarn.verdict.rules import HAMMERING_RATE, HAMMERING_SECONDS, MAX_THROTTLED
from helpers.polls import real_time
from helpers.twins import clients
from helpers.twins.stage import IDLE, NOT_APPROVED, Stage
from helpers.waiting import until

BAD_ANSWERS: tuple[FaultKind, ...] = ("gone", "throttled", "error")
BROKEN_ANSWERS: tuple[FaultKind, ...] = ("empty", "no-events", "truncated")
MANY_POLLS = int(1.2 * HAMMERING_RATE * HAMMERING_SECONDS)
WATCHED = 2.0  # seconds of real time after which a client is known to poll seldom
SLOWED_DOWN = 3  # usual intervals between two polls, in the median


def restart(stage: Stage) -> None:
    """A user restarts the machine."""
    stage.play_through(stage.machine.restart())


def impact(stage: Stage) -> None:
    """A user restarts the machine, which goes away for a while."""
    stage.let_go_away()
    stage.play_through(stage.machine.restart())


def redeploy(stage: Stage) -> None:
    """The platform moves the machine to another host."""
    stage.play_through(stage.machine.schedule("Redeploy"))


def failing_hardware(stage: Stage) -> None:
    """The machine is moved within a week, since its hardware may fail at any time."""
    event = stage.machine.schedule("Redeploy", notice="7d")
    stage.play("6d")
    if event.approved_by != stage.machine.name:
        stage.findings.add(NOT_APPROVED)


def eviction(stage: Stage) -> None:
    """The machine is evicted, with 30 seconds of notice."""
    stage.play_through(stage.machine.evict())


def deletion(stage: Stage) -> None:
    """The machine is deleted, with five minutes of notice."""
    stage.play_through(stage.machine.schedule("Terminate", notice="5m"))


def freeze(stage: Stage) -> None:
    """The machine is paused for five seconds."""
    stage.play_past(stage.machine.freeze(duration=5))


def neighbour(stage: Stage) -> None:
    """Another machine of the group is restarted: web_10 for a client on web_1."""
    stage.play_past(stage.web[10].restart())


def two_at_once(stage: Stage) -> None:
    """A machine of the same update domain is restarted, and then the client's own."""
    first = stage.web[6].schedule("Reboot")
    second = stage.machine.schedule("Reboot")
    stage.play_through(second)
    stage.play_past(first)


def two_in_turn(stage: Stage) -> None:
    """The machine is restarted twice."""
    stage.play_through(stage.machine.restart())
    stage.play_through(stage.machine.restart())


def sudden_failure(stage: Stage) -> None:
    """Another machine fails, and then the client's own machine is restarted."""
    stage.play_past(stage.web[10].fail())
    stage.play_through(stage.machine.restart())


def withdrawal(stage: Stage) -> None:
    """A restart that the client has approved is held back, and withdrawn after a while."""
    stage.web[0].fail()
    event = stage.machine.schedule("Reboot")
    stage.play("1m")
    stage.let_poll(8)
    event.cancel()
    stage.play("1m")
    if not stage.running.job:
        stage.findings.add(IDLE)


def delay(stage: Stage) -> None:
    """A restart that the client has approved is held back for a while."""
    stage.let_go_away()
    failure = stage.web[0].fail()  # of another update domain, and so nothing else starts
    event = stage.machine.schedule("Reboot")
    stage.play("1m")
    stage.let_poll(4)
    failure.finish()
    stage.play_through(event)


def new_start(stage: Stage) -> None:
    """The client is started again while a restart that it has approved is held back."""
    failure = stage.web[0].fail()
    event = stage.machine.schedule("Reboot")
    stage.play("1m")
    stage.start_again()
    stage.let_poll(4)
    failure.finish()
    stage.play_through(event)


def interference(stage: Stage) -> None:
    """The endpoint fails while a restart that the client has approved is held back."""
    stage.let_go_away()
    failure = stage.web[0].fail()
    event = stage.machine.schedule("Reboot")
    stage.play("1m")
    fault = stage.service.faults.add("gone", machine=stage.machine.name)
    until(lambda: fault.consumed >= 3 or bool(stage.running.death))
    failure.finish()
    stage.service.faults.clear()
    stage.play_through(event)


def bad_answers(stage: Stage) -> None:
    """The endpoint answers with errors, and then the machine is restarted."""
    _faults(stage, *BAD_ANSWERS)
    stage.play_through(stage.machine.restart())


def broken_answers(stage: Stage) -> None:
    """The endpoint answers with what is not a document, and then the machine is restarted."""
    _faults(stage, *BROKEN_ANSWERS)
    stage.play_through(stage.machine.restart())


def reset(stage: Stage) -> None:
    """A connection breaks, and then the machine is restarted."""
    _faults(stage, "reset")
    stage.play_through(stage.machine.restart())


def stalled_answer(stage: Stage) -> None:
    """An answer does not come, and then the machine is restarted."""
    fault = stage.service.faults.add("stalled", machine=stage.machine.name, method="GET", times=1)
    until(lambda: fault.consumed == 1)
    stage.play_through(stage.machine.restart())


def failed_approval(stage: Stage) -> None:
    """The first approval is answered with an error, and has no effect."""
    fault = stage.service.faults.add("error", machine=stage.machine.name, method="POST", times=1)
    event = stage.machine.restart()
    until(lambda: fault.consumed == 1)
    stage.let_poll(3)  # to see that nothing came of the approval, and to repeat it
    stage.play_through(event)


def throttling(stage: Stage) -> None:
    """The endpoint answers 429 until the client polls less often, or twenty times in a row."""
    fault = stage.service.faults.add("throttled", machine=stage.machine.name)

    def over() -> bool:
        if stage.persists or fault.consumed > MAX_THROTTLED:
            return fault.consumed > MAX_THROTTLED
        interval = stage.service.verdict(timeout=0).conduct(stage.machine.name).every or 0.0
        return interval > SLOWED_DOWN * clients.EVERY

    until(over)
    stage.service.faults.clear()


def new_incarnation(stage: Stage) -> None:
    """The incarnation starts over, and then the machine is restarted."""
    stage.play_past(stage.web[10].restart())
    _faults(stage, "incarnation")
    stage.play_through(stage.machine.restart())


def ten_seconds(stage: Stage) -> None:
    """Nothing happens for ten seconds, of which some pass at once if the client polls seldom."""
    clock, before, start = stage.service.clock, stage.requests, real_time()

    def judged() -> bool:
        polls = stage.requests - before
        lasted = real_time() - start
        seldom = polls <= 1 + lasted / INTERVALS["ten-seconds"]
        return polls > MANY_POLLS or (lasted > WATCHED and seldom)

    until(judged)
    clock.advance(HAMMERING_SECONDS)
    stage.let_poll(2)


def _faults(stage: Stage, *kinds: FaultKind) -> None:
    for kind in kinds:
        if kind != kinds[0]:
            stage.let_poll(1)  # which gets a document, so that the client begins anew
        fault = stage.service.faults.add(kind, machine=stage.machine.name, method="GET", times=1)
        until(lambda fault=fault: fault.consumed == 1 or _given_up(stage))  # type: ignore[misc]
    stage.service.faults.clear()
    stage.play("1s")


def _given_up(stage: Stage) -> bool:
    return bool(stage.running.death)


TRIALS: dict[str, Callable[[Stage], None]] = {
    trial.__name__.replace("_", "-"): trial
    for trial in (
        restart,
        impact,
        redeploy,
        failing_hardware,
        eviction,
        deletion,
        freeze,
        neighbour,
        two_at_once,
        two_in_turn,
        sudden_failure,
        withdrawal,
        delay,
        new_start,
        interference,
        bad_answers,
        broken_answers,
        reset,
        stalled_answer,
        failed_approval,
        throttling,
        new_incarnation,
        ten_seconds,
    )
}

INTERVALS = {"ten-seconds": 0.2}  # seconds between two polls, since real seconds count there
# Trials that wait for polls, which a client that long-polls sends every ten seconds only.
POLLS_NEEDED = (
    "withdrawal",
    "delay",
    "new-start",
    "interference",
    "bad-answers",
    "broken-answers",
    "failed-approval",
    "throttling",
    "new-incarnation",
)
