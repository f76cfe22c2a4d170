"""How often somebody asked and what was missed: told of two clocks, and never of what somebody had
no chance to do."""

from __future__ import annotations

import re

import pytest

from forewarn.verdict.rules import GIVEN_UP_AFTER, MAX_THROTTLED
from helpers.verdict_model import LASTS, World, rules


def test_polling_every_minute_is_too_seldom_for_a_spot_machine() -> None:
    world = World(spot=("web_0",))
    world.poll_for(300, every=60)
    (complaint,) = world.verdict().wrong
    assert complaint.rule == "polls-too-seldom"
    assert re.search("60 s.*Preempt.*30 s", complaint.message)


def test_polling_every_minute_is_too_seldom_where_a_preempt_came() -> None:
    world = World()
    world.poll_for(300, every=60)
    assert rules(world.verdict()) == {"polls-seldom"}
    assert world.verdict().ok
    world.raise_("Preempt", "web_0")
    assert {one.rule for one in world.verdict().wrong} == {"polls-too-seldom"}


@pytest.mark.parametrize(("longest", "expected"), [(60, {"polls-too-seldom"}), (8, set())])
def test_backing_off_while_nothing_happens_is_polling_too_seldom(
    longest: int, expected: set[str]
) -> None:
    world = World(spot=("web_0",))
    for n in range(7):
        world.poll()
        world.wait(min(2**n, longest))
    world.poll()
    assert rules(world.verdict()) == expected


def test_a_client_that_prepares_for_long_does_not_poll_too_seldom() -> None:
    world = World(spot=("web_0",))
    world.poll_for(10)
    for n in range(4):
        world.raise_("Reboot", f"web_{n % 2}")
        world.poll()
        world.wait(20)
        world.poll_for(3)
    assert rules(world.verdict()) == set()


def test_polls_that_a_recorder_left_out_count() -> None:
    world = World(spot=("web_0",))
    world.poll()
    for _ in range(5):
        world.wait(60)
        world.poll(same=59)
    assert rules(world.verdict()) == set()
    conduct = world.verdict().conduct("web_0")
    assert (conduct.polls, conduct.every, conduct.versions) == (301, 1, {"2020-07-01": 301})


@pytest.mark.parametrize("same", [-1, 0.5, True, "59", None, 10**30])
def test_an_invalid_count_of_polls_is_ignored(same: object) -> None:
    world = World()
    world.poll(same=same)
    world.wait(1)
    world.poll(same=same)
    assert world.verdict().ok


def test_polling_every_minute_is_enough_for_fifteen() -> None:
    world = World()
    world.raise_("Reboot", "web_0")
    world.poll_for(300, every=60)
    assert world.verdict().ok


def test_advancing_the_clock_between_polls_does_not_count_as_polling_seldom() -> None:
    world = World(spot=("web_0",))
    world.raise_("Freeze", "web_0")
    for _ in range(10):
        world.poll()
        world.wind(600)
    assert rules(world.verdict()) == set()
    assert world.verdict().conduct("web_0").every == 0
    assert world.verdict().conduct("web_0").on_clock == 600


def test_a_program_under_fake_time_may_poll_at_any_rate() -> None:
    world = World()
    for _ in range(1_000):
        world.poll()
        world.wind(1)
        world.real += 0.001
    assert rules(world.verdict()) == set()


def test_a_thousand_polls_a_second_are_too_many() -> None:
    world = World()
    world.poll_for(20, every=0.01)
    (note,) = world.verdict().complaints
    assert (note.rule, note.severity) == ("hammering", "note")
    assert "polled 100 times a second" in note.message


def test_long_polls_are_no_gaps() -> None:
    world = World(spot=("web_0",))
    for _ in range(10):
        world.ask(
            "web_0",
            "GET",
            target="/forewarn/v1/wait?timeout=60",
            took=60,
            status=200,
            answer=world.document(),
        )
    assert rules(world.verdict()) == set()
    assert world.verdict().conduct("web_0").waits == 10


def test_a_client_that_did_not_poll_during_a_preempt_has_never_seen_it() -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Preempt", "web_0")
    world.wait(30)
    world.wait(30)
    world.poll()
    (complaint,) = world.verdict().wrong
    assert (complaint.rule, complaint.event) == ("never-seen", id)
    course = world.verdict().course("web_0", id)
    assert (course.seen, course.polls, course.in_time) == (None, 0, False)


@pytest.mark.parametrize("polls_again", [True, False])
def test_advancing_past_the_notice_of_a_polling_client_is_wrong(
    polls_again: bool,
) -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Preempt", "web_0")
    world.wind(30)
    world.wind(30)
    if polls_again:
        world.poll_for(5)
    (complaint,) = world.verdict().complaints
    assert (complaint.rule, complaint.severity, complaint.event) == ("clock-passed", "wrong", id)
    assert re.search(r"Preempt 00000000 \(30 s\).*web_0.*clock\.play", complaint.message)
    assert "not seen" in str(world.verdict())
    assert "too late" in str(world.verdict())


def test_a_poll_in_flight_during_the_announcement_has_not_seen_it() -> None:
    world = World()
    world.poll()
    asked, real_asked, before = world.t, world.real, world.document()
    world.real += 0.1
    id = world.raise_("Reboot", "web_0")
    world.tell(
        "exchange",
        asked=asked,
        real_asked=real_asked,
        real=world.real,
        machine="web_0",
        method="GET",
        target="/metadata/scheduledevents?api-version=2020-07-01",
        headers=[["Metadata", "true"]],
        status=200,
        answer=before,
    )
    world.wind(900)
    assert [one.rule for one in world.verdict().about(id).wrong] == ["clock-passed"]


@pytest.mark.parametrize("every", [1, 60, 300, 890])
def test_advancing_in_steps_that_let_a_client_poll_is_no_complaint(every: int) -> None:
    world = World()
    world.poll()
    id = world.raise_("Freeze", "web_0")
    for _ in range(0, 1_000, every):
        world.poll()
        world.wind(every)
        world.real += 0.001
    assert rules(world.verdict()) == set()
    assert world.verdict().course("web_0", id).in_time


def test_advancing_past_a_machine_that_never_polled_is_excused() -> None:
    world = World()
    world.poll("web_1")
    id = world.raise_("Reboot", "web_0")
    world.wind(900)
    world.real += 0.1
    world.poll("web_0")
    assert rules(world.verdict()) == set()
    course = world.verdict().course("web_0", id)
    assert course.in_time is False
    assert "no client" in course.excuse
    assert f"excused: {course.excuse}" in str(world.verdict())


def test_an_event_withdrawn_at_once_is_no_complaint() -> None:
    world = World()
    world.poll()
    id = world.raise_("Reboot", "web_0")
    world.end(id, "withdraw")
    world.poll()
    assert rules(world.verdict()) == set()


@pytest.mark.parametrize(
    ("trouble", "excuse"),
    [
        ({"status": 500, "fault": "error"}, "its polls failed"),
        ({"status": None, "fault": "stall", "took": 8.0}, "its polls failed"),
    ],
)
def test_advancing_past_a_client_whose_polls_failed_is_excused(
    trouble: dict[str, object], excuse: str
) -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Reboot", "web_0")
    world.poll(**trouble)  # type: ignore[arg-type]
    world.wind(900)
    world.real += 0.1
    world.poll()
    assert rules(world.verdict()) == set()
    assert world.verdict().course("web_0", id).excuse == excuse


def test_advancing_past_a_machine_that_is_being_restarted_is_excused() -> None:
    world = World()
    world.poll()
    first = world.raise_("Reboot", "web_0")
    world.poll()
    world.approve("web_0", first)
    second = world.raise_("Preempt", "web_0")
    world.wind(60)
    assert rules(world.verdict()) == set()
    assert "another event" in world.verdict().course("web_0", second).excuse


def test_a_machine_that_has_long_come_back_is_not_excused_by_its_restart() -> None:
    world = World()
    world.poll()
    first = world.raise_("Reboot", "web_0")
    world.poll()
    world.approve("web_0", first)
    world.wind(60)
    world.wind(3_600)
    second = world.raise_("Preempt", "web_0")
    world.wind(60)
    assert [one.rule for one in world.verdict().about(second).wrong] == ["clock-passed"]


def test_a_client_that_polls_only_after_the_start_is_late() -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Preempt", "web_0")
    world.wait(31)
    world.poll()
    (complaint,) = world.verdict().wrong
    assert complaint.rule == "seen-late"
    course = world.verdict().course("web_0", id)
    assert (course.seen_after, course.statuses, course.in_time) == (31, ("Started",), False)


def test_a_client_that_finds_an_event_started_by_another_approval_is_excused() -> None:
    world = World()
    world.poll("web_0")
    world.poll("web_1")
    id = world.raise_("Reboot", "web_0")
    world.wait(8)
    world.poll("web_1")
    world.approve("web_1", id)
    world.poll("web_0")
    assert rules(world.verdict()) == {"approved-for-others"}
    course = world.verdict().course("web_0", id)
    assert course.excuse.startswith("web_1 approved it")
    assert (course.approved_by, course.started_by, course.margin) == ("web_1", "approval", 892)


@pytest.mark.parametrize(
    "trouble",
    [{"status": 429}, {"status": 500}, {"status": 200, "fault": "empty", "answer": ""}],
    ids=["429", "500", "fault"],
)
def test_a_client_whose_answer_did_not_show_the_event_is_excused(
    trouble: dict[str, object],
) -> None:
    world = World()
    world.poll_for(5)
    world.raise_("Preempt", "web_0")
    for _ in range(61):
        world.poll(**trouble)  # type: ignore[arg-type]
        world.wait(1)
    world.poll_for(3)
    assert world.verdict().ok


def test_a_client_waiting_for_an_answer_that_never_came_is_excused() -> None:
    world = World()
    world.poll_for(5)
    world.raise_("Preempt", "web_0")
    world.poll(took=70, status=None, fault="stall")
    world.poll_for(3)
    assert rules(world.verdict()) == set()


def test_a_machine_that_is_being_restarted_is_excused() -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Reboot", "web_0")
    world.poll()
    world.approve("web_0", id)
    world.poll()
    world.raise_("Preempt", "web_0", notice=20)
    world.wait(21)
    world.wait(40)
    world.poll()
    assert rules(world.verdict()) == set()


def test_an_event_that_was_not_listed_yet_could_not_be_seen() -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Reboot", "web_0", listed=False)
    world.wait(2_000)
    world.poll()
    assert rules(world.verdict()) == set()
    with pytest.raises(LookupError, match=id):
        world.verdict().course("web_0", id)


def test_a_group_that_was_disabled_could_not_see_its_events() -> None:
    world = World()
    world.poll_for(5)
    world.raise_("Preempt", "web_0")
    world.tell("disabled", group="web")
    world.wait(31)
    world.wait(31)
    world.poll()
    assert rules(world.verdict()) == set()


@pytest.mark.parametrize(("joined", "expected"), [(False, set()), (True, {"seen-late"})])
def test_a_client_of_a_node_that_is_cut_off_is_excused(joined: bool, expected: set[str]) -> None:
    world = World()
    world.poll_for(5)
    world.tell("disconnected", host="rack-1", machines=["web_0"])
    if joined:
        world.tell("joined", host="rack-1", machines=["web_0"])
    world.raise_("Preempt", "web_0")
    world.wait(61)
    world.poll()
    assert rules(world.verdict()) == expected


def test_a_client_cut_off_before_its_next_poll_is_excused() -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Preempt", "web_0")
    world.tell("disconnected", host="rack-1", machines=["web_0"])
    world.wait(61)
    world.tell("joined", host="rack-1", machines=["web_0"])
    world.poll()
    assert rules(world.verdict()) == set()
    assert "its node" in world.verdict().course("web_0", id).excuse


def test_silence_after_an_error_is_giving_up() -> None:
    world = World()
    world.poll_for(5)
    world.poll(status=410, fault="gone")
    world.wait(GIVEN_UP_AFTER + 1)
    world.poll("web_1")
    (complaint,) = world.verdict().wrong
    assert complaint.rule == "gave-up"
    assert "fault 'gone' (a 410)" in complaint.message


def test_waiting_a_minute_after_an_error_is_not_giving_up() -> None:
    world = World()
    world.poll_for(5)
    world.poll(status=410, fault="gone")
    world.wait(70)
    world.poll("web_1")
    assert world.verdict().ok
    world.wait(GIVEN_UP_AFTER)
    world.poll("web_0")
    assert world.verdict().of("web_0").ok


def test_silence_while_an_event_is_announced_is_wrong() -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Reboot", "web_0")
    world.wait(GIVEN_UP_AFTER + 1)
    world.poll("web_1")
    (complaint,) = world.verdict().complaints
    assert (complaint.rule, complaint.severity, complaint.event) == ("stopped-polling", "wrong", id)


def test_a_client_that_stopped_polling_is_distinguished_from_a_late_one() -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Preempt", "web_0")
    world.wait(31)
    (complaint,) = world.verdict().complaints
    assert (complaint.rule, complaint.event) == ("stopped-polling", id)
    assert re.search("since 2027-01-15 08:00:04Z,.*Preempt 00000000", complaint.message)


@pytest.mark.parametrize(
    ("every", "silent", "notice", "expected"),
    [
        (0.2, 0, 3, {"stopped-polling"}),
        (1, 0, 3, {"stopped-polling"}),
        (1, 3, 0.5, {"stopped-polling"}),
        (0.02, 1, 0.5, set()),
        (1, 1, 0.5, set()),
        (4, 3, 3, set()),
    ],
)
def test_a_client_whose_event_is_announced_briefly_is_known_by_its_silence_before(
    every: float, silent: float, notice: float, expected: set[str]
) -> None:
    world = World(speed=30 / notice)
    world.poll_for(5 * every, every=every)
    world.wait(silent)
    id = world.raise_("Preempt", "web_0", notice=notice)
    world.wait(notice)
    world.wait(LASTS)
    assert rules(world.verdict()) == expected
    if not expected:
        assert "announced for less than" in world.verdict().course("web_0", id).excuse


def test_a_client_that_was_silent_during_a_brief_announcement_and_polls_again_is_excused() -> None:
    world = World(speed=10)
    world.poll_for(5, every=0.2)
    world.raise_("Reboot", "web_0", notice=3)
    world.wait(3)
    world.wait(0.2)
    world.poll()
    assert rules(world.verdict()) == set()


def test_backing_off_is_not_silence_before_a_brief_announcement() -> None:
    world = World(speed=10)
    for interval in (0.5, 0.5, 1, 2, 4):
        world.poll()
        world.wait(interval)
    world.poll()
    world.wait(7)
    world.raise_("Preempt", "web_0", notice=3)
    world.wait(3)
    assert rules(world.verdict()) == set()


@pytest.mark.parametrize(("seconds", "expected"), [(8, set()), (20, {"stopped-polling"})])
def test_a_client_that_may_be_preparing_is_not_silent_yet(
    seconds: float, expected: set[str]
) -> None:
    world = World(speed=10)
    world.poll_for(5, every=0.2)
    world.raise_("Reboot", "web_0", notice=90)
    world.poll()
    world.wait(seconds)
    world.raise_("Preempt", "web_0", notice=3)
    world.wait(3)
    assert rules(world.verdict()) == expected


@pytest.mark.parametrize(("speed", "rules_broken"), [(1.0, set()), (60.0, {"stopped-polling"})])
def test_time_to_restart_is_divided_by_the_speed_of_the_service(
    speed: float, rules_broken: set[str]
) -> None:
    """A client that has ended after its first event is not excused from its second one by that."""
    world = World(speed=speed)
    world.poll_for(5)
    first = world.raise_("Reboot", "web_0")
    world.poll()
    world.approve("web_0", first)
    world.wait(LASTS)
    world.poll_for(3)
    world.wait(30)
    world.raise_("Reboot", "web_0", notice=15)
    world.wait(60)
    assert rules(world.verdict()) == rules_broken


def test_an_outage_is_not_a_gap_in_polling() -> None:
    world = World(spot=("web_0",))
    for _ in range(6):
        world.poll()
        world.tell("down")
        world.wait(300)
        world.tell("up")
    world.poll()
    assert rules(world.verdict()) == set()


def test_going_on_through_429_is_wrong_and_slowing_down_is_not() -> None:
    world = World()
    for _ in range(MAX_THROTTLED):
        world.poll("web_0", status=429)
        world.wait(0.1)
    for _ in range(MAX_THROTTLED):
        world.poll("web_1", status=429)
        world.wait(1)
    (complaint,) = world.verdict().complaints
    assert (complaint.rule, complaint.machine) == ("ignored-throttling", "web_0")


def test_an_event_without_any_poll_is_wrong() -> None:
    world = World()
    event = world.raise_("Reboot", "web_0")
    assert world.verdict().ok, "a client may still begin to ask"
    world.wind(900)
    (complaint,) = world.verdict().wrong
    assert (complaint.rule, complaint.machine, complaint.event) == ("nobody-asked", "web_0", event)


def test_missing_polls_are_reported_for_disabled_groups_too() -> None:
    world = World()
    world.raise_("Reboot", "web_0", listed=False)
    world.wind(900)
    assert [one.rule for one in world.verdict().wrong] == ["nobody-asked"]


def test_several_events_without_any_poll_are_one_complaint() -> None:
    world = World()
    for machine in ("web_0", "web_1"):
        world.raise_("Reboot", machine)
    world.wind(900)
    assert [one.rule for one in world.verdict().wrong] == ["nobody-asked"]


def test_machines_without_polls_are_no_complaint_if_one_of_the_group_polls() -> None:
    world = World()
    world.raise_("Reboot", "web_0")
    world.poll("web_1")
    world.wind(900)
    assert world.verdict().ok


def test_an_approval_does_not_count_as_a_poll() -> None:
    world = World()
    event = world.raise_("Reboot", "web_0")
    world.approve("web_0", event)
    assert [one.rule for one in world.verdict().wrong] == ["nobody-asked"]


def test_after_a_reset_missing_polls_are_no_complaint() -> None:
    world = World()
    world.raise_("Reboot", "web_0")
    world.wind(900)
    world.observer.forget()
    assert world.verdict().ok


def quickly(world: World, seconds: float, speed: float = 60) -> None:
    """So much real time, on a clock that runs faster."""
    world.real += seconds
    world.wind(seconds * speed)


def test_on_a_faster_clock_a_client_is_measured_by_its_own_rate() -> None:
    world = World()
    for _ in range(4):
        world.poll()
        quickly(world, 20)
    world.poll()
    event = world.raise_("Reboot", "web_0")  # 15 real seconds
    quickly(world, 15)
    world.poll()
    assert world.verdict().course("web_0", event).in_time is False
    assert world.verdict().ok, "fifteen minutes are plenty for one who asks every 20 s"


def test_on_a_faster_clock_a_client_that_stopped_polling_is_reported() -> None:
    world = World()
    for _ in range(20):
        world.poll()
        quickly(world, 1)
    world.raise_("Reboot", "web_0")
    quickly(world, 15)
    world.poll()
    assert [one.rule for one in world.verdict().wrong] == ["seen-late"]


def given_up(world: World, **more: object) -> None:
    """The clock waits five real seconds for web_0 in vain."""
    world.real += 5
    facts = {"seconds": 5.0, "by_itself": True, "unanswered": False, **more}
    world.tell("unresponsive", real=world.real, machine="web_0", client="", **facts)


def test_a_client_that_was_given_up_has_stopped_polling() -> None:
    world = World()
    world.poll_for(5)
    given_up(world)
    (complaint,) = world.verdict().complaints
    assert (complaint.rule, complaint.severity) == ("stopped-polling", "wrong")
    assert re.search("until 2027-01-15 08:00:04Z .*waited for 5 s", complaint.message)


def test_a_caller_that_may_be_the_test_itself_has_not_stopped_polling() -> None:
    world = World()
    world.poll_for(5)
    given_up(world, by_itself=False)
    assert rules(world.verdict()) == set()


def test_a_client_that_polls_after_it_was_given_up_was_only_slow() -> None:
    world = World()
    world.poll_for(5)
    given_up(world)
    world.poll()
    world.tell("responsive", real=world.real, machine="web_0", client="")
    assert rules(world.verdict()) == {"slow-poll"}
    assert world.verdict().ok


def test_a_second_client_of_the_machine_does_not_hide_that_one_has_stopped() -> None:
    world = World()
    world.poll_for(5)
    given_up(world)
    world.poll_for(5)
    assert rules(world.verdict()) == {"stopped-polling"}


def test_a_client_that_stopped_after_an_error_has_given_up() -> None:
    world = World()
    world.poll_for(5)
    world.poll(status=500, fault="error")
    given_up(world)
    (complaint,) = world.verdict().complaints
    assert complaint.rule == "gave-up"
    assert re.search(r"fault 'error' \(a 500\).*waited for 5 s", complaint.message)


def test_a_client_that_continues_despite_errors_has_not_given_up() -> None:
    world = World()
    world.poll_for(5)
    world.real += 4
    world.poll(status=500, fault="error")
    world.real -= 4
    given_up(world)
    assert rules(world.verdict()) == set()


def test_a_client_whose_request_is_not_answered_is_excused() -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_("Reboot", "web_0")
    given_up(world, unanswered=True)
    world.wind(900)
    assert rules(world.verdict()) == set()
    assert "not answered" in world.verdict().course("web_0", id).excuse


def test_a_client_that_waits_forever_for_an_answer_has_no_timeout() -> None:
    world = World()
    world.poll_for(5)
    given_up(world, unanswered=True, fault="stalled")
    (note,) = world.verdict().complaints
    assert (note.rule, note.severity) == ("no-timeout", "note")
    assert " 5 s or more" in note.message


def test_a_client_that_gives_up_a_request_has_a_timeout() -> None:
    world = World()
    world.poll_for(5)
    given_up(world, unanswered=True, fault="stalled")
    world.poll(status=None, fault="stalled", gave_up=True)
    assert rules(world.verdict()) == set()


@pytest.mark.parametrize("type", ["Reboot", "Redeploy", "Freeze"])
def test_a_client_that_stops_with_its_machine_is_expected_back(type: str) -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_(type, "web_0")
    world.poll()
    world.approve("web_0", id)
    given_up(world)
    assert world.verdict().ok, "its machine is being disturbed"
    world.wind(60)
    assert world.verdict().ok, "nobody has waited for it since"
    given_up(world)
    (complaint,) = world.verdict().wrong
    assert complaint.rule == "stopped-polling"
    assert "start it again" in complaint.message


@pytest.mark.parametrize("type", ["Preempt", "Terminate"])
def test_a_client_whose_machine_was_deleted_is_not_expected_back(type: str) -> None:
    world = World()
    world.poll_for(5)
    id = world.raise_(type, "web_0")
    world.poll()
    world.approve("web_0", id)
    world.wind(60)
    world.tell("fleet", groups={}, machines={"web_1": {"group": "web", "addresses": []}})
    given_up(world)
    assert rules(world.verdict()) == set()
