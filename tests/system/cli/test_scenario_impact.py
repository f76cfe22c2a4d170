"""`forewarn scenario run --impact`: what happens to a machine happens to the program on it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn import judge
from forewarn.cli.app import app
from forewarn.testing import Service, run_scenario
from forewarn.testing.scenarios import Result, parse
from forewarn.testing.scenarios.engine.program import ProgramRunner
from helpers.waiting import until

# Approves its own events. The words of its command line say what else it does.
APP = """\
import json, os, subprocess, sys, time, urllib.request
url = os.environ["FOREWARN_METADATA"] + "/metadata/scheduledevents?api-version=2020-07-01"
me, habits, approved = os.environ["FOREWARN_MACHINE"], sys.argv[2:], set()
starts = open(sys.argv[1], "a+")
starts.seek(0)
again = bool(starts.read())
print(os.getpid(), file=starts, flush=True)
def ask(body=None):
    request = urllib.request.Request(url, data=body, headers={"Metadata": "true"})
    with urllib.request.urlopen(request) as answer:
        return answer.read()
if "has-child" in habits and not again:
    child = subprocess.Popen(["sleep", "600"])
    print(child.pid, file=starts, flush=True)
if "hangs-when-back" in habits and again:
    time.sleep(600)
while True:
    for event in json.loads(ask())["Events"]:
        if event["EventStatus"] != "Scheduled" or me not in event["Resources"]:
            continue
        if event["EventType"] != "Freeze" and event["EventId"] not in approved:
            approved.add(event["EventId"])
            ask(json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode())
            if "exits" in habits:
                sys.exit(0)
            if "crashes" in habits:
                os._exit(7)
    time.sleep(0.02)
"""
HEAD = """\
scenario: trial
fleet: {groups: [{name: web, kind: scale-set, machines: {count: 2, spot: true}}]}
as: web_0
timeline:
"""
REBOOT = "  - {at: 10s, do: schedule, type: Reboot, machine: web_0, duration: 9, name: event}\n"
EVICTION = "  - {at: 10s, do: evict, machine: web_0, name: event}\n"
APPROVED = """\
expect:
  - {event: event, approved: {by: web_0}}
  - {command: {crashed: false}}
  - no-complaints
"""


class Program:
    """The program in a file, and the process ids that it has written down."""

    def __init__(self, directory: Path) -> None:
        self._file, self._starts = directory / "app.py", directory / "starts"
        self._file.write_text(APP)

    def command(self, *habits: str) -> list[str]:
        return [sys.executable, "-S", str(self._file), str(self._starts), *habits]

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self._starts.read_text().split()]

    def play(
        self, text: str, *habits: str, busy_check: list[str] | None = None, **more: float
    ) -> Result:
        runner = ProgramRunner(
            self.command(*habits), ["web_0"], impact=True, busy_check=busy_check or []
        )
        return run_scenario(parse(HEAD + text), program=runner, **more)  # type: ignore[arg-type]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def state(pid: int) -> str:
    """The state of a process as /proc has it: T is stopped, Z and nothing are gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_a_reboot_kills_the_program_with_its_children_and_starts_it_again(
    program: Program,
) -> None:
    result = program.play(REBOOT + APPROVED, "has-child").check()
    first, child, second = program.pids
    assert first != second
    assert state(child) in ("", "Z")
    [ended] = result.ended
    assert (ended.starts, ended.terminated, ended.killed_by) == (2, True, "")
    [course] = [course for course in result.verdict.courses if course.machine == "web_0"]
    assert course.statuses == ("Scheduled", "Started"), "it is back while its event is Started"


def test_an_eviction_kills_the_program_for_good(program: Program) -> None:
    expected = APPROVED + "  - {command: {running: true}}\n"
    result = program.play(EVICTION + expected)
    assert len(program.pids) == 1
    [ended] = result.ended
    assert (ended.killed_by, ended.terminated, ended.starts) == ("Preempt", False, 1)
    (failed,) = [item.message for item in result.expectations if not item.ok]
    assert re.search("web_0 .*Preempt", failed)


def test_a_program_that_ends_by_itself_once_it_has_approved_is_started_again(
    program: Program,
) -> None:
    result = program.play(REBOOT + APPROVED, "exits").check()
    assert len(program.pids) == 2
    assert result.ended[0].starts == 2


def test_a_crash_is_reported_though_the_machine_is_restarted_right_after(
    program: Program,
) -> None:
    gone = "grep -q 'State:.Z' /proc/$FOREWARN_PID/status || [ ! -e /proc/$FOREWARN_PID ]"
    until_gone = f"until {gone}; do sleep 0.01; done"
    result = program.play(REBOOT + APPROVED, "crashes", busy_check=["sh", "-c", until_gone])
    assert not result.ok
    assert result.failures[0].endswith("web_0 ended with 7")


def test_a_program_that_does_not_poll_after_its_restart_is_reported(program: Program) -> None:
    for seconds in (1.0, 10.0, 100.0):  # as long as its first start may take on a busy machine
        result = program.play(REBOOT + APPROVED, "hangs-when-back", first_poll_timeout=seconds)
        if len(program.pids) > 1:
            break
    assert re.match(f"web_0 was back, .*within {seconds:.0f} s", result.failures[0])


def test_a_freeze_stops_the_program_while_it_lasts(program: Program) -> None:
    with Service() as service:
        web = service.scale_set("web", 2)
        runner = ProgramRunner(program.command(), ["web_0"], impact=True)
        runner.start(service._session)
        try:
            web[0].wait_for_poll(60)
            [pid] = program.pids
            event = web[0].schedule("Freeze", duration=5)
            event.until_started()
            until(lambda: state(pid) == "T")
            service.clock.advance("4s")
            assert state(pid) == "T"
            service.clock.advance("1s")
            until(lambda: state(pid) in ("S", "R"))
            service.clock.play("10m")
            assert event.status == "Finished"
        finally:
            runner.end()


def test_a_program_that_is_frozen_at_the_end_is_ended(program: Program) -> None:
    text = "  - {at: 10s, do: schedule, type: Freeze, machine: web_0, name: event}\nends: 16m\n"
    with_freeze = text.replace("ends: 16m", "ends: 15m12s")
    result = program.play(with_freeze)
    assert result.ok
    assert result.ended[0].terminated
    assert result.ended[0].code is not None


def test_a_program_that_is_busy_at_the_restart_approved_too_early(
    program: Program,
) -> None:
    idle = REBOOT + "expect:\n  - {event: event, idle: true}\n  - no-complaints\n"
    check = "import os; print(os.environ['FOREWARN_EVENT_TYPE'], 'meets 2 jobs'); exit(1)"
    result = program.play(idle, busy_check=[sys.executable, "-c", check])
    assert [item.ok for item in result.expectations] == [False, False]
    assert re.search("web_0 .* Reboot meets 2 jobs", result.expectations[0].message)
    assert [item.rule for item in result.verdict.wrong] == ["approved-too-early"]
    [line] = [line for line in result.lines if line["kind"] == "activity"]
    assert (line["machine"], line["busy"], line["reason"]) == (
        "web_0",
        True,
        "Reboot meets 2 jobs",
    )


def test_an_idle_program_has_not_approved_too_early(program: Program) -> None:
    idle = REBOOT + "expect:\n  - {event: event, idle: true}\n  - no-complaints\n"
    result = program.play(idle, busy_check=["true"]).check()
    assert [item.message for item in result.expectations] == ["", ""]


def test_an_idle_expectation_without_a_check_is_marked_unchecked(program: Program) -> None:
    result = program.play(REBOOT + "expect: [{event: event, idle: true}]\n").check()
    assert "was not checked" in result.expectations[0].message


def test_a_check_that_cannot_be_run_fails_the_scenario(program: Program) -> None:
    result = program.play(REBOOT + APPROVED, busy_check=["/nowhere/check"])
    assert "busy check" in result.failures[0]
    assert ": /nowhere/check: " in result.failures[0]


def test_impacts_happen_in_real_time_as_well(program: Program) -> None:
    result = program.play(REBOOT + APPROVED, speed=100.0).check()
    assert len(program.pids) == 2
    assert result.ended[0].starts == 2


def test_the_command_has_options_for_impacts_and_checks(program: Program, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    options = ("--impact", "--busy-check", "sh -c 'kill -0 $FOREWARN_PID; echo 2 jobs >&2; exit 3'")
    words = ("run", "user-reboot", *options, "--json", "--record", str(trace))
    result = CliRunner().invoke(app, ["scenario", *words, "--", *program.command()])
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout)
    assert report["commands"][0]["starts"] == 2
    assert [item["rule"] for item in report["verdict"]["complaints"]] == ["approved-too-early"]
    assert judge.judge_files([trace]).ok
    verdict = CliRunner().invoke(app, ["verdict", str(trace)])
    assert "approved-too-early" in verdict.stdout, "the recording is enough"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--impact",), "need a program"),
        (("--busy-check", "true"), "need a program"),
        (("--busy-check", "'", "--", "true"), "No closing quotation"),
        (("--busy-check", " ", "--", "true"), "it is empty"),
        (("--busy-check", "kill -0 $FOREWARN_PID", "--", "true"), "no shell is used"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(app, ["scenario", "run", "user-reboot", *options])
    assert result.exit_code == 2
    assert problem in " ".join(result.output.replace("│", " ").split())
