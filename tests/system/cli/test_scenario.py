"""`forewarn scenario`, as somebody types it who has a program to test."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from forewarn import judge
from forewarn.cli.app import app
from forewarn.service.engine.ledger import Hung
from forewarn.testing import RefusedError, Service, run_scenario, scenarios
from forewarn.testing.enclosure import NoFakeTime, fake_time
from forewarn.testing.scenarios.engine.program import ProgramRunner
from helpers.forked_cli import Forked
from helpers.netns import needs_root, require
from helpers.process import Running
from helpers.times import START
from helpers.waiting import until

EVERY = 0.15  # seconds between two polls of a client that is not accused of too many
APP = """\
import json, os, signal, sys, time, urllib.request
where = sys.argv[1] if len(sys.argv) > 1 else os.environ["FOREWARN_METADATA"]
url = where + "/metadata/scheduledevents?api-version=2020-07-01"
me, approved = os.environ["FOREWARN_MACHINE"], set()
def ask(body=None):
    request = urllib.request.Request(url, data=body, headers={"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
while True:
    try:
        events = json.loads(ask())["Events"]
    except OSError:
        events = []
    for event in events:
        if me in event["Resources"] and event["EventId"] not in approved:
            print("approving", event["EventType"], int(time.time()), flush=True)
            ask(json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode())
            approved.add(event["EventId"])
    time.sleep(0.02)
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    file = tmp_path / "app.py"
    file.write_text(APP)
    return [sys.executable, "-S", str(file)]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, ["scenario", *words])


def test_shipped_scenarios_are_listed_and_shown() -> None:
    listed = typed("list")
    assert all(name in listed.stdout for name in scenarios.names())
    found = json.loads(typed("list", "--json").stdout)
    assert [one["scenario"] for one in found] == scenarios.names()
    shown = typed("show", "withdrawn")
    assert shown.stdout == scenarios.find("withdrawn").text
    assert json.loads(typed("schema").stdout)["title"] == "forewarn scenario file"


def test_files_are_checked_one_by_one(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(scenarios.find("storm").text)
    bad.write_text(scenarios.find("storm").text.replace("do: evict", "do: evikt"))
    result = typed("check", str(bad), str(good))
    assert result.exit_code == 1
    assert f"{good}: scenario storm: steps: 1, expectations: 7" in result.stdout
    assert "bad.yaml:15: timeline[0].do: " in result.stderr
    assert typed("check", str(good)).exit_code == 0


def test_a_run_writes_timeline_report_and_recording(
    program: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page, report = tmp_path / "timeline.html", tmp_path / "junit.xml"
    trace = tmp_path / "trace.jsonl"
    files = ("--timeline", str(page), "--junit", str(report), "--record", str(trace))
    result = typed("run", "user-reboot", *files, "--", *program)
    assert result.exit_code == 0, result.output
    assert "scenario user-reboot: passed" in result.stdout
    assert re.search("✓ restart .*web_0", result.stdout)
    assert "verdict: nothing wrong" in result.stdout
    assert re.search("started: web_0 ", result.stderr)
    assert "approving Reboot" in capfd.readouterr().out, "the program's words pass through"
    assert "scenario user-reboot" in page.read_text()
    assert ElementTree.parse(report).getroot().get("failures") == "0"
    assert judge.judge_files([trace]).ok


def test_the_result_is_printed_though_the_report_cannot_be_written(program: list[str]) -> None:
    result = typed("run", "short-notice", "--junit", "/dev/full", "--", *program)
    assert result.exit_code == 1
    assert "scenario short-notice: passed" in result.stdout
    assert "forewarn: /dev/full: No space" in result.stderr


def test_a_failed_expectation_is_exit_code_1(program: list[str]) -> None:
    result = typed("run", "live-migration", "--json", "--", *program)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    failed = [one["expected"] for one in found["expectations"] if not one["ok"]]
    assert failed[0].startswith("migration is never ")
    assert found["commands"] == [
        {"machine": "web_0", "code": 3, "terminated": True, "killed_by": "", "starts": 1}
    ]


def test_a_failed_scenario_looks_failed_everywhere(program: list[str], tmp_path: Path) -> None:
    page, report, trace = (tmp_path / name for name in ("run.html", "junit.xml", "trace.jsonl"))
    files = ("--timeline", str(page), "--junit", str(report), "--record", str(trace))
    scenario = tmp_path / "late.yaml"
    text = scenarios.find("user-reboot").text
    scenario.write_text(text + "  - {event: restart, started: {ahead: 1h}}\n")
    result = typed("run", str(scenario), *files, "--", *program)
    assert result.exit_code == 1, result.output
    assert "nothing wrong" not in result.stdout, "the verdict is good, and the scenario failed"
    assert "scenario user-reboot: failed" in result.stdout
    assert ElementTree.parse(report).getroot().get("failures") == "1"
    drawn = page.read_text()
    later = tmp_path / "later.html"
    again = CliRunner().invoke(app, ["timeline", str(trace), "-o", str(later)])
    assert again.exit_code == 0, again.output
    for made in (drawn, later.read_text()):
        assert "nothing wrong" not in made
        _, _, below = made.partition("scenario user-reboot failed: 1 of ")
        assert below.index("restart is started, 1 h ") < below.index("web_0 ")
    assert judge.judge_files([trace]).ok


def test_all_scenarios_are_run_one_after_the_other(
    program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three stand for all, each of which is played elsewhere."""
    three = ["live-migration", "rolling-update", "user-reboot"]
    assert set(three) <= set(scenarios.names())
    monkeypatch.setattr(scenarios, "names", lambda: three)
    report, page, trace = (tmp_path / name for name in ("all.xml", "run.html", "run.jsonl"))
    files = ("--junit", str(report), "--timeline", str(page), "--record", str(trace))
    result = typed("run", "--all", *files, "--", *program)
    assert result.exit_code == 1, result.output
    _, _, rows = result.stdout.partition("SCENARIO ")
    count = len(scenarios.names())
    results = {line.split()[0]: line.split()[1] for line in rows.splitlines()[1 : 1 + count]}
    assert sorted(results) == scenarios.names()
    assert results["live-migration"] == "failed", "the program approves whatever is its own"
    assert results["user-reboot"] == "passed"
    failed = list(results.values()).count("failed")
    assert f"{count} scenarios: {count - failed} passed, {failed} failed" in result.stdout
    root = ElementTree.parse(report).getroot()
    assert [suite.get("name") for suite in root] == [f"forewarn.{n}" for n in scenarios.names()]
    assert root.get("tests") == str(sum(int(suite.get("tests", "0")) for suite in root))
    wrong = {suite.get("name", "")[9:] for suite in root if suite.get("failures") != "0"}
    assert wrong == {name for name, outcome in results.items() if outcome == "failed"}
    for name in scenarios.names():
        assert f"scenario {name}" in (tmp_path / f"run-{name}.html").read_text()
        assert judge.judge_files([tmp_path / f"run-{name}.jsonl"]).ok


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--all",), "needs a program"),
        (("user-reboot", "--all", "--", "true"), "'user-reboot'"),
        ((), "pass --all"),
        (("--all", "--each", "--", "true"), "scenario storm: at most 50"),
        (("--all", "--", "/nowhere/app"), "/nowhere/app: No such file"),
    ],
)
def test_a_wrong_selection_of_scenarios_is_refused(words: tuple[str, ...], problem: str) -> None:
    result = typed("run", *words)
    assert result.exit_code == 2
    assert problem in " ".join(result.output.replace("│", " ").split())
    assert "passed" not in result.output


def test_json_output_has_all_results_in_one_document() -> None:
    result = typed("run", "--all", "--wait", "1s", "--json", "--", "true")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert [item["scenario"] for item in report["scenarios"]] == scenarios.names()
    assert all("before it polled" in item["failures"][0] for item in report["scenarios"])


def test_a_command_runs_once_for_each_machine(program: list[str]) -> None:
    result = typed("run", "short-notice", "--each", "--json", "--", *program)
    found = json.loads(result.stdout)
    assert [one["machine"] for one in found["commands"]] == ["web_0", "web_1", "web_2"]
    other = json.loads(
        typed("run", "short-notice", "--as", "web_1,web_1", "--json", "--", *program).stdout
    )
    assert [one["machine"] for one in other["commands"]] == ["web_1"]
    assert re.match(r"line 22: .*repair .*web_0", other["failures"][0])


def test_an_unmodified_program_runs_with_the_services_address_and_clock(
    program: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    needs_root()
    try:
        fake_time.find_library()
    except NoFakeTime:
        require(None, "libfaketime (apt-get install libfaketime)")
    inside = ("--netns", "--fake-time", "--", *program, "http://169.254.169.254")
    result = typed("run", "user-reboot", *inside)
    assert result.exit_code == 0, result.output
    assert f"approving Reboot {START // 1_000_000 + 10}" in capfd.readouterr().out


def test_a_program_that_acts_shortly_before_its_event_is_on_time(tmp_path: Path) -> None:
    """It waits until there are three minutes left."""
    file = tmp_path / "app.py"
    file.write_text(
        APP.replace("in approved:", 'in approved and left(event["NotBefore"]) <= 180:').replace(
            "        return answer.read()",
            """\
        global now
        now = parsedate_to_datetime(answer.headers["Date"])
        return answer.read()
from email.utils import parsedate_to_datetime
def left(moment):
    return (parsedate_to_datetime(moment) - now).total_seconds()""",
        )
    )
    program = [sys.executable, "-S", str(file)]
    result = typed("run", "user-reboot", "--json", "--stop-before", "3m", "--", *program)
    assert result.exit_code == 0, result.output
    [course] = json.loads(result.stdout)["verdict"]["courses"]
    assert course["margin"] == 180


def test_in_real_time_durations_are_divided(program: list[str]) -> None:
    result = typed("run", "user-reboot", "--speed", "300", "--", *program)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run", "spot-evction"], 2, "'spot-eviction'?"),
        (["run", "storm", "--speed", "0"], 2, "the speed must"),
        (["run", "storm", "--clock", "sun"], 2, "'sun' is not "),
        (["run", "storm", "--clock", "virtual", "--speed", "60"], 2, "with a virtual clock"),
        (["run", "storm", "--junit", "/no/where.xml"], 2, "the directory /no"),
        (["run", "storm", "--timeline", "/no/where.html"], 2, "the directory /no"),
        (["run", "storm", "--junit", "/tmp"], 2, "/tmp is a "),
        (["run", "storm", "--clock", "real", "--fake-time", "--", "x"], 2, "--fake-time needs"),
        (["run", "storm", "--stop-before", "soon", "--", "x"], 2, "'soon'"),
        (["run", "storm", "--netns"], 2, "need a program"),
        (["run", "storm", "--as", "web_999", "--", "x"], 2, "machine 'web_999'"),
        (["run", "storm", "--each", "--", "true"], 2, "not 200"),
        (["run", "storm", "--timeline", "x.png"], 2, ".html or .txt"),
        (["run", "user-reboot", "--", "./no-such-program"], 2, "no-such-program: No such file"),
        (["show", "nothing-of-the-kind"], 1, "'nothing-of-the-kind'"),
        (["run", "user-reboot", "--", "true"], 1, "web_0 ended with 0"),
        (
            ["run", "user-reboot", "--wait", "100ms", "--", "sleep", "60"],
            1,
            "within 0.1 s",
        ),
    ],
)
def test_a_scenario_that_cannot_be_played_is_refused(
    words: list[str], code: int, says: str
) -> None:
    result = typed(*words)
    assert result.exit_code == code, result.output
    assert says in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("error", [RefusedError("not so"), Hung("nothing was done for 30 s")])
def test_a_refusal_by_the_service_is_one_line_and_exit_code_2(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("forewarn.testing.scenarios.runner._apply_fleet", refuse)
    result = typed("run", "user-reboot", "--", "true")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"forewarn: {error}")


def test_a_failing_command_ends_the_run_unless_keep_going_is_set(tmp_path: Path) -> None:
    file = tmp_path / "fragile.py"
    body = APP.replace(
        "    for event in events:\n", "    for event in events:\n        sys.exit(7)\n"
    )
    file.write_text(body)
    command = ["--", sys.executable, "-S", str(file)]
    result = typed("run", "user-reboot", *command)
    assert result.exit_code == 1
    assert len(re.findall("✗ the command .*web_0 .*7$", result.stdout, re.M)) == 2
    went_on = typed("run", "user-reboot", "--keep-going", *command)
    assert went_on.exit_code == 1
    assert "✓ restart is finished" in went_on.stdout


def test_a_command_that_has_succeeded_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "done.py"
    file.write_text(APP.replace("            approved.add", "            sys.exit(0)\n#"))
    found = scenarios.find("rolling-update")
    patience = 20.0
    program = ProgramRunner([sys.executable, "-S", str(file)], found.under_test)
    result = run_scenario(found, program=program, timeout=patience).check()
    assert [(one.code, one.terminated) for one in result.ended] == [(0, False)] * 3
    assert result.took < patience, "nobody's patience came to its end"


def test_a_command_that_does_not_end_is_killed_with_all_it_has_started(tmp_path: Path) -> None:
    stubborn = tmp_path / "stubborn.py"
    body = APP.replace("lambda *_: sys.exit(3)", "signal.SIG_IGN")
    child = "import subprocess\nchild = subprocess.Popen(['sleep', '300'])\n"
    body = body.replace(
        "while True:", f"{child}print('child', child.pid, flush=True)\nwhile True:", 1
    )
    stubborn.write_text(body)
    printed: list[str] = []
    program = ProgramRunner(
        [sys.executable, "-S", str(stubborn)],
        ["web_0"],
        grace=0.1,
        show=lambda _, line: printed.append(line),
    )
    result = run_scenario("user-reboot", program=program)
    assert [(one.code, one.terminated) for one in result.ended] == [(None, True)]
    pid = int(next(line for line in printed if line.startswith("child")).split()[1])
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_program_and_exits_130(
    program: list[str], how: signal.Signals
) -> None:
    argv = [sys.executable, "-m", "forewarn", "scenario", "run", "user-reboot"]
    argv += ["--clock", "real", "--", "sh", "-c", 'echo "$$"; exec "$@"', "sh", *program]
    process = Forked(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running = Running(process, argv)
    started = int(running.line())
    process.send_signal(how)
    assert running.wait() == 130
    assert any(line.startswith("interrupted; ") for line in running.stderr)
    assert not Path(f"/proc/{started}").exists()


def test_a_second_interrupt_kills_the_program(tmp_path: Path) -> None:
    """The second time in the seconds that the command has to end by itself."""
    pids = tmp_path / "pid"
    stubborn = (
        f"trap '' TERM; echo $$ > {pids}.new; mv {pids}.new {pids}; while :; do sleep 1; done"
    )
    program = ProgramRunner(["sh", "-c", stubborn], ["web_0"], grace=60)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Service(
            "groups: [{name: web, kind: scale-set, machines: [{name: web_0}]}]", sockets=True
        ) as service:
            program.start(service._session)
            until(pids.exists)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                program.end()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    until(lambda: gone(int(pids.read_text())))


def test_the_program_and_its_children_end_when_the_runner_is_killed(
    program: list[str],
) -> None:
    argv = [sys.executable, "-m", "forewarn", "scenario", "run", "user-reboot", "--speed", "20"]
    argv += ["--", "sh", "-c", 'sleep 300 & echo "$$ $!"; exec "$@"', "sh", *program]
    process = Forked(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running = Running(process, argv)
    started = [int(pid) for pid in running.line().split()]
    until(lambda: any("is announced" in line for line in running.stderr))
    process.kill()
    process.wait()
    until(lambda: all(gone(pid) for pid in started))


def test_without_a_command_a_scenario_is_played_to_any_client() -> None:
    argv = [sys.executable, "-m", "forewarn", "scenario", "run", "live-migration"]
    process = Forked(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running = Running(process, argv)
    try:
        ready = json.loads(running.line().removeprefix("ready "))
        url = f"{ready['metadata']}/metadata/scheduledevents?api-version=2020-07-01"
        request = urllib.request.Request(url, headers={"Metadata": "true"})
        seen: list[list[Any]] = []
        pause = threading.Event()

        def ended() -> bool:
            # In the end the scenario is over, and its service has stopped.
            with contextlib.suppress(OSError), urllib.request.urlopen(request) as answer:
                seen.append(json.load(answer)["Events"])
            pause.wait(EVERY)
            return process.poll() is not None

        until(ended)
        assert running.wait() == 0
        assert any(seen)
        assert not seen[-1]
        assert "scenario live-migration: passed" in "".join(running.stdout)
    finally:
        process.kill()
        process.wait()


def test_on_a_terminal_the_timeline_is_drawn_below_the_programs_output(program: list[str]) -> None:
    argv = [sys.executable, "-m", "forewarn", "scenario", "run", "short-notice", "--", *program]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="30")
        os.execv(argv[0], argv)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65_536)
        except OSError:  # nobody writes to it any more
            break
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    text = shown.decode()
    assert "approving Reboot" in text
    assert "Reboot ended" in text, "the lane of web_0"
    assert "scenario short-notice: passed" in text
