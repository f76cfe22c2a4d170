"""An agent inside a machine: what its hooks are given; what happens while it is away, after it was
killed with all its commands, and when a command hangs. The service is the real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.testing import Service
from helpers.agent_forker import pids_under
from helpers.forked_agent import EVERY_STAGE, AgentForks, Bench, living
from helpers.waiting import until

RULE = '[[rule]]\nname = "all"\nhooks = ["hook"]\n'


@pytest.fixture(scope="module")
def lives() -> Iterator[AgentForks]:
    with living() as lives:
        yield lives


@pytest.fixture
def ended(lives: AgentForks, tmp_path: Path) -> Iterator[AgentForks]:
    """Agents end with the test, and so do commands, which would go on by themselves."""
    yield lives
    lives.end_all()
    for pid in pids_under(tmp_path):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


def gated(bench: Bench) -> tuple[Path, str]:
    """A command that says that it runs, and waits until somebody writes into a pipe."""
    gate = bench.directory / "gate"
    os.mkfifo(gate)
    script = f"echo $FOREWARN_STAGE begun >> {bench.effects_file}; read line < {gate};"
    return gate, f"{script} echo $FOREWARN_STAGE ended >> {bench.effects_file}"


def alive(pid: str) -> bool:
    """Whoever has inherited it may not have taken notice of its end yet."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_hook_gets_the_event_and_a_directory_of_its_own(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    machine = service.machine("contract")
    bench = Bench(tmp_path, machine.url)
    command = "cat > stdin; env > environment; pwd"
    bench.says(
        f'{RULE}approve = "when-done"\n[hook.hook]\nprepare = ["sh", "-c", "{command}"]\n'
        'undo = ["sh", "-c", "cp stdin environment ../../../.."]\n'
    )
    event = machine.schedule("Reboot", description="Two\nlines", duration=9)
    life = ended.begin(bench.config, environment={"FOREWARN_KEPT": "yes"})
    until(lambda: event.status == "Started", "it is approved")
    assert event.approved_by == "contract"
    event.finish()
    until(bench.closed, "it is done")
    output = json.loads((tmp_path / "stdin").read_text())
    left = output.pop("seconds_left")
    assert 50 < left <= 60
    when = "2027-01-15T08:15:00Z"
    assert output == {
        "hook": "hook",
        "stage": "prepare",
        "attempt": 1,
        "rule": "all",
        "machine": "contract",
        "mine": True,
        "event": {
            "id": event.id,
            "type": "Reboot",
            "status": "Scheduled",
            "resources": ["contract"],
            "not_before": when,
            "description": "Two\nlines",
            "source": "Platform",
            "duration": 9,
        },
    }
    environment = (tmp_path / "environment").read_text().splitlines()
    (room,) = [line for line in environment if line.startswith("FOREWARN_STATE=")]
    assert set(environment) > {
        "FOREWARN_HOOK=hook",
        "FOREWARN_STAGE=prepare",
        "FOREWARN_ATTEMPT=1",
        "FOREWARN_RULE=all",
        "FOREWARN_MACHINE=contract",
        "FOREWARN_MINE=true",
        f"FOREWARN_EVENT_ID={event.id}",
        "FOREWARN_EVENT_TYPE=Reboot",
        "FOREWARN_EVENT_STATUS=Scheduled",
        "FOREWARN_EVENT_SOURCE=Platform",
        "FOREWARN_EVENT_RESOURCES=contract",
        f"FOREWARN_EVENT_NOT_BEFORE={when}",
        "FOREWARN_EVENT_DURATION=9",
        f"FOREWARN_SECONDS_LEFT={int(left)}",
        "FOREWARN_KEPT=yes",
    }
    assert life.reported("hook ended")[0]["output"] == room.partition("=")[2], (
        "that is where it runs"
    )


def test_a_hanging_command_delays_no_other_and_is_stopped_when_its_event_is_over(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    machine = service.machine("hangs")
    bench = Bench(tmp_path, machine.url)
    _, script = gated(bench)
    bench.says(
        '[[rule]]\ntype = "Reboot"\nhooks = ["slow"]\napprove = "when-done"\n'
        '[[rule]]\nname = "freezes"\nhooks = ["quick"]\napprove = "when-done"\n'
        f'[hook.slow]\nprepare = ["sh", "-c", "{script}"]\nundo = EFFECT\ntimeout = "10m"\n'
        "[hook.quick]\nprepare = EFFECT\n"
    )
    ended.begin(bench.config)
    hung = machine.schedule("Reboot")
    until(lambda: bench.has("prepare begun"), "it hangs")
    other = machine.schedule("Freeze")
    until(lambda: other.status == "Started", "the other event is prepared for and approved")
    assert hung.approved_by is None
    hung.cancel()
    until(lambda: bench.has("slow undo"), "it is undone")
    assert not bench.has("prepare ended")


def test_commands_continue_while_no_agent_runs_and_are_adopted_by_the_next(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    machine = service.machine("away")
    bench = Bench(tmp_path, machine.url)
    gate, script = gated(bench)
    bench.says(
        f'{RULE}approve = "when-done"\n'
        f'[hook.hook]\nprepare = ["sh", "-c", "{script}"]\nundo = EFFECT\n'
    )
    event = machine.schedule("Reboot")
    life = ended.begin(bench.config)
    until(lambda: bench.has("prepare begun"), "it has begun")
    assert life.end()["status"] == 0
    again = ended.begin(bench.config)
    until(lambda: again.reported("identity")[1:], "the second is there")
    again.end()
    gate.write_text("go on\n")
    until(lambda: bench.has("prepare ended"), "it ends, with no agent at all")
    ended.begin(bench.config)
    until(lambda: event.status == "Started", "it is approved")
    assert bench.effects() == ["prepare begun", "prepare ended"]


def test_an_event_that_ended_while_no_agent_ran_is_undone_by_its_own_hooks(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    """Also with a configuration that knows nothing of them any more."""
    machine = service.machine("changed")
    bench = Bench(tmp_path, machine.url)
    bench.says(f"{RULE}[hook.hook]\n{EVERY_STAGE}\n")
    event = machine.schedule("Reboot")
    life = ended.begin(bench.config)
    until(lambda: life.reported("hook ended"), "it is prepared")
    life.end()
    event.cancel()
    bench.says("")
    ended.begin(bench.config)
    until(bench.closed, "it is done")
    assert bench.effects() == ["hook prepare", "hook undo", "hook withdrawn"]


def test_commands_killed_with_the_agent_are_run_again_and_undone_once(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    """As by the death of the machine."""
    machine = service.machine("together")
    bench = Bench(tmp_path, machine.url)
    gate, script = gated(bench)
    bench.says(f'{RULE}[hook.hook]\nprepare = ["sh", "-c", "{script}"]\nundo = EFFECT\n')
    event = machine.schedule("Reboot")
    life = ended.begin(bench.config)
    until(lambda: bench.has("prepare begun"), "it has begun")
    life.end(signal.SIGKILL)
    at_work = pids_under(tmp_path)
    assert len(at_work) == 2, "the runner and its command"
    for pid in at_work:
        os.kill(pid, signal.SIGKILL)
    ended.begin(bench.config)
    until(lambda: bench.effects() == ["prepare begun"] * 2, "it is run again")
    gate.write_text("go on\n")
    until(lambda: bench.has("prepare ended"), "it has ended")
    event.cancel()
    until(bench.closed, "it is done")
    assert bench.effects().count("hook undo") == 1


def test_a_command_that_lost_its_runner_is_ended_before_it_is_run_again(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    machine = service.machine("orphan")
    bench = Bench(tmp_path, machine.url)
    _, script = gated(bench)
    bench.says(f'{RULE}[hook.hook]\nprepare = ["sh", "-c", "echo $$ >> pids; {script}"]\n')
    machine.schedule("Reboot")
    ended.begin(bench.config)
    until(lambda: bench.has("prepare begun"), "it has begun")
    (begun,) = tmp_path.glob("state/cases/*/runs/*/begun")
    os.kill(json.loads(begun.read_text())["runner"], signal.SIGKILL)
    until(lambda: bench.effects() == ["prepare begun"] * 2, "it is run again")
    (pids,) = tmp_path.glob("state/hooks/*/hook/pids")
    first, second = pids.read_text().split()
    assert not alive(first)
    assert alive(second)


def test_an_approval_that_is_not_answered_is_sent_again(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    machine = service.machine("unanswered")
    bench = Bench(tmp_path, machine.url).says('[[rule]]\napprove = "when-done"\n')
    service.faults.add("error", machine="unanswered", method="POST", times=2)
    event = machine.schedule("Reboot")
    ended.begin(bench.config)
    until(lambda: event.status == "Started", "it is approved")


def test_preparing_begins_a_lead_time_before_not_before(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    machine = service.machine("lead")
    bench = Bench(tmp_path, machine.url)
    bench.says(f'{RULE}when = "5m"\n[hook.hook]\n{EVERY_STAGE}\n')
    life = ended.begin(bench.config)
    event = machine.schedule("Reboot")
    until(lambda: life.reported("event seen"), "it is seen")
    service.clock.advance("9m59s")
    other = machine.schedule("Freeze")
    until(lambda: life.reported("event seen")[1:], "the other is seen")
    assert bench.effects() == []
    service.clock.advance("2s")
    until(lambda: bench.effects() == ["hook prepare"], "its time has come")
    event.cancel()
    other.cancel()
    until(bench.closed, "both are done")
    assert bench.effects() == ["hook prepare", "hook undo", "hook withdrawn", "hook withdrawn"]


@pytest.mark.parametrize(("lead", "seconds"), [("5m", 300), ("400s", 400)])
def test_an_agent_on_a_virtual_clock_prepares_at_its_lead_time(
    ended: AgentForks, tmp_path: Path, lead: str, seconds: int
) -> None:
    with Service(stop_before="400s") as service:
        machine = service.machine("lead")
        bench = Bench(tmp_path, machine.url)
        command = f"echo $FOREWARN_SECONDS_LEFT >> {bench.effects_file}"
        bench.says(
            f'{RULE}when = "{lead}"\napprove = "when-done"\n'
            f'[hook.hook]\ntimeout = "1h"\nprepare = ["sh", "-c", "{command}"]\n'
        )
        life = ended.begin(bench.config)
        machine.wait_for_poll()
        event = machine.schedule("Reboot")
        service.clock.play("1h", reaction_time=60)
        assert event.approved_by == "lead"
        assert event.started_at is not None
        assert 0 < (event.not_before - event.started_at).total_seconds() <= seconds
        until(lambda: life.reported("event handled"), "it is over")
        (left,) = map(int, bench.effects())
        assert seconds - 10 < left < seconds
        service.verdict().check()


def test_a_dry_run_reports_hooks_without_running_them(
    ended: AgentForks, service: Service, tmp_path: Path
) -> None:
    machine = service.machine("dry")
    bench = Bench(tmp_path, machine.url)
    bench.says(f'{RULE}approve = "when-done"\n[hook.hook]\n{EVERY_STAGE}\n')
    life = ended.begin(bench.config, dry=True)
    event = machine.schedule("Reboot")
    until(lambda: life.reported("would approve"), "it would approve")
    event.cancel()
    until(lambda: life.reported("event handled"), "it is over")
    assert event.status == "Withdrawn"
    assert event.approved_by is None
    assert bench.effects() == []
    assert not (tmp_path / "state").exists()
    output = [(line["stage"], line["command"][0]) for line in life.reported("would run")]
    assert output == [("prepare", "sh"), ("undo", "sh"), ("withdrawn", "sh")]
    assert (
        not life.reported("approved") + life.reported("hook started") + life.reported("hook ended")
    )


def test_the_command_becomes_the_agent_and_a_second_one_is_refused(
    service: Service, tmp_path: Path
) -> None:
    """As a user types it."""
    machine = service.machine("typed")
    bench = Bench(tmp_path, machine.url).says("")
    argv = [sys.executable, "-m", "forewarn", "agent", "--config", str(bench.config)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as agent:
        assert agent.stdout
        assert agent.stdout.readline() == (
            f'ready {{"machine":"typed","endpoint":"{machine.url}"}}\n'
        )
        lean = [sys.executable, "-I", "-m", "forewarn.agent", str(bench.config)]
        words = Path(f"/proc/{agent.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        assert words == lean
        second = subprocess.run(lean, capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert second.stdout == ""
        note, refusal = second.stderr.splitlines()
        assert "there is no [[rule]]" in note
        assert refusal.startswith("forewarn: another agent ")
        assert f"{tmp_path}/state" in refusal
        agent.terminate()
        assert agent.wait() == 0
