"""Events of groups that wait for their machines: what is in order, and what cannot be proven."""

import pytest

from forewarn.judge import judge
from helpers.judge_returns import CARRIED_OUT, carried_out
from helpers.judge_traces import FLEET, A, Recording


def silent(recording: Recording) -> None:
    judgement = judge(recording.records)
    assert judgement.ok, judgement.render()


def test_an_event_is_over_when_its_machine_has_polled_again() -> None:
    recording = carried_out()
    recording.see(CARRIED_OUT + 4, 5)
    silent(recording.over_at(CARRIED_OUT + 5))


@pytest.mark.parametrize(("type", "seconds"), [("Reboot", 600), ("Freeze", 60)])
def test_an_event_is_over_without_its_machine_when_the_time_has_passed(
    type: str, seconds: float
) -> None:
    silent(carried_out(type).over_at(CARRIED_OUT + seconds))


def test_a_machine_that_polls_seldom_is_not_waited_for() -> None:
    silent(carried_out(every=3000).over_at(CARRIED_OUT + 1))
    silent(carried_out("Freeze", every=60).over_at(CARRIED_OUT + 1))


def test_a_machine_that_has_not_polled_in_the_last_hour_is_not_waited_for() -> None:
    silent(carried_out(last=3601).over_at(CARRIED_OUT + 1))


def test_a_group_need_not_wait_for_its_machines() -> None:
    silent(carried_out(waits=False).over_at(CARRIED_OUT + 1))


def test_an_operator_ends_an_event_at_any_time() -> None:
    silent(carried_out().over_at(CARRIED_OUT + 1, carried_out=None))


def test_a_deletion_is_over_without_its_machine() -> None:
    silent(carried_out("Terminate").over_at(CARRIED_OUT + 1))


def test_a_machine_that_was_deleted_meanwhile_is_not_waited_for() -> None:
    recording = carried_out()
    machines = {name: m for name, m in FLEET["machines"].items() if name != "web_0"}
    recording.fleet(CARRIED_OUT + 1, machines=machines)
    silent(recording.over_at(CARRIED_OUT + 2))


def test_a_poll_may_be_in_a_gap_or_behind_an_outage() -> None:
    recording = carried_out()
    recording.note({"kind": "gap", "t": CARRIED_OUT + 1, "until": CARRIED_OUT + 2, "host": "h"})
    silent(recording.over_at(CARRIED_OUT + 5))
    recording = carried_out()
    recording.up(CARRIED_OUT + 3)
    silent(recording.over_at(CARRIED_OUT + 5))


def test_a_request_without_a_document_is_a_sign_of_life() -> None:
    recording = carried_out()
    recording.approve(CARRIED_OUT + 4, A, status=None)
    recording.records[-1]["fault"] = "disconnect"
    silent(recording.over_at(CARRIED_OUT + 5))
