"""What the lines of a trace become: lanes of machines, and the courses of events."""

from __future__ import annotations

import re

import pytest

from forewarn.testing import RefusedError, Service
from forewarn.testing.timeline import Lanes, axis, choose_lanes, watch
from forewarn.testing.timeline import text as timeline_text
from forewarn.testing.timeline import values as limits
from forewarn.testing.timeline.values import EventBar, Lane, Picture
from helpers.timeline_traces import FREEZE, REBOOT, T, approval, fleet, poll, shown, step


def of(lanes: Lanes, machine: str) -> Lane:
    return next(lane for lane in lanes.picture().lanes if lane.machine == machine)


def only(lanes: Lanes) -> EventBar:
    (found,) = lanes.picture().events
    return found


def test_a_real_service_is_followed_from_the_announcement_to_the_end() -> None:
    with Service() as service:
        lanes = watch(service)
        service.scale_set("web", 2)
        begun = service.clock.now.timestamp()
        service.document("web_1")
        event = service.schedule("Reboot", "web_0")
        service.clock.advance("5s")
        service.document("web_0")
        service.clock.advance("1m")
        service.approve("web_1", event.id)
        service._session.settle()
        service.clock.advance("20m")
    happening = only(lanes)
    assert (happening.type, happening.machines, happening.group) == ("Reboot", ("web_0",), "web")
    assert happening.visible == begun
    assert happening.not_before == begun + 900
    assert (happening.approved, happening.approved_by) == (begun + 65, "web_1")
    assert happening.started == begun + 65
    assert [impact.machines for impact in happening.impacts] == [("web_0",)]
    assert happening.ended is not None
    assert (happening.ended > begun + 65, happening.ending) == (True, "finished")
    assert happening.seen == {"web_0": begun + 5}
    assert (of(lanes, "web_0").polls, of(lanes, "web_1").approvals) == (
        1,
        ((begun + 65, event.id),),
    )


def test_an_approval_is_reported_together_with_the_start_it_causes() -> None:
    """The request is complete only when it has been answered, and that is after the commit."""
    changes: list[str] = []
    with Service() as service:
        lanes = watch(service, lambda _, text: changes.append(text))
        service.scale_set("web", 2)
        service.document("web_1")
        event = service.schedule("Reboot", "web_0")
        service.approve("web_1", event.id)
        service._session.settle()
    [approved] = [change for change in changes if "approved" in change]
    assert re.match(f"Reboot {event.id[:8]} of web_0 .*started.*web_1", approved)
    assert [id for _, id in of(lanes, "web_1").approvals] == [event.id]


def test_an_approval_that_has_to_wait_is_reported_once_at_its_own_time() -> None:
    waited = step("start", 60, approved=T + 20, approved_by="web_1")
    lanes = Lanes.of([step("raise", 0), approval("web_1", 20, REBOOT), waited])
    announced, approved, started = (text for _, text in lanes.picture().latest_changes)
    assert "announced" in announced
    assert re.match("web_1 approved .*28512AF7", approved)
    assert started.endswith("has started")
    unheard = only(Lanes.of([step("raise", 0), waited]))  # its answer was lost, say
    assert (unheard.approved, unheard.approved_by) == (T + 20, "web_1")


def test_the_time_of_an_approval_is_that_of_the_service() -> None:
    started = step("start", 20.5, approved=T + 20.5, approved_by="web_1")
    lanes = Lanes.of([step("raise", 0), started, approval("web_1", 20.75, REBOOT)])
    assert of(lanes, "web_1").approvals == ((T + 20.5, REBOOT),)


def test_a_real_withdrawal_and_a_real_fault_are_seen() -> None:
    with Service() as service:
        lanes = watch(service)
        service.scale_set("web", 1)
        service.document("web_0")
        event = service.schedule("Freeze", "web_0")
        service.faults.add("gone", machine="web_0", times=2)
        service.get("web_0")
        service.get("web_0")
        service._session.run(service._session.node.platform.cancel(event.id, "test"))
        service._session.settle()
    assert only(lanes).ending == "withdrawn"
    assert only(lanes).started is None
    assert [mark.kind for mark in of(lanes, "web_0").marks] == ["fault", "fault"]


def test_a_service_that_is_not_observed_cannot_be_watched() -> None:
    with Service(front=True) as service, pytest.raises(RefusedError, match="front=False"):
        watch(service)


def test_without_event_lines_the_course_is_read_from_documents() -> None:
    lanes = Lanes.of(
        [
            poll("web_0", 0),
            poll("web_0", 10, shown()),
            approval("web_0", 20, REBOOT.lower()),
            poll("web_0", 30, shown(status="Started")),
            poll("web_0", 40),
        ]
    )
    happening = only(lanes)
    assert (happening.visible, happening.approved) == (T + 10, T + 20)
    assert (happening.started, happening.ended, happening.ending) == (T + 30, T + 40, "finished")
    assert happening.not_before == T + 900


def test_an_event_that_disappears_before_not_before_was_withdrawn() -> None:
    lanes = Lanes.of([poll("web_0", 10, shown()), poll("web_0", 20)])
    assert only(lanes).ending == "withdrawn"


def test_an_approved_event_that_is_gone_may_have_happened_between_two_polls() -> None:
    lines = [poll("web_0", 10, shown()), approval("web_0", 20, REBOOT), poll("web_0", 30)]
    assert only(Lanes.of(lines)).ending == "gone"


def test_a_version_that_cannot_show_an_event_does_not_end_it() -> None:
    preempt = shown(type="Preempt")
    lines = [poll("web_0", 1, preempt), poll("web_0", 2, version="2017-08-01")]
    assert only(Lanes.of(lines)).ended is None


def test_another_groups_document_does_not_end_an_event() -> None:
    assert only(Lanes.of([poll("web_0", 1, shown()), poll("db_0", 2)])).ended is None


def test_the_underscore_of_the_preview_is_removed_from_names() -> None:
    lanes = Lanes.of([poll("web_0", 1, shown(machines=["_web_0"]), version="2017-03-01")])
    assert only(lanes).machines == ("web_0",)
    assert [lane.machine for lane in lanes.picture().lanes] == ["web_0"]


def test_lines_may_be_in_any_order() -> None:
    lines = [step("raise", 0), poll("web_0", 5, shown()), step("start", 900), step("finish", 990)]
    assert Lanes.of(reversed(lines)).picture().events == Lanes.of(lines).picture().events


def test_an_unlisted_event_becomes_visible_when_it_is_listed() -> None:
    lanes = Lanes.of([step("raise", 0, listed=False), step("list", 60)])
    assert only(lanes).visible == T + 60


def test_an_approval_by_an_operator_is_on_no_lane() -> None:
    by = {"kind": "approval", "t": T + 5, "event": REBOOT, "by": "operator"}
    lanes = Lanes.of([step("raise", 0), by])
    assert (only(lanes).approved_by, of(lanes, "web_0").approvals) == ("operator", ())


def test_a_refused_poll_and_a_refused_approval_are_marked_and_approve_nothing() -> None:
    refused = approval("web_0", 7, REBOOT, status=400)
    lanes = Lanes.of([step("raise", 0), poll("web_0", 5, status=400), refused])
    assert [mark.kind for mark in of(lanes, "web_0").marks] == ["refused", "refused"]
    assert only(lanes).approved is None


def test_a_kill_leaves_a_gap_until_the_service_is_up_again() -> None:
    up = {"kind": "up", "t": T}
    lanes = Lanes.of([up, poll("web_0", 10), {"kind": "up", "t": T + 70}])
    (away,) = lanes.picture().outages
    assert (away.start, away.end) == (T + 10, T + 70)


def test_a_restart_is_away_from_down_to_up() -> None:
    lines = [{"kind": "up", "t": T}, {"kind": "down", "t": T + 5}, {"kind": "up", "t": T + 9}]
    (away,) = Lanes.of(lines).picture().outages
    assert (away.start, away.end) == (T + 5, T + 9)


def test_a_node_that_is_restarted_is_no_outage_of_the_service() -> None:
    lines = [{"kind": kind, "t": T + at, "host": "h"} for kind, at in (("up", 0), ("down", 5))]
    again = {"kind": "up", "t": T + 9, "host": "h"}
    assert Lanes.of([{"kind": "up", "t": T}, *lines, again]).picture().outages == ()


def test_the_times_in_which_a_node_is_cut_off_are_on_the_lanes_of_its_machines() -> None:
    machines = {"host": "rack-1", "machines": ["web_0"]}
    times = [("disconnected", 5), ("disconnected", 7), ("joined", 9), ("disconnected", 30)]
    lines = [{"kind": kind, "t": T + at, **machines} for kind, at in times]
    lanes = Lanes.of([*lines, poll("web_1", 40)])
    assert [(time.start - T, time.end - T) for time in of(lanes, "web_0").disconnected] == [
        (5, 9),
        (30, 40),
    ]
    assert of(lanes, "web_1").disconnected == ()
    assert "╲ node cut off" in timeline_text(lanes, width=80)


def test_a_clock_step_is_shown_as_an_outage() -> None:
    lines = [{"kind": "up", "t": T}, {"kind": "step", "t": T + 100, "seconds": 40.0}]
    (away,) = Lanes.of(lines).picture().outages
    assert (away.start, away.end) == (T + 60, T + 100)


def test_callers_are_identified_by_address() -> None:
    line = poll("", 5)
    lanes = Lanes.of([fleet(web=["web_0", "web_1"]), {**line, "from": "10.0.0.1"}])
    assert of(lanes, "web_1").polls == 1


def test_unknown_callers_share_one_lane() -> None:
    asked = [{**poll("", at), "from": f"192.0.2.{at}"} for at in range(5)]
    assert of(Lanes.of([fleet(web=["web_0"]), *asked]), "unknown callers").polls == 5


def test_polls_are_grouped_and_counted() -> None:
    lanes = Lanes()
    for at in range(2_000):
        lanes.add(poll("web_0", at))
    lane = of(lanes, "web_0")
    assert len(lane.ticks) <= limits.MAX_TICKS
    assert lane.polls == 2_000
    assert (lane.ticks[0].start, lane.ticks[-1].end) == (T, T + 1_999)


def test_the_oldest_finished_event_is_dropped_and_counted() -> None:
    lanes = Lanes()
    lanes.add(step("raise", 0, "PENDING"))
    for at in range(limits.MAX_EVENTS + 9):
        lanes.add(step("raise", at, f"E{at}"))
        lanes.add(step("withdraw", at, f"E{at}"))
    picture = lanes.picture()
    assert (len(picture.events), picture.dropped_events) == (limits.MAX_EVENTS, 10)
    assert picture.event("PENDING") is not None
    assert picture.event("E0") is None


def test_machines_are_bounded() -> None:
    lanes = Lanes.of([poll(f"m{at}", at, shown()) for at in range(limits.MAX_LANES + 5)])
    picture = lanes.picture()
    assert (len(picture.lanes), picture.dropped_machines) == (limits.MAX_LANES, 1)
    assert only(lanes).seen == {}, "of machines that are not concerned, it is not remembered"


def test_machines_beyond_the_limit_are_counted_separately_from_quiet_ones() -> None:
    names = [f"m{at}" for at in range(limits.MAX_LANES + 500)]
    picture = Lanes.of([fleet(web=names)]).picture()
    assert picture.dropped_machines == 500
    assert re.search("2,000 quiet .* 500 ", choose_lanes.choose(picture).remainder)


def test_marks_are_bounded() -> None:
    lanes = Lanes()
    for at in range(limits.MAX_MARKS * 3):
        lanes.add(poll("web_0", at, status=(400, 429)[at % 2]))
    assert len(of(lanes, "web_0").marks) == limits.MAX_MARKS


def test_every_change_is_described_when_it_happens() -> None:
    reported: list[tuple[float, str]] = []
    lanes = Lanes(on_change=lambda t, says: reported.append((t, says)))
    machines = {"host": "rack-1", "machines": ["web_0"]}
    for line in [
        step("raise", 0),
        poll("web_0", 5, shown()),
        {"kind": "disconnected", "t": T + 10, **machines},
        {"kind": "up", "t": T + 12, "host": "rack-1"},
        {"kind": "joined", "t": T + 20, **machines},
        step("start", 900),
    ]:
        lanes.add(line)
    assert [t - T for t, _ in reported] == [0, 5, 10, 20, 900]
    assert [says for _, says in reported] == [
        "Reboot 28512AF7 of web_0 is announced",
        "web_0 saw Reboot 28512AF7 of web_0: Scheduled",
        "control cannot reach the node of web_0",
        "control has reached the node of web_0 again",
        "Reboot 28512AF7 of web_0 has started",
    ]
    assert lanes.picture().latest_changes == tuple(reported)


def test_the_picture_extends_to_announced_events_and_the_current_time() -> None:
    lanes = Lanes.of([step("raise", 0)])
    lanes.passed(T + 30)
    picture = lanes.picture()
    assert (picture.now, picture.ends) == (T + 30, T + 900)


def test_long_waits_are_folded() -> None:
    week, due = 7 * 86_400, T + 7 * 86_400
    lines = [step("raise", 0, not_before=due), poll("web_0", 600)]
    lines += [step("start", week, not_before=due), step("finish", week + 600, not_before=due)]
    drawn = axis.axis_of(Lanes.of(lines).picture())
    assert drawn.folds == ((T + 600, T + week),)
    assert drawn.share(T) == 0
    assert drawn.share(T + 600) == pytest.approx(1 / (2 + 2 * axis.FOLD_WIDTH))
    assert drawn.share(T + week + 300) > drawn.share(T + week) > drawn.share(T + 600)
    assert drawn.share(T + week + 600) == 1
    assert 5 < len(drawn.ticks(10)) < 14
    # What is even enough as it is stays even.
    assert (
        axis.axis_of(Lanes.of([poll("m", at) for at in range(0, 86_400, 3_000)]).picture()).folds
        == ()
    )


def test_an_unannounced_delete_is_shown_by_its_impact() -> None:
    silent = {"kind": "unannounced", "t": T, "event": FREEZE, "group": "web", "machines": ["web_3"]}
    done = {"kind": "impact", "t": T + 1, "event": FREEZE, "type": "Terminate"}
    over = {"kind": "over", "t": T + 30, "event": FREEZE}
    happening = only(Lanes.of([silent, {**done, "machines": ["web_3"]}, over]))
    assert (happening.type, happening.visible, happening.started) == ("Terminate", None, T)
    assert happening.ended == T + 30


def test_a_timeline_without_lines_has_no_lanes() -> None:
    assert Lanes().picture() == Picture(begins=0.0, now=0.0, ends=0.0)


def test_times_on_another_day_are_shown_with_their_date() -> None:
    with Service() as service:
        lanes = watch(service)
        service.scale_set("web", 1)
        service.document("web_0")
        service.schedule("Redeploy", "web_0", notice="7d")
        service.document("web_0")
        service.clock.advance("7d1m")
    text = timeline_text(lanes)
    assert re.search(r"^2027-01-15 08:00:00Z +web_0 saw Redeploy", text, re.MULTILINE), text
    assert re.search(r"^08:0\d:\d\d +", text, re.MULTILINE), text


def test_a_repeated_refusal_is_reported_once_with_a_count() -> None:
    reported: list[str] = []
    with Service() as service:
        lanes = Lanes(lambda _, text: reported.append(text))
        trace = service._session.node.trace
        assert trace is not None
        service._session.call(trace.add_sink, lanes.add)
        web = service.scale_set("web", 1)[0]
        for _ in range(30):
            web.request("GET", "/metadata/scheduledevents?api-version=2020-07-01")
    once = "a poll of web_0 was refused: 400"
    assert reported == [once, f"{once} (10 times)"]
    assert [text for _, text in lanes.picture().latest_changes] == [f"{once} (30 times)"]
