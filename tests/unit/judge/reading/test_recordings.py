"""Several recordings that are judged as one: of control, and of nodes on hosts."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.judge import judge
from helpers.broken_unreachable_hosts import FAR, OTHER, OWN
from helpers.judge_traces import FLEET, T0, A, B, Recording, event, started

HOSTS = {"web_0": "h1", "web_1": "h2", "web_2": "h2"}


def control() -> Recording:
    """The fleet, and what was decided and done."""
    return Recording().up(T0 - 20).hosts(T0 - 10, **HOSTS).impact(T0 + 25, B, [FAR])


def near() -> Recording:
    """The node of web_0 is cut off for a while."""
    return (
        Recording(fleet=False)
        .note({"kind": "up", "t": T0 - 5, "host": "h1"})
        .see(T0, 5, OWN, OTHER, host="h1")
        .disconnected(T0 + 10, host="h1")
        .see(T0 + 50, 5, OWN, OTHER, host="h1")
        .joined(T0 + 100, host="h1")
        .see(T0 + 101, 7, OWN, host="h1")
    )


def far() -> Recording:
    """Elsewhere life goes on."""
    return with_ids(
        "2222",
        Recording(fleet=False)
        .note({"kind": "up", "t": T0 + 1, "host": "h2"})
        .see(T0 + 2, 5, OWN, OTHER, machine=FAR, host="h2")
        .approve(T0 + 20, B, machine=FAR, host="h2")
        .see(T0 + 21, 6, OWN, started(OTHER), machine=FAR, host="h2")
        .see(T0 + 40, 7, OWN, machine=FAR, host="h2"),
    )


def with_ids(part: str, recording: Recording) -> Recording:
    """Give the answers of a node ids of their own."""
    for record in recording.records:
        for header in record.get("answer_headers", ()):
            if header[0] == "x-ms-request-id":
                header[1] = header[1].replace("0000-0000", f"{part}-{part}")
    return recording


def write(path: Path, recording: Recording) -> str:
    records = [*recording.records, {"kind": "end", "t": recording.records[-1]["t"]}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def checked(tmp_path: Path, **recordings: Recording) -> tuple[int, str]:
    """The exit code of `forewarn conformance`, and what it says."""
    files = [write(tmp_path / name, recording) for name, recording in recordings.items()]
    result = CliRunner().invoke(app, ["conformance", *files])
    return result.exit_code, result.output.replace(f"{tmp_path}/", "")


def test_what_one_recording_lacks_is_in_another(tmp_path: Path) -> None:
    code, output = checked(tmp_path, h1=near(), control=control(), h2=far())
    assert (code, output) == (
        0,
        "no promise broken (7 exchanges, 2 machines, 2 events, 1 impact)\n",
    )


def test_nodes_are_compared_with_each_other(tmp_path: Path) -> None:
    late = near().see(T0 + 110, 5, OWN, OTHER, host="h1")
    code, output = checked(tmp_path, h1=late, control=control(), h2=far())
    assert code == 1
    assert "came-back" in output


@pytest.mark.parametrize("incarnation", [7, 4])
def test_a_machine_that_moves_is_followed_from_one_node_to_the_other(
    tmp_path: Path, incarnation: int
) -> None:
    moving = control()
    for t, hosts in ((T0 + 105, ["h1", "h2"]), (T0 + 120, ["h2"])):
        moving.note({"kind": "placement", "t": t, "machines": {"web_0": hosts}})
    # The node that it has left is cut off, and does not know that it has left.
    left = near().see(T0 + 108, 7, OWN, host="h1").disconnected(T0 + 115, host="h1")
    there = with_ids("4444", Recording(fleet=False).see(T0 + 106, 7, OWN, host="h2"))
    there.see(T0 + 130, incarnation, OWN, host="h2", answer_headers={"x-ms-request-id": "last"})
    code, output = checked(tmp_path, h1=left, control=moving, h2=far(), h2_later=there)
    assert code == (0 if incarnation == 7 else 1), output
    assert ("incarnation-down" in output) == (incarnation == 4)


def test_without_the_fleet_each_machine_is_checked_by_itself_with_a_note(
    tmp_path: Path,
) -> None:
    late = near().see(T0 + 110, 7, OWN, host="h1")
    code, output = checked(tmp_path, h1=late, h2=far())
    assert code == 0
    assert output.startswith("note: no recording ")


@pytest.mark.parametrize(
    ("recordings", "message"),
    [
        (
            {"control": control(), "other": Recording(fleet=False).see(T0, 1, machine="db_0")},
            "other .*db_0.*control",
        ),
        (
            {
                "one": control(),
                "nodes": near(),
                "other": Recording(fleet=False)
                .fleet(T0, machines={f"db_{n}": {"group": "db"} for n in range(5)})
                .see(T0 + 1, 1, machine="db_0"),
            },
            r"one and other .*\(Front_IN_0, jump, web_0 .*; db_0, db_1, db_2 ",
        ),
        (
            {
                "node": Recording(fleet=False).disconnected(T0, "db_0").see(T0, 1),
                "control": control(),
            },
            "",
        ),
    ],
    ids=["other machines", "other fleets", "one machine is enough"],
)
def test_recordings_that_do_not_belong_together_are_refused(
    tmp_path: Path, recordings: dict[str, Recording], message: str
) -> None:
    code, output = checked(tmp_path, **recordings)
    assert code == (1 if message else 0)
    assert re.search(message, output)
    assert ("of one service" in output) == bool(message)


def test_a_fleet_may_change_from_one_recording_to_the_next(tmp_path: Path) -> None:
    def of(t: float, *names: str) -> Recording:
        machines = {name: {"group": "web", "update_domain": 0} for name in names}
        return Recording(fleet=False).fleet(t, machines=machines).see(t + 1, 1, machine=names[0])

    last = with_ids("2222", of(T0 + 9, "web_1", "web_2"))
    code, output = checked(tmp_path, first=of(T0, "web_0", "web_1"), last=last)
    assert code == 0, output


def test_a_node_that_is_restarted_is_no_outage() -> None:
    def recording(**host: str) -> Recording:
        recording = Recording(grace=60).up(T0 - 20).see(T0, 5, event())
        recording.note({"kind": "up", "t": T0 + 880, **host})
        return recording.see(T0 + 890, 5, event()).see(T0 + 901, 6, started(event()))

    assert judge(recording(host="h1").records).ok
    assert [f.rule for f in judge(recording().records).findings] == ["grace-start"]


def test_the_clocks_of_nodes_may_differ() -> None:
    def recording(*errors: float) -> Recording:
        recording = Recording().approve(T0 - 5, A)
        for number, error in enumerate(errors):
            up = {"kind": "up", "t": T0 - 9, "host": f"h{number}", "clock_error": error}
            recording.note(up)
        recording.see(T0, 6, started(event()), machine="web_1")
        return recording.see(T0 + 0.05, 5, event())

    assert {f.rule for f in judge(recording().records).findings} == {
        "backwards",
        "incarnation-down",
    }
    assert not judge(recording(0.01, 0.03, 0.01).records).ok
    assert judge(recording(0.02, 0.04).records).ok


def test_the_clock_of_a_node_may_differ_by_what_was_measured() -> None:
    """What is measured again replaces what was known about the same time."""

    def ok(*measured: tuple[float, float]) -> bool:
        recording = Recording().approve(T0 - 5, A)
        recording.note({"kind": "up", "t": T0 - 9, "host": "h1", "clock_error": 1.0})
        for since, error in measured:
            line = {"kind": "clock", "t": T0 - 8, "host": "h1", "since": since, "error": error}
            recording.note(line)
        recording.see(T0, 6, started(event()), machine="web_1").see(T0 + 0.05, 5, event())
        return judge(recording.records).ok

    assert ok()
    assert ok((T0 - 9, 0.06))
    assert not ok((T0 - 9, 0.06), (T0 - 9, 0.04))
    assert ok((T0 - 9, 0.06), (T0 - 7, 0.04))
    assert ok((T0 - 7, 0.04))


def test_machines_on_different_hosts_may_have_the_same_address() -> None:
    machines = {
        "web_0": {"group": "web", "update_domain": 0, "addresses": ["10.0.0.9"], "hosts": ["h1"]},
        "jump": {"group": "jump", "update_domain": 0, "addresses": ["10.0.0.9"], "hosts": ["h2"]},
    }

    def asked(host: str | None, moved: str = "h1") -> set[str]:
        recording = Recording(fleet=False).fleet(T0 - 9, machines=machines)
        recording.placement(T0 + 60, web_0=moved)
        recording.see(T0, 2, event(), machine=None, **{"from": "10.0.0.9"}, host=host)
        return {finding.rule for finding in judge(recording.records).findings}

    assert asked("h1") == set()
    assert asked("h2") == {"leak-resource"}
    assert asked(None) == set()  # it may be either
    assert asked("h3") == {"unknown-caller"}  # there is none at that address
    assert asked("h3", moved="h3") == set()  # it was already there for a moment


@pytest.mark.parametrize(
    ("host", "status", "findings"),
    [
        ("h1", 200, set()),
        ("h2", 200, {"unknown-caller"}),
        ("h2", 404, set()),
        ("h2", 500, set()),  # the node cannot reach control
        ("h2", 400, {"wrong-status"}),
        (None, 200, set()),
    ],
)
def test_a_caller_is_known_only_on_the_host_of_its_machine(
    host: str | None, status: int, findings: set[str]
) -> None:
    hosts = dict.fromkeys(FLEET["machines"], "h2") | {"web_0": "h1"}
    recording = Recording(fleet=False).hosts(T0 - 9, **hosts)
    asked = {"machine": None, "from": "10.0.0.10", "host": host}
    if status == 200:
        recording.see(T0, 2, **asked)
    else:
        recording.refuse(T0, '{ "error": "Not found" }', status, **asked)
    assert {finding.rule for finding in judge(recording.records).findings} == findings


@pytest.mark.parametrize(
    ("host", "t", "findings"),
    [
        ("h1", T0, {"wrong-status"}),
        ("h1", T0 + 60, set()),  # it has left
        ("h2", T0 + 60, {"wrong-status"}),
        ("h1", T0 + 50, set()),  # it leaves, or has just left
        ("h2", T0 + 50, set()),
        ("h1", T0 + 120, {"wrong-status"}),  # it has come back
    ],
)
def test_a_machine_that_has_moved_is_known_by_its_address_on_its_new_host(
    host: str, t: float, findings: set[str]
) -> None:
    (address,) = FLEET["machines"]["web_0"]["addresses"]
    recording = Recording(fleet=False).hosts(T0 - 9, web_0="h1").hosts(T0 + 100, web_0="h1")
    recording.placement(T0 + 50, web_0="h2")
    unknown = '{ "error": "Not found" }'
    recording.refuse(t, unknown, 404, machine=None, host=host, **{"from": address})
    assert {finding.rule for finding in judge(recording.records).findings} == findings


@pytest.mark.parametrize(("there", "findings"), [("h1", {"wrong-status"}), ("h2", set())])
def test_a_machine_that_may_be_on_two_hosts_is_not_known_by_its_address(
    there: str, findings: set[str]
) -> None:
    """Another node has heard it."""
    hosts = {**FLEET["machines"]["web_0"], "hosts": list(dict.fromkeys(("h1", there)))}
    (address,) = hosts["addresses"]
    recording = Recording(fleet=False).fleet(T0 - 9, machines={"web_0": hosts})
    unknown = '{ "error": "Not found" }'
    recording.refuse(T0, unknown, 404, machine=None, host="h1", **{"from": address})
    recording.note({"kind": "placement", "t": T0 + 50, "machines": {"web_0": hosts["hosts"]}})
    recording.refuse(T0 + 60, unknown, 404, machine=None, host="h1", **{"from": address})
    assert {finding.rule for finding in judge(recording.records).findings} == findings


@pytest.mark.parametrize(("t", "findings"), [(T0 + 20, {"server-error"}), (T0 + 50, set())])
def test_a_node_may_have_nothing_to_show_to_a_machine_that_leaves(
    t: float, findings: set[str]
) -> None:
    failed = '{"error":"The request could not be carried out. Try again"}'
    recording = Recording(fleet=False).hosts(T0 - 9, web_0="h1").placement(T0 + 50, web_0="h2")
    recording.see(T0, 2, event(), host="h1").refuse(t, failed, 500, host="h1")
    assert {finding.rule for finding in judge(recording.records).findings} == findings


@pytest.mark.parametrize(("error", "findings"), [(0.1, set()), (0.01, {"request-id"})])
def test_a_guest_and_its_node_may_record_one_request_with_different_clocks(
    error: float, findings: set[str]
) -> None:
    recording = Recording().note({"kind": "up", "t": T0 - 9, "host": "h1", "clock_error": error})
    recording.see(T0, 2, event(), host="h1", answer_headers={"x-ms-request-id": "1"})
    recording.see(T0 + 0.05, 2, event(), answer_headers={"x-ms-request-id": "1"})
    assert {finding.rule for finding in judge(recording.records).findings} == findings
