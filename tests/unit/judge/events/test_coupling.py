"""Deletes of one group that were in order, or are not proven otherwise."""

import pytest

from forewarn.judge import judge
from helpers.judge_traces import DUE, T0, A, B, Recording, event, started

ONE = event(type="Terminate")
OTHER = event(B, type="Terminate", resources=["web_1"])


def silent(recording: Recording) -> None:
    judgement = judge(recording.records)
    assert judgement.ok, judgement.render()


def coupled() -> Recording:
    return Recording().see(T0, 5, ONE, OTHER).approve(T0 + 1, A)


def test_a_delete_that_is_due_later_need_not_be_waited_for() -> None:
    later = event(B, type="Terminate", resources=["web_1"], not_before=DUE + 1)
    silent(
        Recording()
        .see(T0, 5, ONE, later)
        .approve(T0 + 1, A)
        .see(T0 + 2, 6, started(ONE), later)
        .impact(T0 + 3, type="Terminate")
        .see(T0 + 60, 7, later)
    )


def test_other_kinds_are_not_coupled() -> None:
    other = event(B, type="Preempt", resources=["web_1"])
    silent(
        Recording().see(T0, 5, ONE, other).approve(T0 + 1, A).see(T0 + 2, 6, started(ONE), other)
    )


def test_deletes_of_two_groups_are_not_coupled() -> None:
    other = event(B, type="Terminate", resources=["jump"])
    silent(
        Recording()
        .see(T0, 5, ONE)
        .see(T0, 3, other, machine="jump")
        .approve(T0 + 1, A)
        .see(T0 + 2, 6, started(ONE))
        .impact(T0 + 3, type="Terminate")
        .see(T0 + 4, 3, other, machine="jump")
    )


def test_a_delete_raised_after_the_other_started_is_not_waited_for() -> None:
    silent(
        Recording()
        .see(T0, 5, ONE)
        .approve(T0 + 1, A)
        .see(T0 + 3, 7, started(ONE), OTHER)
        .impact(T0 + 4, type="Terminate")
        .see(T0 + 60, 8, OTHER)
    )


def test_a_delete_that_may_have_been_raised_later_is_not_waited_for() -> None:
    # The slow answer may be the older one, of before the other was raised.
    silent(
        Recording()
        .see(T0, 5, ONE)
        .approve(T0 + 1, A)
        .see(T0 + 3, 5, ONE, asked=T0 + 0.5, machine="web_1")
        .see(T0 + 2, 7, started(ONE), OTHER)
    )


def test_overlapping_answers_prove_no_order() -> None:
    silent(
        Recording()
        .approve(T0 - 1, A)
        .see(T0 + 5, 5, ONE, OTHER, asked=T0)
        .see(T0 + 6, 6, started(ONE), OTHER, asked=T0 + 4)
    )


def test_a_delete_that_has_expired_is_not_waited_for() -> None:
    sooner = event(B, type="Terminate", resources=["web_1"], not_before=DUE - 60)
    silent(
        Recording()
        .see(T0, 5, ONE, sooner)
        .approve(T0 + 1, A)
        .see(DUE - 59, 6, started(ONE), sooner, asked=DUE - 61)
        .impact(DUE - 58, type="Terminate")
        .see(DUE - 57, 6, started(ONE), sooner)
    )


def test_at_its_own_time_a_delete_starts_regardless() -> None:
    silent(coupled().see(DUE + 1, 6, started(ONE), OTHER).see(DUE + 2, 7, started(OTHER)))


@pytest.mark.parametrize("status", [200, 500, None])
def test_the_other_may_have_been_approved(status: int | None) -> None:
    # It is Scheduled still, in an answer that may be older than the approval.
    silent(
        coupled()
        .approve(T0 + 3, B, status=status, asked=T0 + 1.5)
        .see(T0 + 2, 6, started(ONE), OTHER)
        .impact(T0 + 2.5, type="Terminate")
        .see(T0 + 9, 7, started(OTHER))
    )


def test_an_operator_may_have_approved_the_other() -> None:
    silent(
        coupled()
        .see(T0 + 2, 6, started(ONE), OTHER)
        .note({"kind": "approval", "t": T0 + 3, "event": B, "by": "operator"})
    )


def test_a_torn_line_may_have_approved_the_other() -> None:
    silent(coupled().note({"kind": "exchange", "t": T0 + 1}).see(T0 + 2, 6, started(ONE), OTHER))


def test_the_other_may_have_been_withdrawn() -> None:
    silent(
        coupled()
        .see(T0 + 2, 6, ONE, machine="web_1")
        .see(T0 + 3, 7, started(ONE))
        .impact(T0 + 4, type="Terminate")
        .see(T0 + 60, 8)
    )


def test_a_delete_that_vanishes_may_have_been_withdrawn() -> None:
    silent(coupled().see(T0 + 60, 6, OTHER))


def test_deletes_are_not_coupled_after_a_disabling() -> None:
    silent(
        coupled()
        .note({"kind": "disabled", "t": T0 + 10, "group": "web"})
        .see(T0 + 20, 1, started(ONE), OTHER)
        .impact(T0 + 21, type="Terminate")
        .see(T0 + 30, 2, OTHER)
    )


def test_an_impact_at_the_moment_of_an_answer_proves_no_order() -> None:
    silent(coupled().impact(T0 + 5, type="Terminate").see(T0 + 6, 7, OTHER).see(T0 + 9, 8))


def test_an_unapproved_delete_is_only_early() -> None:
    recording = Recording().see(T0, 5, ONE, OTHER).see(T0 + 2, 6, started(ONE), OTHER)
    judgement = judge(recording.impact(T0 + 3, type="Terminate").see(T0 + 9, 7, OTHER).records)
    assert {finding.rule for finding in judgement.findings} == {"early-start", "impact-early"}


def test_a_finding_names_one_of_several_deletes() -> None:
    many = [
        event(f"{number:08X}-0000-4000-8000-000000000000", type="Terminate") for number in range(30)
    ]
    recording = Recording().see(T0, 5, ONE, *many).approve(T0 + 1, A)
    for poll in range(50):
        recording.see(T0 + 2 + poll, 6, started(ONE), *many)
    (finding,) = judge(recording.records).findings
    assert (finding.rule, finding.event, finding.t) == ("coupling", A, T0 + 2)
    assert many[0]["EventId"] in finding.message
