"""Starts after an interruption that were in order, or are not proven otherwise."""

import pytest

from forewarn.judge import judge
from helpers.judge_traces import DUE, T0, A, B, Recording, event, started


def silent(recording: Recording) -> None:
    judgement = judge(recording.records)
    assert judgement.ok, judgement.render()


def paused(**changed: bool) -> Recording:
    return Recording(grace=60, **changed).up(T0 - 5).see(T0, 5, event())


def test_a_pause_is_kept() -> None:
    silent(
        paused()
        .up(DUE - 10)
        .see(DUE - 7, 5, event())
        .see(DUE + 49, 5, event())
        .see(DUE + 50.1, 6, started(event()))
        .impact(DUE + 51)
        .see(DUE + 300, 7)
    )


def test_an_overdue_event_starts_a_minute_after_the_outage() -> None:
    silent(
        paused()
        .down(DUE - 10)
        .up(DUE + 500)
        .see(DUE + 503, 5, event())
        .see(DUE + 560.5, 6, started(event()))
        .impact(DUE + 561)
    )


def test_a_start_of_control_while_nodes_answered_ends_no_outage() -> None:
    def restarted(**fields: bool) -> Recording:
        up = {"kind": "up", "t": DUE - 10, **fields}
        recording = paused().down(DUE - 11).note(up).see(DUE - 7, 5, event())
        return recording.see(DUE + 1, 6, started(event())).impact(DUE + 1.5)

    silent(restarted(answered=True))
    assert {finding.rule for finding in judge(restarted().records).findings} == {"grace-start"}


def test_without_a_length_pauses_are_not_judged() -> None:
    late = started(event())
    silent(Recording().see(T0, 5, event()).step(DUE - 30, 3).see(DUE + 1, 6, late))
    # A recorder that does not know it leaves it open for all.
    silent(paused().fleet(T0 + 1, grace=None).step(DUE - 30, 3).see(DUE + 1, 6, late))


def test_the_first_start_of_a_service_ends_no_outage() -> None:
    silent(Recording(grace=60).see(T0, 5, event()).up(DUE - 30).see(DUE + 1, 6, started(event())))


def test_a_new_service_in_the_same_recording_was_not_away() -> None:
    preempt = event(type="Preempt", not_before=T0 + 133)
    silent(
        Recording(grace=60)
        .up(T0 - 5)
        .see(T0, 1)
        .down(T0 + 50)
        .up(T0 + 100)
        .see(T0 + 103, 2, preempt)
        .see(T0 + 134, 3, started(preempt))
    )


@pytest.mark.parametrize("later", [0.5, 3.9])
def test_a_start_of_the_service_may_be_recorded_twice(later: float) -> None:
    preempt = event(B, type="Preempt", not_before=T0 + 30)
    silent(
        Recording(grace=60)
        .up(T0 - 5)
        .see(T0 - 5 + later - 2.1, 5, event())
        .up(T0 - 5 + later)
        .see(T0, 6, event(), preempt)
        .see(T0 + 31, 7, event(), started(preempt))
    )


@pytest.mark.parametrize("seconds", [0, 1.9, 2, -2])
def test_a_small_step_is_drift(seconds: float) -> None:
    silent(paused().step(DUE - 30, seconds).see(DUE + 3, 6, started(event())))


@pytest.mark.parametrize("status", [200, 500, None])
def test_an_approval_under_way_at_the_outage_may_be_the_reason(status: int | None) -> None:
    silent(
        paused()
        .see(DUE - 40, 5, event())
        .approve(DUE - 35, A, status=status)
        .up(DUE - 30)
        .see(DUE + 1, 6, started(event()))
        .impact(DUE + 2)
    )


def test_an_approval_answered_after_the_start_may_be_the_reason() -> None:
    silent(
        paused()
        .up(DUE - 30)
        .see(DUE - 20, 5, event())
        .see(DUE + 1, 6, started(event()))
        .approve(DUE + 3, A, asked=DUE + 0.5)
    )


def test_an_operators_approval_beside_the_start_may_be_the_reason() -> None:
    silent(
        paused()
        .up(DUE - 30)
        .see(DUE + 1, 6, started(event()))
        .note({"kind": "approval", "t": DUE + 2, "event": A, "by": "operator"})
    )


def test_an_event_that_may_have_started_before_the_outage_is_not_reported() -> None:
    # Nobody asked between its NotBefore and the kill.
    silent(paused().up(DUE + 30).see(DUE + 33, 6, started(event())).impact(DUE + 34))
    # Nor is it known whether the service was gone at that very moment.
    silent(paused().up(DUE + 1).see(DUE + 4, 6, started(event())))
    silent(paused().down(DUE - 1).up(DUE + 30).see(DUE + 33, 6, started(event())))


def test_a_service_that_was_back_before_it_was_killed_is_not_reported() -> None:
    # It stopped, came back, was killed, came back again; when it was killed is not known.
    silent(paused().down(T0 + 90).up(T0 + 100).up(DUE + 30).see(DUE + 33, 6, started(event())))
    silent(paused().down(T0).up(T0 + 2).up(DUE + 30).see(DUE + 33, 6, started(event())))


def test_a_lost_line_may_have_recorded_the_return() -> None:
    recording = paused().down(T0 + 90).up(DUE + 30).see(DUE + 33, 6, started(event()))
    silent(recording.note({"kind": "impact", "t": T0 + 95}))


def test_an_answer_that_may_be_older_than_the_outage_is_not_reported() -> None:
    silent(
        paused()
        .up(DUE + 30)
        .see(DUE + 35, 5, event(), asked=DUE + 31, machine="web_1")
        .see(DUE + 33, 6, started(event()))
    )


def test_a_start_seen_too_late_is_not_reported() -> None:
    silent(
        paused()
        .up(DUE - 10)
        .see(DUE - 1, 5, event())
        .see(DUE + 52, 6, started(event()), asked=DUE + 1)
    )


def test_a_start_close_to_the_end_of_the_pause_is_not_reported() -> None:
    silent(paused().up(DUE - 10).see(DUE, 5, event()).see(DUE + 48.5, 6, started(event())))
    complete = paused(complete=True).up(DUE - 10)
    silent(complete.see(DUE, 5, event()).see(DUE + 49.995, 6, started(event())))


def test_an_event_first_seen_started_is_not_reported() -> None:
    silent(
        paused()
        .up(T0 + 100)
        .see(T0 + 110, 6, event(), started(event(B, type="Redeploy", resources=["web_2"])))
        .impact(T0 + 111, B, ["web_2"], "Redeploy")
    )


def test_a_group_that_was_disabled_has_no_vote() -> None:
    silent(
        paused()
        .up(DUE - 30)
        .see(DUE - 20, 5, event())
        .note({"kind": "disabled", "t": DUE - 10, "group": "web"})
        .see(DUE + 5, 1, started(event()))
    )


def test_a_torn_line_may_have_been_an_approval() -> None:
    recording = paused().up(DUE - 30).note({"kind": "exchange", "t": DUE - 20})
    silent(recording.see(DUE + 1, 6, started(event())))


def test_an_early_start_after_an_outage_is_early_and_nothing_else() -> None:
    recording = paused().up(T0 + 100).see(T0 + 110, 5, event())
    judgement = judge(recording.see(T0 + 120, 6, started(event())).impact(T0 + 121).records)
    assert [finding.rule for finding in judgement.findings] == ["early-start", "impact-early"]


def test_what_goes_back_is_not_accused_of_the_pause_as_well() -> None:
    recording = paused().up(DUE - 30).see(DUE + 1, 6, started(event())).see(DUE + 2, 7, event())
    rules = {finding.rule for finding in judge(recording.records).findings}
    assert rules == {"backwards"}
