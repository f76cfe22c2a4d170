"""Domain time: never backwards, and honest about the time nobody served."""

from __future__ import annotations

import asyncio
import math

import pytest

from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Durations
from forewarn.service.engine.clock import (
    ClockLimits,
    FollowedClock,
    Interruption,
    RealClock,
    VirtualClock,
)

RULES = Durations()
START = 1_800_000_000 * SECOND


class Watches:
    """A wall clock and a monotonic one that a test moves by hand."""

    def __init__(self, limits: ClockLimits | None = None) -> None:
        self.wall, self.monotonic = START, 5 * SECOND
        self.reported: list[Interruption] = []
        self.clock = RealClock(lambda: self.wall, lambda: self.monotonic, limits)
        self.clock.on_interruption(self.reported.append)

    def pass_(self, duration: int) -> None:
        self.wall += duration
        self.monotonic += duration

    def live(self, duration: int) -> None:
        """Time passes while the clock is looked at every second, as a scheduler does."""
        for _ in range(duration // SECOND):
            self.pass_(SECOND)
            self.clock.now(RULES)


def test_the_clock_shows_the_wall_clock() -> None:
    watches = Watches()
    watches.live(90 * SECOND)
    now = watches.clock.now(RULES)
    assert (now.at, now.steady_since, now.lost) == (START + 90 * SECOND, None, 0)
    assert watches.reported == []


def test_a_small_correction_is_no_step() -> None:
    watches = Watches()
    watches.wall += 2 * SECOND
    assert watches.clock.now(RULES).steady_since is None


def test_a_step_forward_is_reported_and_its_time_counts_as_lost() -> None:
    watches = Watches()
    watches.wall += HOUR
    now = watches.clock.now(RULES)
    assert now.at == START + HOUR
    assert (now.steady_since, now.lost) == (START + HOUR, HOUR)
    assert [reported.lost for reported in watches.reported] == [HOUR]


def test_after_a_step_back_time_stands_still_until_the_wall_has_caught_up() -> None:
    watches = Watches()
    watches.wall -= HOUR
    assert watches.clock.now(RULES).at == START
    watches.live(30 * MINUTE)
    assert watches.clock.now(RULES).at == START
    watches.live(31 * MINUTE)
    assert watches.clock.now(RULES).at == START + MINUTE
    assert len(watches.reported) == 1


def test_a_process_that_stood_still_was_not_serving() -> None:
    watches = Watches()
    watches.pass_(10 * MINUTE)
    now = watches.clock.now(RULES)
    assert (now.at, now.steady_since, now.lost) == (START + 10 * MINUTE, now.at, 10 * MINUTE)
    (notice,) = watches.reported
    assert "stalled" in notice.what


def test_the_clock_resumes_where_an_earlier_run_ended() -> None:
    watches = Watches()
    watches.clock.resume(served_until=START - HOUR, lost=MINUTE)
    now = watches.clock.now(RULES)
    assert (now.lost, now.steady_since) == (HOUR + MINUTE, START)
    assert now.grace_ends == START + MINUTE


def test_a_short_time_without_a_run_that_guests_did_not_notice_is_no_interruption() -> None:
    watches = Watches()
    for earlier in (0, START - MINUTE):  # the last interruption of the earlier run
        assert watches.clock.resume(START - 3 * SECOND, lost=MINUTE, steady_since=earlier)
        now = watches.clock.now(RULES)
        assert (now.lost, now.steady_since) == (MINUTE + 3 * SECOND, earlier or None)
    assert not watches.reported
    assert not watches.clock.resume(START - MINUTE, lost=0, steady_since=0)
    assert watches.clock.now(RULES).steady_since == START


def test_a_restore_is_reported_although_guests_did_not_notice_that_no_process_ran() -> None:
    watches = Watches()
    assert watches.clock.resume(START - SECOND, lost=0, steady_since=0)
    watches.clock.restored(START)
    assert watches.clock.now(RULES).restored == START


def test_a_restore_is_reported_until_the_grace_is_over() -> None:
    watches = Watches()
    watches.clock.resume(served_until=START - HOUR, lost=0)
    watches.clock.restored(START)
    watches.live(MINUTE - SECOND)
    assert watches.clock.now(RULES).restored == START
    watches.live(SECOND)
    watches.clock.now(RULES)
    watches.pass_(10 * MINUTE)  # an outage of its own
    now = watches.clock.now(RULES)
    assert (now.restored, now.steady_since) == (None, now.at)


def test_a_first_run_has_lost_nothing() -> None:
    watches = Watches()
    watches.clock.resume(served_until=None, lost=0)
    assert watches.clock.now(RULES).grace_ends is None


def test_the_clock_never_shows_an_instant_before_the_last_one_of_an_earlier_run() -> None:
    watches = Watches()
    watches.clock.resume(served_until=START + HOUR, lost=0)
    assert watches.clock.now(RULES).at == START + HOUR


LIMITS = ClockLimits(step=5 * MINUTE, downtime=30 * DAY)


@pytest.mark.parametrize("jump", [6 * MINUTE, 1_500 * DAY, -6 * MINUTE, -1_500 * DAY])
def test_a_step_beyond_the_limit_is_not_followed_until_it_is_undone(jump: int) -> None:
    watches = Watches(LIMITS)
    watches.live(MINUTE)
    watches.wall += jump
    watches.live(HOUR)
    now = watches.clock.now(RULES)
    assert now.at == START + MINUTE + HOUR  # as the kernel measures it
    assert now.untrusted is not None
    assert (now.untrusted.since, now.lost) == (START + 2 * MINUTE - 59 * SECOND, 0)
    watches.wall -= jump
    now = watches.clock.now(RULES)
    assert (now.at, now.untrusted, now.lost) == (START + MINUTE + HOUR, None, 0)
    assert now.steady_since == now.at
    stepped, corrected = (notice.what for notice in watches.reported)
    assert "too far" in stepped
    assert "right again" in corrected


def test_several_steps_back_are_not_followed_together_if_one_alone_would_not_be() -> None:
    watches = Watches(LIMITS)
    for _ in range(2):
        watches.wall -= 4 * MINUTE
        watches.clock.now(RULES)
    assert watches.clock.now(RULES).untrusted is not None


@pytest.mark.parametrize("limits", [None, LIMITS])
def test_steps_within_the_limit_are_followed_as_without_one(limits: ClockLimits | None) -> None:
    watches = Watches(limits)
    watches.wall += 5 * MINUTE
    assert watches.clock.now(RULES).at == START + 5 * MINUTE
    watches.wall -= 5 * MINUTE
    watches.live(MINUTE)
    now = watches.clock.now(RULES)
    assert (now.at, now.untrusted) == (START + 5 * MINUTE, None)


def test_a_computer_that_was_suspended_is_no_clock_that_was_stepped() -> None:
    """The kernel's clock that is watched goes on meanwhile."""
    watches = Watches(LIMITS)
    watches.pass_(3 * DAY)
    now = watches.clock.now(RULES)
    assert (now.at, now.lost, now.untrusted) == (START + 3 * DAY, 3 * DAY, None)


@pytest.mark.parametrize("ended", [START + 6 * MINUTE, START - 31 * DAY])
def test_at_the_start_a_clock_that_contradicts_the_state_is_not_followed(ended: int) -> None:
    watches = Watches(LIMITS)
    watches.clock.resume(served_until=ended, lost=0)
    watches.live(MINUTE)
    now = watches.clock.now(RULES)
    assert (now.at, now.lost) == (ended + MINUTE, 0)
    assert now.untrusted is not None
    assert (now.untrusted.wall, now.untrusted.since) == (START, ended)
    watches.wall = ended + DAY  # it was off for a day
    now = watches.clock.now(RULES)
    assert (now.at, now.untrusted, now.lost) == (ended + DAY, None, DAY - MINUTE)


def test_a_copy_may_be_of_any_age() -> None:
    watches = Watches(LIMITS)
    watches.clock.resume(served_until=START - 300 * DAY, lost=0, copied=True)
    assert watches.clock.now(RULES).untrusted is None


@pytest.mark.parametrize("ended", [START + 1_500 * DAY, START - 1_500 * DAY])
def test_a_clock_that_is_accepted_is_followed_and_time_served_goes_on(ended: int) -> None:
    watches = Watches(LIMITS)
    watches.clock.resume(served_until=ended, lost=7)
    before = watches.clock.now(RULES)
    undo = watches.clock.accept()
    now = watches.clock.now(RULES)
    assert (now.at, now.untrusted, now.steady_since) == (START, None, START)
    assert now.served == before.served
    undo()
    assert watches.clock.now(RULES) == before


def test_a_clock_that_follows_another_goes_back_only_if_it_is_reset() -> None:
    passed = 0
    clock = FollowedClock(lambda: passed)
    clock.follow(START, reset=True)
    passed += MINUTE
    assert clock.now(RULES).at == START + MINUTE
    clock.follow(START)  # time stands still there
    assert clock.now(RULES).at == START + MINUTE
    passed += 30 * SECOND
    assert clock.now(RULES).at == START + MINUTE
    clock.follow(START - DAY, reset=True)
    assert clock.now(RULES).at == START - DAY


class Asked:
    """A clock that follows another one, which is exactly `ahead` of the kernel's."""

    def __init__(self) -> None:
        self.passed = 0
        self.ahead = START
        self.clock = FollowedClock(lambda: self.passed)
        self.clock.follow(START, reset=True)
        self.clock.error.forget_shown()

    def ask(self, *, there: int, back: int) -> float:
        """Ask for the time, with a question and an answer that take so long; return by how much the
        clock may have been wrong."""
        asked, self.passed = self.passed, self.passed + there
        at, self.passed = self.passed + self.ahead, self.passed + back
        self.clock.follow(at, asked=asked)
        return self.clock.error.seconds

    @property
    def wrong(self) -> int:
        return self.clock.now(RULES).at - self.passed - self.ahead


def test_a_clock_that_follows_another_knows_by_how_much_it_may_be_wrong() -> None:
    asked = Asked()
    assert asked.clock.error.seconds == math.inf
    assert asked.ask(there=SECOND, back=SECOND // 10) == 1.0  # it may be behind
    assert asked.ask(there=SECOND // 5, back=SECOND // 5) == 0.2
    assert asked.ask(there=SECOND, back=SECOND) == 0.2  # which says nothing new
    since = asked.clock.error.since
    asked.ahead += SECOND  # it is set, or is faster
    assert asked.ask(there=SECOND // 10, back=SECOND // 10) == 1.1
    assert asked.clock.error.since > since


def test_a_clock_that_is_ahead_of_the_one_that_it_follows_waits_for_it() -> None:
    asked = Asked()
    asked.ahead -= SECOND
    assert asked.wrong == SECOND
    assert asked.ask(there=SECOND // 10, back=SECOND // 10) == 1.1
    asked.passed += SECOND // 2
    assert asked.wrong == SECOND // 2  # it stands still, and never goes back
    asked.passed += SECOND
    assert asked.wrong == SECOND // 10


def test_waiting_ends_at_the_instant_or_when_woken() -> None:
    async def body() -> None:
        watches = Watches()
        woken = asyncio.Event()
        await watches.clock.wait(START, woken)  # it has come
        woken.set()
        await watches.clock.wait(START + HOUR, woken)
        await watches.clock.wait(None, woken)

    asyncio.run(body())


def test_virtual_time_moves_when_it_is_set_and_never_back() -> None:
    clock = VirtualClock(START)
    moves: list[int] = []
    clock.on_move(lambda: moves.append(clock.at))
    clock.set(START + MINUTE)
    with pytest.raises(ValueError, match="set back"):
        clock.set(START)
    assert clock.now(RULES).at == START + MINUTE
    assert moves == [START + MINUTE]


def test_virtual_time_can_be_interrupted() -> None:
    clock = VirtualClock(START)
    clock.interrupt("away", HOUR)
    now = clock.now(RULES)
    assert (now.at, now.lost, now.steady_since) == (START + HOUR, HOUR, START + HOUR)


@pytest.mark.parametrize("error", [200 * SECOND, HOUR, -200 * SECOND, -HOUR])
@pytest.mark.parametrize("served", [True, False], ids=["after others", "for the first time"])
def test_what_a_clock_showed_before_it_resumes_is_forgotten(error: int, served: bool) -> None:
    """It belonged to a process that only followed, or to one that had not begun."""
    watches = Watches(LIMITS)
    watches.wall += error
    watches.live(MINUTE)
    watches.wall -= error
    watches.live(2 * MINUTE)
    wall = watches.wall
    watches.clock.resume(wall - SECOND if served else None, lost=7, confirmed=True)
    now = watches.clock.now(RULES)
    assert (now.at, now.untrusted) == (wall, None)
    assert (now.lost, now.steady_since) == ((SECOND + 7, wall) if served else (7, None))


def test_time_stands_still_until_a_confirmed_clock_has_caught_up_with_what_is_stored() -> None:
    watches = Watches(LIMITS)
    ended = START + HOUR
    watches.clock.resume(ended, lost=0, confirmed=True)
    watches.live(30 * MINUTE)
    watches.pass_(MINUTE)  # in which the process stood still
    now = watches.clock.now(RULES)
    assert (now.at, now.lost) == (ended, 0)
    assert now.untrusted is not None
    watches.live(30 * MINUTE)
    now = watches.clock.now(RULES)
    assert (now.at, now.lost, now.untrusted) == (START + 61 * MINUTE, 0, None)


def test_a_confirmed_clock_that_is_far_ahead_of_what_is_stored_is_not_followed() -> None:
    watches = Watches(LIMITS)
    ended = START - 31 * DAY
    watches.clock.resume(ended, lost=0, confirmed=True)
    watches.live(MINUTE)
    now = watches.clock.now(RULES)
    assert (now.at, now.untrusted is None) == (ended + MINUTE, False)
