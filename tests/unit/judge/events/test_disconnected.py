"""Machines that are disconnected: what is right about them. What is wrong with them is in
`helpers/broken_unreachable_hosts.py`."""

from collections.abc import Callable

import pytest

from forewarn.judge import judge
from helpers.broken_unreachable_hosts import FAR, OTHER, OWN, alone, gone_on, lagging, lawful
from helpers.judge_traces import DUE, T0, A, B, C, Recording, event, started

BAD = '{"error":"Bad request. No."}'


def rules(recording: Recording) -> set[str]:
    return {finding.rule for finding in judge(recording.records).findings}


def without_disconnected(recording: Recording) -> Recording:
    recording.records = [line for line in recording.records if line["kind"] != "disconnected"]
    return recording


LAWFUL: dict[str, tuple[Callable[[], Recording], set[str]]] = {
    # Each with what the same recording shows if the machine was not disconnected.
    "it lags behind and joins again": (
        lawful,
        {"backwards", "came-back", "incarnation-down", "impact-while-scheduled", "lost-approval"},
    ),
    "it is still disconnected when the recording ends": (
        lambda: lagging(gone_on(alone()), T0 + 22, T0 + 30),
        {"backwards", "incarnation-down", "impact-while-scheduled", "lost-approval"},
    ),
    "it is told of a change while it is disconnected, and shows it late": (
        lambda: lagging(gone_on(alone()), T0 + 30).see(T0 + 45, 6, OWN, started(OTHER)),
        {"backwards", "came-back", "incarnation-down", "impact-while-scheduled"},
    ),
    "its event waits, though it is approved and due": (
        lambda: (
            alone()
            .approve(T0 + 20, A, machine=FAR)
            .see(T0 + 30, 5, OWN, OTHER, machine=FAR)
            .see(T0 + 300, 5, OWN, OTHER, machine=FAR)
            .see(DUE + 10, 6, OWN, started(OTHER), machine=FAR)
            .see(DUE + 300, 7, OWN, machine=FAR)
            .see(DUE + 500, 7, OWN, machine=FAR)
        ),
        {"late-start", "lost-approval"},
    ),
    "an approval of what the others are shown is unknown to its node": (
        lambda: (
            alone()
            .see(T0 + 20, 6, OWN, OTHER, event(C, not_before=DUE + 20), machine=FAR)
            .approve(T0 + 30, C, status=400, answer=BAD)
        ),
        {"approval-refused"},
    ),
    "the first poll of a group that was enabled elsewhere meanwhile fails": (
        lambda: (
            Recording()
            .disconnected(T0)
            .see(T0 + 10, 1, machine=FAR)
            .refuse(T0 + 140, "", 500, asked=T0 + 20)
        ),
        {"server-error"},
    ),
    "its group was disabled and enabled again meanwhile": (
        lambda: (
            alone()
            .note({"kind": "disabled", "t": T0 + 60, "group": "web"})
            .see(T0 + 100, 1, machine=FAR)
            .see(T0 + 120, 5, OWN, OTHER)
            .joined(T0 + 150)
            .see(T0 + 160, 1)
        ),
        {"incarnation-down", "came-back"},
    ),
}


@pytest.mark.parametrize(("build", "accused"), LAWFUL.values(), ids=list(LAWFUL))
def test_a_machine_that_is_cut_off_is_judged_by_itself(
    build: Callable[[], Recording], accused: set[str]
) -> None:
    judgement = judge(build().records)
    assert judgement.ok, judgement.render()
    assert rules(without_disconnected(build())) == accused


def test_a_machine_is_judged_with_the_others_from_its_first_answer_after_joining() -> None:
    def answered(t: float, asked: float) -> set[str]:
        recording = gone_on(alone()).joined(T0 + 100)
        return rules(recording.see(t, 5, OWN, OTHER, asked=asked))

    assert answered(T0 + 99, T0 + 98.9) == set()
    assert answered(T0 + 101, T0 + 99.9) == set()  # perhaps answered just before
    assert answered(T0 + 101, T0 + 100.1) >= {"came-back", "incarnation-down"}


def test_where_the_clock_stands_still_the_order_of_lines_decides() -> None:
    recording = Recording(complete=True).see(T0, 5, OWN, OTHER, asked=T0).disconnected(T0)
    recording.see(T0, 6, OWN, event(C), machine=FAR, asked=T0)
    recording.see(T0, 5, OWN, OTHER, asked=T0)
    assert rules(recording) == set()
    assert rules(recording.joined(T0).see(T0, 5, OWN, OTHER, asked=T0)) >= {"incarnation-down"}


def test_other_machines_are_not_compared_with_one_that_is_cut_off() -> None:
    # It was told of a change, but not yet that it is shown.
    recording = alone().see(T0 + 30, 6, OWN, OTHER, event(C, not_before=DUE + 30))
    assert rules(recording.see(T0 + 31, 5, OWN, OTHER, machine=FAR)) == set()


@pytest.mark.parametrize(
    "recording",
    [
        # Asked again on a new line, and answered when it had joined.
        lambda: alone().joined(T0 + 40).approve(T0 + 40.1, A, asked=T0 + 35),
        # Answered before it was disconnected, as far as anybody knows.
        lambda: alone().approve(T0 + 12, A, asked=T0 + 9),
        # It needs no approval any more: it was approved before, or it is shown as Started.
        lambda: (
            Recording()
            .see(T0, 5, started(OTHER), OWN)
            .approve(T0 + 1, A, machine=FAR)
            .disconnected(T0 + 10)
            .approve(T0 + 20, A)
        ),
        lambda: (
            Recording()
            .see(T0, 5, OWN)
            .approve(T0 + 1, A)
            .see(T0 + 2, 6, started(OWN))
            .disconnected(T0 + 10)
            .approve(T0 + 20, A)
        ),
        lambda: alone().approve(T0 + 30, A, status=500, answer=""),
    ],
)
def test_an_approval_that_control_may_have_received_may_count(
    recording: Callable[[], Recording],
) -> None:
    judgement = judge(recording().records)
    assert judgement.ok, judgement.render()


@pytest.mark.parametrize(
    "recording",
    [
        # Started before it was disconnected, and carried out after that.
        lambda: (
            Recording()
            .see(T0, 5, OWN)
            .approve(T0 + 1, A)
            .see(T0 + 2, 6, started(OWN))
            .moved(T0 + 1, "start")
            .disconnected(T0 + 10)
            .impact(T0 + 200)
        ),
        lambda: (
            Recording().see(T0, 5, OWN).approve(T0 + 1, A).disconnected(T0 + 10).impact(T0 + 200)
        ),
        # Started before control knew of it.
        lambda: alone().approve(T0 + 11, B, machine=FAR).moved(T0 + 12, "start", B),
        lambda: (
            alone()
            .approve(T0 + 5, A)
            .moved(T0 + 12, "start")
            .see(T0 + 60, 6, started(OWN), OTHER, machine=FAR)
        ),
        # A failure cannot be announced.
        lambda: (
            alone()
            .moved(T0 + 100, "strike", C, type="Reboot")
            .moved(T0 + 100, "start", C, type="Reboot")
            .see(T0 + 101, 6, OWN, OTHER, started(event(C, type="Reboot")), machine=FAR)
            .impact(T0 + 100, C, type="Reboot")
        ),
        # It has joined again, and was approved or has had its grace.
        lambda: alone(grace=60).approve(T0 + 5, A).joined(DUE + 10).moved(DUE + 11, "start"),
        lambda: alone(grace=60).joined(DUE + 10).moved(DUE + 70, "start"),
        # Another machine of the group.
        lambda: alone().moved(DUE + 100, "start", B, machines=[FAR]).impact(DUE + 105, B, [FAR]),
        # An operator has told control not to wait for the node.
        lambda: (
            alone(host="h1")
            .note({"kind": "without-node", "t": DUE, "host": "h1"})
            .moved(DUE + 10, "start")
        ),
        # It is not there any more.
        lambda: (
            alone()
            .fleet(T0 + 100, machines={FAR: {"group": "web", "update_domain": 1}})
            .moved(DUE + 10, "start", machines=["web_0", "web_2"])
        ),
    ],
)
def test_events_of_a_machine_that_is_cut_off_must_not_start(
    recording: Callable[[], Recording],
) -> None:
    judgement = judge(recording().records)
    assert judgement.ok, judgement.render()
