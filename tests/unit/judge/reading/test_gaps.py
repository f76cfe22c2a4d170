"""Recordings with gaps: what their missing lines may explain is not held against the service, and
everything else is."""

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.judge import judge, judge_files
from helpers.judge_traces import FLEET, T0, A, B, Recording, event, started

FAR = event(B, type="Reboot", resources=("web_2",))


def found(recording: Recording) -> set[str]:
    return {finding.rule for finding in judge(recording.records).findings}


def gap(recording: Recording, t: float, until: float | None = None, **host: str) -> Recording:
    return recording.note({"kind": "gap", "t": t, "until": until, **host})


def killed(approved: float | None, raised: float = T0 + 1) -> Recording:
    """An event that is shown as Scheduled at 10 s and as Started after the gap from 12 to 40 s."""
    says: dict[str, Any] = (
        {} if approved is None else {"approved": approved, "approved_by": "web_0"}
    )
    recording = Recording().up(T0 - 20).moved(raised, "raise").see(T0 + 10, 2, event())
    gap(recording, T0 + 12, T0 + 40).fleet(T0 + 40).up(T0 + 40)
    return recording.moved(T0 + 100, "start", **says).see(T0 + 101, 3, started(event()))


def test_an_approval_is_believed_if_its_line_may_be_missing() -> None:
    assert found(killed(approved=T0 + 13)) == set()
    without = killed(approved=T0 + 13)
    without.records = [record for record in without.records if record["kind"] != "gap"]
    assert found(without) == {"early-start"}


@pytest.mark.parametrize(("machine", "expected"), [("web_0", {"early-start"}), ("web_1", set())])
def test_a_failed_request_that_approved_an_event_is_not_missing(
    machine: str, expected: set[str]
) -> None:
    """The gap is near enough for the line of another request to be in it."""
    recording = killed(approved=T0 + 5)
    recording.approve(T0 + 5.001, A, machine=machine, status=500)
    for record in recording.records:
        if record["kind"] == "up":
            record["engine"] = "sqlite"
    assert found(recording) == expected


@pytest.mark.parametrize("approved", [None, T0 + 90])
def test_an_approval_that_would_have_been_recorded_is_not_believed(approved: float | None) -> None:
    assert found(killed(approved)) == {"early-start"}


def test_a_start_in_a_gap_may_have_been_approved_there() -> None:
    recording = Recording().see(T0 + 10, 2, event())
    gap(recording, T0 + 12, T0 + 40).see(T0 + 41, 3, started(event()))
    assert found(recording) == set()


def test_an_event_that_was_raised_after_a_gap_was_not_approved_in_it() -> None:
    recording = gap(Recording().see(T0, 1), T0 + 1, T0 + 10).moved(T0 + 20, "raise")
    recording.see(T0 + 21, 2, event(not_before=T0 + 920)).see(T0 + 22, 3, started(event()))
    assert found(recording) == {"early-start"}


@pytest.mark.parametrize(("t", "expected"), [(T0 + 30, set()), (T0 + 50, {"vanished"})])
def test_an_approved_event_may_have_been_withdrawn_in_a_gap(t: float, expected: set[str]) -> None:
    recording = Recording().moved(T0, "raise").see(T0 + 1, 2, event()).halts(T0, {})
    recording.approve(T0 + 2, A).see(T0 + 3, 2, event())
    recording.see(t - 5, 2, event()).see(t, 3)
    assert found(gap(recording, T0 + 26, T0 + 28)) == expected


@pytest.mark.parametrize(("start", "expected"), [(12, set()), (30, {"started-while-halted"})])
def test_a_halt_may_have_been_released_in_a_gap(start: float, expected: set[str]) -> None:
    recording = Recording().halts(T0, {}).see(T0 + 1, 2, event()).approve(T0 + 2, A)
    recording.moved(T0 + start, "start", approved=T0 + 2)
    assert found(gap(recording, T0 + 11, T0 + 20).halts(T0 + 20, {})) == expected


@pytest.mark.parametrize("shown", [0, 7])
def test_a_group_may_have_been_disabled_in_a_gap(shown: int) -> None:
    """If it was, the highest number until then is in the state."""
    groups = {**FLEET["groups"], "web": {"kind": "scale-set", "shown": shown}}
    recording = gap(Recording().up(T0 - 20).see(T0, 7, event()), T0 + 1, T0 + 10)
    recording.fleet(T0 + 10, groups=groups).up(T0 + 10).see(T0 + 20, 1)
    assert found(recording) == (set() if shown else {"incarnation-down"})


def waiting(*lines: dict[str, Any]) -> Recording:
    """An event of web_2 on h2 is approved, and is not started while web_0 on h1 polls."""
    recording = Recording().hosts(T0 - 5, web_0="h1", web_2="h2")
    recording.see(T0, 2, FAR, host="h1").approve(T0 + 1, B, host="h1")
    for line in lines:
        recording.note(line)
    for t in range(2, 20):
        recording.see(T0 + t, 2, FAR, host="h1")
    return recording


@pytest.mark.parametrize(
    ("host", "expected"), [("h2", set()), ("h1", {"lost-approval"})], ids=["its own", "another"]
)
def test_an_event_waits_for_a_host_that_control_cannot_reach(host: str, expected: set[str]) -> None:
    assert found(waiting()) == {"lost-approval"}
    cut_off = {"kind": "unreachable", "t": T0 - 1, "hosts": [host]}
    assert found(waiting(cut_off)) == expected
    again = {"kind": "reachable", "t": T0 + 3, "hosts": [host]}
    assert found(waiting(cut_off, again)) == {"lost-approval"}


def test_an_event_waits_while_its_machine_may_be_on_another_host() -> None:
    def placed(t: float, **hosts: list[str]) -> dict[str, Any]:
        return {"kind": "placement", "t": t, "machines": hosts}

    assert found(waiting(placed(T0 - 1, web_2=["h2", "h3"]))) == set()
    assert found(waiting(placed(T0 - 1, web_1=["h2", "h3"]))) == {"lost-approval"}
    settled = placed(T0 - 1, web_2=["h2", "h3"]), placed(T0 + 3, web_2=["h2"])
    assert found(waiting(*settled)) == {"lost-approval"}


def test_an_event_waits_for_a_node_that_was_killed() -> None:
    killed_node = {"kind": "gap", "t": T0 - 1, "until": T0 + 30, "host": "h2"}
    assert found(waiting(killed_node)) == set()
    assert found(waiting({**killed_node, "host": "h3"})) == {"lost-approval"}


def test_a_node_whose_recording_has_a_gap_may_be_disconnected() -> None:
    def trace() -> Recording:
        recording = Recording().hosts(T0 - 5, web_0="h1", web_1="h2").see(T0, 2, FAR, host="h1")
        recording.see(T0 + 20, 3, machine="web_1", host="h2")
        return recording.see(T0 + 30, 2, FAR, host="h1")

    assert {"incarnation-down", "came-back"} <= found(trace())
    assert found(gap(trace(), T0 + 10, T0 + 40, host="h1")) == set()
    assert {"incarnation-down", "came-back"} <= found(gap(trace(), T0 + 5, T0 + 15, host="h1"))


def test_a_recording_without_an_end_has_a_gap_there(tmp_path: Path) -> None:
    """Control was killed for good, and a node goes on."""

    def judged(*more: dict[str, Any]) -> set[str]:
        control = Recording().up(T0 - 20).moved(T0, "raise").records
        node = Recording(fleet=False).see(T0 + 1, 2, event()).see(T0 + 90, 3, started(event()))
        for name, records in (("control", [*control, *more]), ("node", node.records)):
            lines = "".join(json.dumps(record) + "\n" for record in records)
            (tmp_path / name).write_text(lines + ('{"kind":"ex' if name == "control" else ""))
        judgement = judge_files([tmp_path / "control", tmp_path / "node"])
        assert judgement.unreadable == 1
        return {finding.rule for finding in judgement.findings}

    assert judged() == set()
    started_early = {**Recording().moved(T0 + 89, "start").records[-1]}
    assert judged(started_early) == {"early-start"}


def write(path: Path, records: list[dict[str, Any]], torn: str = "") -> Path:
    lines = "".join(json.dumps(record) + "\n" for record in records)
    path.write_text(torn + ("\n" if torn else "") + lines)
    return path


@pytest.mark.parametrize("torn", ["", '"t":1700000000.0}'])
@pytest.mark.parametrize(
    ("raised", "approved", "expected"),
    [
        (T0 + 1, T0 + 50, {"early-start"}),  # its line would be there
        (T0 - 90, T0 - 9, set()),
        (T0 - 90, None, {"early-start"}),
    ],
)
def test_a_service_was_running_before_a_recording_whose_beginning_is_missing(
    torn: str, raised: float, approved: float | None, expected: set[str], tmp_path: Path
) -> None:
    recording = Recording(fleet=False).moved(T0, "raise", B, real=1.0)
    if raised >= T0:
        recording.moved(raised, "raise", real=2.0)
    recording.see(T0 + 3, 2, event())
    recording.moved(T0 + 200, "start", real=200.0, approved=approved)
    recording.see(T0 + 201, 3, started(event())).note({"kind": "end", "t": T0 + 202})
    judgement = judge_files([write(tmp_path / "service", recording.records, torn)])
    assert {finding.rule for finding in judgement.findings} == expected
    assert judgement.unreadable == bool(torn)


def test_what_holds_an_event_is_known_when_a_service_begins_again(tmp_path: Path) -> None:
    def judged(*more: dict[str, Any]) -> set[str]:
        recording = Recording(fleet=False).moved(T0 - 5, "raise", real=1.0)
        recording.see(T0, 2, event()).approve(T0 + 1, A)
        for line in more:
            recording.note(line)
        for t in range(30, 60):
            recording.see(T0 + t, 2, event())
        path = write(tmp_path / "service", sorted(recording.records, key=lambda line: line["t"]))
        return {finding.rule for finding in judge_files([path]).findings}

    assert judged() == set()
    assert judged({"kind": "up", "t": T0 + 20}) == {"lost-approval"}


def test_an_event_may_be_held_by_what_only_controls_recording_contains() -> None:
    node = Recording(fleet=False).note({"kind": "up", "t": T0 - 20, "host": "h1"})
    node.see(T0, 2, event(), host="h1").approve(T0 + 1, A, host="h1")
    node.see(T0 + 30, 2, event(), host="h1")
    assert found(node) == set()
    assert found(node.fleet(T0 - 20)) == {"lost-approval"}


def test_an_incomplete_last_line_hides_nothing_before_it(tmp_path: Path) -> None:
    recording = Recording().up(T0 - 20).moved(T0 - 15, "raise").see(T0, 5, event())
    recording.see(T0 + 10, 7, event()).see(T0 + 100, 7, event())
    path = write(tmp_path / "service", recording.records)
    assert {finding.rule for finding in judge_files([path]).findings} == {"incarnation-idle"}
    path.write_text(path.read_text() + '{"kind":"ex')
    assert {finding.rule for finding in judge_files([path]).findings} == {"incarnation-idle"}
