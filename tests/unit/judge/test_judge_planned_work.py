"""Planned work that was in order, or is not proven otherwise: hosts, windows, deletes that nobody
is told of, failures and long-polls."""

import json
from typing import Any

import pytest

from forewarn.judge import judge
from helpers.broken_planned_work import (
    JUMP,
    ROLE,
    USERS,
    WEB,
    approved,
    begun,
    halted,
    hosted,
    idle,
    limited,
    windowed,
)
from helpers.judge_traces import DUE, T0, A, B, C, Recording, document, event, started


def silent(recording: Recording) -> None:
    judgement = judge(recording.records)
    assert judgement.ok, judgement.render()


# Hosts.


def test_a_host_is_worked_on_once_all_its_groups_have_approved() -> None:
    recording = hosted().approve(T0 + 1, A)
    idle(recording, T0 + 2, T0 + 60, T0 + 300)
    recording.approve(T0 + 301, B, machine="jump")
    begun(recording, T0 + 302)
    recording.impact(T0 + 302).impact(T0 + 302, B, ["jump"])
    silent(recording.see(T0 + 900, 7).see(T0 + 900, 5, machine="jump"))


def test_a_host_is_worked_on_when_its_time_has_come() -> None:
    silent(begun(idle(hosted(), DUE - 1), DUE + 1).impact(DUE + 1).impact(DUE + 1, B, ["jump"]))


def test_answers_that_overlap_show_a_host_begun_and_not() -> None:
    silent(
        approved()
        .see(T0 + 2, 6, started(WEB))
        .see(T0 + 3, 3, JUMP, machine="jump", asked=T0 + 1.6)
        .impact(T0 + 2)
        .see(T0 + 3.5, 3, JUMP, machine="jump", asked=T0 + 1.7)
    )


def test_a_group_that_does_not_listen_has_no_vote() -> None:
    recording = Recording().joint(T0 - 1, web=A, jump=B).see(T0, 5, WEB).approve(T0 + 1, A)
    recording.see(T0 + 2, 6, started(WEB)).impact(T0 + 2).impact(T0 + 2, B, ["jump"])
    silent(recording.see(T0 + 60, 1, started(JUMP), machine="jump"))


def test_a_group_that_has_stopped_listening_has_no_vote_any_more() -> None:
    recording = hosted().approve(T0 + 1, A)
    recording.note({"kind": "disabled", "t": T0 + 60, "group": "jump"})
    recording.see(T0 + 60, 6, started(WEB)).impact(T0 + 60).impact(T0 + 60, B, ["jump"])
    silent(recording.see(T0 + 90, 1, started(JUMP), machine="jump"))


def test_a_group_without_polls_for_a_day_has_no_vote() -> None:
    later = DUE + 200_000
    web, jump = event(not_before=later), event(B, resources=["jump"], not_before=later)
    recording = Recording().joint(T0 - 1, web=A, jump=B).see(T0, 3, jump, machine="jump")
    for hours in range(25):
        recording.see(T0 + 3600 * hours, 5, web)
    recording.approve(T0 + 90_000, A).see(T0 + 90_001, 6, started(web))
    silent(recording.see(T0 + 90_002, 1, started(jump), machine="jump"))


def test_an_event_that_was_withdrawn_needs_no_approval() -> None:
    silent(
        hosted()
        .approve(T0 + 1, A)
        .see(T0 + 60, 4, machine="jump")
        .see(T0 + 60, 6, started(WEB))
        .impact(T0 + 60)
    )


def test_an_operator_approves_for_a_group() -> None:
    recording = hosted().approve(T0 + 1, A)
    recording.note({"kind": "approval", "t": T0 + 1.9, "event": B, "by": "operator"})
    silent(begun(recording, T0 + 2))


def test_a_host_waits_for_the_slot_of_another_group() -> None:
    other = started(event(C, resources=["jump"], type="Redeploy"))
    recording = Recording().joint(T0 - 1, web=A, jump=B)
    recording.approve(T0 + 1, A).approve(T0 + 1, B, machine="jump")
    for t in (T0 + 2, T0 + 30, DUE + 1, DUE + 200, DUE + 400):
        recording.see(t, 5, WEB).see(t, 3, other, JUMP, machine="jump")
    recording.see(DUE + 401, 4, JUMP, machine="jump").see(DUE + 402, 5, WEB)
    recording.see(DUE + 402.5, 6, started(WEB))
    silent(recording.see(DUE + 402.6, 5, started(JUMP), machine="jump"))


def test_a_group_of_which_nothing_is_known_may_hold_a_host() -> None:
    recording = Recording().joint(T0 - 1, web=A, jump=B, roles=C)
    recording.see(T0, 7, ROLE, machine="Front_IN_0")
    recording.approve(T0 + 1, A).approve(T0 + 1, B, machine="jump")
    silent(idle(recording, T0 + 2, T0 + 60, DUE + 1, DUE + 200))


def test_groups_that_were_free_one_after_the_other_were_not_free_together() -> None:
    busy = started(event(C, resources=["web_0"], type="Redeploy"))
    recording = approved()
    recording.see(T0 + 2, 5, WEB).see(T0 + 60, 5, WEB).see(T0 + 61, 6, WEB, busy)
    recording.see(T0 + 62, 3, JUMP, machine="jump").see(T0 + 99, 3, JUMP, machine="jump")
    silent(recording.see(T0 + 100, 6, WEB, busy))


def test_an_outage_is_no_time_in_which_a_host_should_have_been_worked_on() -> None:
    recording = idle(hosted(), DUE + 1).up(DUE + 100)
    silent(idle(recording, DUE + 150))


# Windows.


def test_an_approved_event_waits_for_its_window() -> None:
    recording = windowed(DUE + 3600, DUE + 7200).approve(T0 + 1, A)
    for t in (T0 + 2, T0 + 60, DUE + 1, DUE + 300, DUE + 3599):
        recording.see(t, 5, event())
    silent(recording.see(DUE + 3601, 6, started(event())).impact(DUE + 3601))


def test_an_event_whose_window_has_closed_stays_where_it_is() -> None:
    recording = windowed(DUE + 60, DUE + 90)
    for t in (DUE + 61, DUE + 89, DUE + 91, DUE + 300, DUE + 600):
        recording.see(t, 5, event())
    silent(recording)


def test_an_event_that_started_in_its_window_may_be_carried_out_after_it() -> None:
    silent(
        windowed(DUE - 60, DUE + 60)
        .see(DUE + 30, 5, event())
        .see(DUE + 70, 6, started(event()))
        .impact(DUE + 75)
    )


def test_the_approver_of_an_event_asks_just_after_its_window_has_opened() -> None:
    silent(windowed(T0 + 2).approve(T0 + 1, A).see(T0 + 2.5, 5, event()))


def test_a_request_that_was_asked_before_a_window_closed_may_see_it_closed() -> None:
    silent(
        windowed(T0 - 1, T0 + 60)
        .approve(T0 + 1, A, status=500, answer="")
        .see(T0 + 61, 5, event(), asked=T0 + 2)
        .see(T0 + 90, 6, started(event()), asked=T0 + 3)
    )


# Deletes that nobody is told of.


def test_an_unannounced_delete_ends_a_machine() -> None:
    silent(
        Recording()
        .see(T0, 1)
        .unannounced(T0 + 1, C)
        .note({"kind": "approval", "t": T0 + 1, "event": C, "by": "nobody: it is not announced"})
        .impact(T0 + 1, C, ["web_1"], "Terminate")
        .see(T0 + 2, 1)
        .over(T0 + 31, C)
        .see(T0 + 32, 1)
        .approve(T0 + 33, C, status=400, answer='{"error":"Bad request. No."}')
    )


@pytest.mark.parametrize(
    "line",
    [
        {"machines": ["web_1"]},  # in another domain
        {"machines": ["web_0"]},  # the very machine
        {"machines": None},
        {"machines": None, "group": None},
        {"machines": ["of-old"]},  # in a domain that is not known
    ],
)
def test_an_event_may_wait_for_an_unannounced_delete(line: dict[str, Any]) -> None:
    changed = {"machines": ["web_1"], **line}
    recording = Recording().see(T0, 5, event())
    recording.note({"kind": "unannounced", "t": T0 + 1, "event": C, "group": "web", **changed})
    recording.approve(T0 + 2, A).see(T0 + 3, 5, event()).see(T0 + 30, 5, event())
    recording.over(T0 + 31, C).see(T0 + 32, 5, event()).see(T0 + 33, 6, started(event()))
    silent(recording)


def test_a_delete_without_an_end_may_go_on() -> None:
    silent(
        Recording()
        .unannounced(T0 - 1, C)
        .see(DUE + 1, 5, event())
        .approve(DUE + 2, A)
        .see(DUE + 900, 5, event())
    )


def test_a_delete_just_before_an_approval_may_be_over_just_after_it() -> None:
    silent(
        Recording()
        .see(T0, 5, event())
        .unannounced(T0 + 1, C)
        .over(T0 + 4, C)
        .approve(T0 + 5, A)
        .see(T0 + 5.5, 5, event())
    )


def test_a_host_waits_for_an_unannounced_delete_of_another_group() -> None:
    recording = approved().unannounced(T0 + 1.2, C, ["jump"], group="jump")
    silent(idle(recording, T0 + 2, T0 + 9, T0 + 40).over(T0 + 41, C))


# Failures.


@pytest.mark.parametrize("resources", [["web_0"], ["web_1"], ["web_2"]])
def test_a_failure_waits_for_nothing(resources: list[str]) -> None:
    maintenance = event(resources=["web_0"])
    failure = started(event(B, type="Redeploy", resources=resources, DurationInSeconds=-1))
    silent(
        Recording(complete=True, grace=60)
        .up(T0 - 9)
        .see(T0, 2, maintenance)
        .approve(T0 + 1, A)
        .see(T0 + 2, 3, started(maintenance))
        .up(T0 + 5)
        .impact(T0 + 9, B, resources, "Redeploy")
        .see(T0 + 10, 4, started(maintenance), failure)
        .see(T0 + 400, 5, failure)
    )


# Long-polls.


def test_a_long_poll_shows_the_document_as_any_get_does() -> None:
    one, two = document(5, [event()]), document(6, [started(event())])
    recording = Recording().get(T0, one)
    tag = dict(recording.records[-1]["answer_headers"])["ETag"]
    recording.wait(T0 + 31, "", f"?etag={tag}", status=304, answer_headers={"ETag": tag})
    recording.approve(T0 + 32, A)
    recording.wait(T0 + 33, two, f"?api-version=2020-07-01&timeout=60&etag={tag}", asked=T0 + 31.5)
    recording.wait(
        T0 + 34, document(6, [started(event())], "2017-08-01"), "/?api-version=2017-08-01"
    )
    silent(recording.see(T0 + 35, 6, started(event())))


def test_a_long_poll_lets_a_group_listen() -> None:
    """For a day nobody asks but by waiting: the group is never disabled."""
    recording = Recording()
    tag = '"0123456789abcdef"'
    recording.get(T0, document(9), answer_headers={"ETag": tag})
    for hours in range(1, 30):
        changed: dict[str, Any] = {"status": 304, "answer_headers": {"ETag": tag}}
        recording.wait(T0 + 3600 * hours, "", f"?etag={tag}", **changed)
    recording.see(T0 + 3600 * 30, 1)
    assert {finding.rule for finding in judge(recording.records).findings} == {"incarnation-down"}


@pytest.mark.parametrize("status", [400, 404, 405, 429, 503])
def test_refusals_of_other_paths_are_not_judged(status: int) -> None:
    recording = Recording()
    for method, path in (
        ("GET", "/forewarn/v1/wait?api-version=1"),
        ("POST", "/forewarn/v1/wait"),
        ("GET", f"/forewarn/v1/ready/{A}"),
        ("PUT", f"/forewarn/v1/ready/{A}"),
        ("DELETE", f"/forewarn/v1/ready/{A}"),
    ):
        recording.exchange(T0, method=method, target=path, status=status, answer="{}")
    silent(recording)


def test_readiness_is_no_approval() -> None:
    recording = Recording().see(T0, 5, event())
    body = json.dumps({"EventId": A, "ready": True})
    recording.exchange(
        T0 + 1, method="PUT", target=f"/forewarn/v1/ready/{A}", body=body, answer=body
    )
    silent(recording.see(T0 + 9, 5, event()))
    recording.see(T0 + 10, 6, started(event()))
    assert {finding.rule for finding in judge(recording.records).findings} == {"early-start"}


def test_lines_that_cannot_be_read_are_counted() -> None:
    for line in (
        {"kind": "joint", "t": T0, "id": "j"},
        {"kind": "joint", "t": T0, "id": "j", "events": {A: 5}},
        {"kind": "window", "t": T0, "event": A},
        {"kind": "window", "t": T0, "event": A, "opens": T0, "closes": "later"},
        {"kind": "unannounced", "t": T0},
        {"kind": "unannounced", "t": T0, "event": A, "machines": "web_0"},
        {"kind": "over", "t": T0},
    ):
        assert judge([line]).unreadable == 1


# Halts.


def test_a_halted_event_waits_until_the_halt_is_released() -> None:
    recording = halted().approve(T0 + 1, A)
    for t in (T0 + 2, T0 + 60, DUE + 1, DUE + 300, DUE + 900):
        recording.see(t, 5, event())
    silent(recording.halts(DUE + 1000).see(DUE + 1001, 6, started(event())).impact(DUE + 1001))


def test_every_halt_that_covers_an_event_has_to_be_released() -> None:
    recording = Recording().halts(T0 - 60, {}, {"machines": ["web_0"]}).see(T0, 5, event())
    recording.halts(DUE + 60, {"machines": ["web_0"]})
    silent(recording.see(DUE + 70, 5, event()).see(DUE + 400, 5, event()))


def test_a_halt_of_one_group_holds_the_whole_host() -> None:
    recording = approved().halts(T0 + 0.5, {"groups": ["jump"]})
    silent(idle(recording, T0 + 2, T0 + 60, DUE + 1, DUE + 300))


def test_what_started_before_a_halt_continues() -> None:
    recording = Recording().see(T0, 5, event()).approve(T0 + 1, A).see(T0 + 2, 6, started(event()))
    silent(recording.halts(T0 + 3, {}).see(T0 + 60, 6, started(event())).impact(T0 + 60))


def test_a_start_that_may_have_been_before_the_halt_is_not_reported() -> None:
    recording = Recording().see(T0, 5, event()).halts(T0 + 60, {}).approve(T0 + 30, A)
    silent(recording.see(T0 + 90, 6, started(event())))


def test_a_failure_has_happened_whatever_is_halted() -> None:
    broken = event(type="Redeploy", Description="", DurationInSeconds=-1)
    recording = Recording().halts(T0 - 60, {}).see(T0 - 30, 4).moved(T0, "strike", type="Redeploy")
    silent(recording.see(T0 + 1, 5, started(broken)).impact(T0 + 2, type="Redeploy"))


def test_a_halt_of_others_covers_nothing_here() -> None:
    for scope in (
        {"groups": ["jump"]},
        {"machines": ["web_1"]},
        {"groups": ["web"], "machines": []},
    ):
        silent(halted(**scope).see(DUE + 1, 6, started(event())))


# Windows and blackouts of the fleet.


def test_maintenance_waits_for_the_windows_of_the_fleet() -> None:
    recording = limited((DUE + 600, DUE + 900)).approve(T0 + 1, A)
    for t in (T0 + 2, T0 + 60, DUE + 1, DUE + 300, DUE + 599):
        recording.see(t, 5, event())
    silent(recording.see(DUE + 601, 6, started(event())))


def test_windows_that_opened_in_between_were_not_open_all_the_time() -> None:
    recording = limited((DUE, DUE + 60), (DUE + 300, DUE + 360))
    silent(recording.see(DUE + 50, 5, event()).see(DUE + 310, 5, event()))


def test_all_configurations_have_to_allow_it() -> None:
    recording = Recording().see(T0, 5, event())
    names = (("nights", [[DUE, DUE + 900]]), ("year-end", [[DUE + 600, DUE + 9000]]))
    configurations = [{"name": name, "open": open} for name, open in names]
    line = {"kind": "maintenance", "t": T0 - 60, "until": T0 + 86_400}
    recording.note({**line, "configurations": configurations})
    recording.see(DUE + 1, 5, event()).see(DUE + 590, 5, event())
    silent(recording.see(DUE + 605, 6, started(event())))


def test_what_a_user_has_asked_for_starts_outside_of_windows() -> None:
    recording = Recording().maintenance(T0 - 60).see(T0, 5, USERS)
    silent(recording.see(DUE + 1, 6, started(USERS)))


def test_an_operator_may_let_an_event_ignore_windows() -> None:
    recording = limited().ignores_windows(T0 + 60).approve(T0 + 60, A)
    silent(recording.see(T0 + 70, 6, started(event())))
    own = windowed(DUE + 3600).ignores_windows(T0 + 60).approve(T0 + 60, A)
    silent(own.see(T0 + 70, 6, started(event())))


def test_an_operator_may_let_all_events_of_a_host_ignore_windows() -> None:
    recording = hosted().maintenance(T0 - 60).ignores_windows(T0, A).ignores_windows(T0 + 60, B)
    silent(begun(recording, DUE + 1))


def test_windows_hold_nothing_once_hardware_is_about_to_fail() -> None:
    recording = limited().ignores_windows(T0, since=DUE + 600)
    silent(recording.see(DUE + 595, 5, event()).see(DUE + 605, 6, started(event())))


def test_windows_that_a_recording_does_not_contain_are_not_judged() -> None:
    later = event(not_before=T0 + 90_000)
    recording = Recording().maintenance(T0 - 60, (T0, T0 + 60)).see(T0 + 1, 5, later)
    silent(recording.see(T0 + 90_001, 6, started(later)))


# Machines on a host that were not warned.


def test_a_host_waits_while_a_machine_there_was_not_warned() -> None:
    recording = approved().hosts(T0 - 9, web_0="h", jump="h").placement(T0 + 0.5, web_1="h")
    recording = idle(recording, T0 + 2, T0 + 60, DUE + 1, DUE + 300)
    silent(begun(recording.placement(DUE + 310, web_1="g"), DUE + 311))


def test_a_machine_that_came_back_may_be_waited_for() -> None:
    recording = hosted().hosts(T0 - 9, web_0="h", jump="h")
    recording.placement(T0 + 60, web_0="g").placement(T0 + 600, web_0="h")
    silent(idle(recording, DUE + 1, DUE + 300))


def test_a_machine_that_comes_when_a_host_has_started_was_not_there_before() -> None:
    recording = begun(approved().hosts(T0 - 9), T0 + 2)
    silent(recording.placement(T0 + 3, web_1="h"))


def test_only_the_update_domain_whose_turn_it_is_has_to_be_warned() -> None:
    recording = Recording().hosts(T0 - 9, web_0="h", web_1="h").see(T0, 5, event())
    joint = {"kind": "joint", "t": T0, "id": "j", "host": "h", "events": {A: "web"}, "domain": 0}
    silent(recording.note(joint).see(DUE + 1, 6, started(event())))


def test_a_machine_that_is_being_deleted_needs_no_warning() -> None:
    recording = idle(hosted().hosts(T0 - 9, web_1="h"), T0 + 60)
    silent(begun(recording.unannounced(T0 + 30, C), DUE + 1))


# Postponed events.


def test_events_that_are_postponed_together_have_one_not_before() -> None:
    later = DUE + 3600
    recording = hosted()
    for id, group in ((A, "web"), (B, "jump")):
        recording.moved(T0 + 60, "postpone", id, group=group, not_before=later)
    web, jump = event(not_before=later), event(B, resources=["jump"], not_before=later)
    recording.see(T0 + 61, 6, web).see(DUE + 300, 6, web)
    recording.see(later + 1, 7, started(web))
    silent(recording.see(later + 1.1, 5, started(jump), machine="jump"))


def test_an_event_that_was_withdrawn_is_not_postponed_with_the_others() -> None:
    later = event(not_before=DUE + 3600)
    recording = hosted().see(T0 + 30, 4, machine="jump")
    recording.moved(T0 + 30, "withdraw", B, group="jump")
    recording.moved(T0 + 60, "postpone", not_before=DUE + 3600)
    silent(recording.see(T0 + 61, 6, later).see(DUE + 3601, 7, started(later)))


def test_maintenance_that_was_withdrawn_and_announced_again_has_another_not_before() -> None:
    later, other = DUE + 60, "D" * 8 + C[8:]
    recording = hosted().see(T0 + 30, 6).see(T0 + 30, 6, machine="jump")
    for id, group in ((A, "web"), (B, "jump")):
        recording.moved(T0 + 30, "withdraw", id, group=group)
    recording.joint(T0 + 60, web=C, jump=other)
    web = event(C, not_before=later)
    jump = event(other, resources=["jump"], not_before=later)
    recording.see(T0 + 60, 7, web).see(T0 + 60, 7, jump, machine="jump")
    recording.see(later + 1, 8, started(web))
    silent(recording.see(later + 1.1, 8, started(jump), machine="jump"))


def test_an_earlier_postponement_is_known_from_its_own_line() -> None:
    later = event(not_before=DUE + 3600)
    recording = Recording().see(T0, 5, event())
    recording.note({"kind": "postponed", "t": T0 + 60, "event": A, "not_before": DUE + 3600})
    silent(recording.see(T0 + 61, 6, later).see(DUE + 3601, 7, started(later)))
