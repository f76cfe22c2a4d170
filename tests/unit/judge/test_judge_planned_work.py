"""Planned work that was in order, or is not proven otherwise: hosts, windows, deletes that nobody
is told of, failures and long-polls."""

import json
from typing import Any

import pytest

from forewarn.judge import judge
from helpers.broken_planned_work import JUMP, ROLE, WEB, approved, begun, hosted, idle, windowed
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


def test_a_group_that_was_not_heard_of_for_a_day_has_no_vote() -> None:
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


def test_a_delete_that_nobody_is_told_of_strikes_a_machine() -> None:
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
def test_an_event_may_wait_for_a_delete_that_nobody_is_told_of(line: dict[str, Any]) -> None:
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


def test_a_host_waits_for_a_delete_that_nobody_of_another_group_is_told_of() -> None:
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
def test_what_a_path_beside_the_wire_refuses_is_for_itself_to_say(status: int) -> None:
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
