"""Rollouts, as an operator types them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.cli.commands import rollout_watch
from forewarn.control.client.client import ControlClient, Unreachable
from forewarn.control.operations.operation import Operation
from forewarn.node.settings import config, read
from forewarn.testing import SAMPLE, Service
from helpers.forked_cli import Forked
from helpers.process import Running
from helpers.waiting import LIMIT


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True, gates={"well": (sys.executable, "-c", "")}) as service:
        yield service


def typed(service: Service, *words: str) -> Result:
    result = CliRunner().invoke(app, ["rollout", *words, "--url", service.control_url])
    service._session.settle()
    return result


def reported(service: Service, *words: str) -> Any:
    result = typed(service, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_rollout_is_followed_from_its_plan_to_its_end(service: Service) -> None:
    what = ("--type", "reboot", "--group", "web", "--group", "sql", "--at-once", "2")
    how = ("--window", "daily 08:00-20:00 Europe/Berlin", "--bake", "5m", "--gate-command", "well")
    plan = typed(service, "plan", *what, *how, "--lasts", "10m")
    assert plan.exit_code == 0, plan.output
    assert "Fri 2027-01-15 09:15 CET (08:15Z)" in plan.stdout
    assert "estimated end: Fri 2027-01-15 10:30 CET (09:30Z)" in plan.stdout
    assert reported(service, "list") == []

    id = reported(service, "start", *what, *how, "--description", "New kernel.")["id"]
    shown = reported(service, "show", id[:6].lower())
    assert shown["state"] == "running"
    assert shown["steps_by_state"] == {"waiting": 3, "announced": 2}
    steps = reported(service, "show", id, "--all")
    assert [(s["lane"], s["update_domain"], s["state"]) for s in steps] == [
        ("web", 0, "announced"),
        ("web", 1, "waiting"),
        ("sql", 0, "announced"),
        ("sql", 1, "waiting"),
        ("sql", 2, "waiting"),
    ]
    assert service.document("web_1")["Events"][0]["Description"] == "New kernel."
    service.clock.advance("2h")
    assert reported(service, "show", id)["state"] == "done"
    listed = typed(service, "list")
    assert "5 of 5" in listed.stdout
    assert re.search(r"group web,\s+group sql", listed.stdout)


def test_explain_lists_each_wait_with_its_times_and_what_ends_it(service: Service) -> None:
    service.get("web_0")
    id = reported(service, "start", "--type", "Reboot", "--group", "web")["id"]
    printed = typed(service, "explain", id).stdout
    assert "0 of 2 steps" in printed
    assert "- event: web: domain 0 (web_0, web_2): " in printed
    assert "- notice: " in printed
    assert "since 2027-01-15 08:00:00Z, until 2027-01-15 08:15:00Z" in printed
    assert re.search("unblocked by .*group 'web'", printed)
    assert typed(service, "pause", id, "--reason", "it is late").exit_code == 0
    printed = typed(service, "explain", id).stdout
    assert re.search("- paused: .*operator .*it is late", printed)
    assert f"rollout resume {id[:8]}" in printed


def test_a_rollout_is_paused_once_resumed_once_and_aborted(service: Service) -> None:
    id = reported(service, "start", "--type", "Reboot", "--group", "web")["id"]
    paused = typed(service, "pause", id)
    assert re.search("^note: events .* continue: ", paused.stderr, re.M)
    assert typed(service, "pause", id).exit_code == 1
    assert typed(service, "resume", id).exit_code == 0
    again = typed(service, "resume", id)
    assert again.exit_code == 1
    assert "neither paused" in again.stderr
    asked = typed(service, "abort", id)
    assert (asked.exit_code, id[:8] in asked.stderr) == (2, True)
    assert typed(service, "abort", id, "--reason", "wrong kernel", "--yes").exit_code == 0
    assert service.document("web_0")["Events"] == []
    shown = typed(service, "show", id).stdout
    assert "wrong kernel" in shown


@pytest.mark.parametrize("verb", ["plan", "start"])
def test_a_rollout_over_nothing_is_wrong_usage(service: Service, verb: str) -> None:
    result = typed(service, verb, "--type", "Reboot")
    assert result.exit_code == 2
    assert "--group, --label, --machine, --host or --host-label" in result.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--type", "Rebot", "--group", "web"), "event type 'Rebot'"),
        (("--type", "Reboot", "--group", "wbe"), "no group 'wbe'"),
        (("--type", "Reboot", "--label", "=x"), "valid label name"),
        (("--type", "Reboot", "--label", ""), "empty selector"),
        (("--type", "Reboot", "--group", "web", "--window", "sat"), "'sat'"),
        (("--type", "Reboot", "--group", "web", "--notice", "1m"), "--short-notice"),
        (("--type", "Reboot", "--group", "web", "--gate-command", "sh"), "gate command 'sh'"),
        (("--type", "Reboot", "--group", "web", "--gate-timeout", "1m"), "needs a gate"),
    ],
)
def test_an_invalid_rollout_is_refused_in_one_line(
    service: Service, words: tuple[str, ...], complaint: str
) -> None:
    for verb in ("plan", "start"):
        result = typed(service, verb, *words)
        assert result.exit_code == 1
        assert complaint in result.stderr
        assert len(result.stderr.splitlines()) == 1


def crowded(count: int) -> str:
    """A fleet with so many hosts, each with three machines of two groups; on every tenth host two
    update domains of one group meet."""
    hosts = ", ".join(f"{{name: h{i}, labels: {{row: r{i % 3}}}}}" for i in range(count))
    machines = [
        f"{{name: web-{i}, update_domain: {i % 5}, host: h{i}}}, "
        f"{{name: more-{i}, update_domain: {(i + (i % 10 == 0)) % 5}, host: h{i}}}"
        for i in range(count)
    ]
    others = [f"{{name: db-{i}, update_domain: {i % 5}, host: h{i}}}" for i in range(count)]
    return (
        f"hosts: [{hosts}]\ngroups:\n"
        f"  - {{name: web, kind: availability-set, machines: [{', '.join(machines)}]}}\n"
        f"  - {{name: db, kind: availability-set, machines: [{', '.join(others)}]}}\n"
    )


def test_a_rollout_over_many_hosts_is_one_screen_and_drills_down() -> None:
    with Service(crowded(60), sockets=True) as service:
        hosts: tuple[str, ...] = ("--type", "Reboot", "--host", "*")
        refused = typed(service, "start", *hosts)
        assert refused.exit_code == 1
        lines = refused.stderr.splitlines()
        assert len(lines) == 1 + 6 + 1
        assert lines[1].split()[:2] == ["h0", "web"]
        assert "6 hosts" in lines[-1]
        assert "--conflicts split" in lines[-1]
        plan = typed(service, "plan", *hosts).stdout
        assert "180 machines, 2 groups, 60 hosts" in plan
        assert re.search("refused: .* 6 hosts", plan)
        assert len(plan.splitlines()) < 20

        hosts += ("--conflicts", "split", "--at-once", "30", "--canary", "h7", "--ticket", "CHG-7")
        plan = typed(service, "plan", *hosts).stdout
        assert "waves" in plan
        assert "estimated end: 2027-01-15" in plan
        assert len(plan.splitlines()) < 20
        assert len(typed(service, "plan", *hosts, "--all").stdout.splitlines()) > 66
        assert "h7" in typed(service, "plan", *hosts, "--lane", "h7").stdout

        id = reported(service, "start", *hosts)["id"]
        service.clock.advance("26m")
        shown = typed(service, "show", id)
        assert "wave          2 of 2" in shown.stdout
        assert "30 announced" in shown.stdout
        assert "expected end  2027-01-15" in shown.stdout
        assert "CHG-7" in shown.stdout
        assert len(shown.stdout.splitlines()) < 25
        assert f"forewarn rollout show {id[:8]} --all" in shown.stdout
        explained = typed(service, "explain", id).stdout
        assert re.search(r"^- event: 30 \(h0, h1, h10 .*27 .*\): announced", explained, re.M)
        assert len(explained.splitlines()) < 25
        assert "- event: h3: " in typed(service, "explain", id, "--host", "h3").stdout
        assert len(reported(service, "show", id, "--state", "waiting")) == 35
        assert typed(service, "skip", id, "--lane", "h59", "--reason", "old").exit_code == 0
        assert reported(service, "show", id, "--host", "h59")[0]["state"] == "skipped"
        assert typed(service, "skip", id).exit_code == 1


def test_an_unknown_rollout_is_refused_by_every_verb(service: Service) -> None:
    for verb in ("show", "watch", "pause", "resume", "abort", "explain"):
        result = typed(service, verb, "ABCD")
        assert result.exit_code == 1
        assert "no rollout 'ABCD'" in result.stderr


def test_watching_ends_with_the_rollout_and_prints_how_it_ended(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever watches looks again and again; here minutes pass between two looks."""
    monkeypatch.setattr(rollout_watch, "pause", lambda: service.clock.advance("20m"))
    done = reported(service, "start", "--type", "Reboot", "--group", "web")["id"]
    watched = typed(service, "watch", done)
    assert watched.exit_code == 0
    lines = watched.stdout.splitlines()
    assert lines[0].startswith("running 0/2  web: domain 0 (web_0, web_2)")
    assert lines[-1] == "done 2/2"
    assert len(lines) == len(set(lines))
    monkeypatch.undo()
    gone = reported(service, "start", "--type", "Reboot", "--group", "web")["id"]
    assert typed(service, "abort", gone, "--yes").exit_code == 0
    assert typed(service, "watch", gone).exit_code == 1


def test_on_a_terminal_there_are_bars_for_the_whole_and_for_what_is_in_progress(
    service: Service,
) -> None:
    words = ("--type", "Reboot", "--group", "web", "--group", "sql", "--group", "shop")
    id = reported(service, "start", *words, "--at-once", "2")["id"]
    service.clock.advance("30m")
    found = ControlClient(service.control_url).rollout(id)
    out = StringIO()
    Console(file=out, width=120, force_terminal=False).print(rollout_watch.picture(found))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith(f"Reboot rollout {id} ")
    assert all(f"group {name}" in lines[0] for name in ("web", "sql", "shop"))
    assert lines[1].split()[0] == "all"
    assert "2/7" in lines[1]
    assert lines[2] == "3 waiting, 2 announced, 2 done"
    assert any(line.startswith("2 (web, sql): announced") for line in lines)
    assert any(re.search(r"shop: waiting, .* 2 ", line) for line in lines)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('well = ["./nothing-here"]', "gate 'well':"),
        ('"no good" = ["/bin/true"]', "gate 'no good':"),
        ("well = []", "gate 'well':"),
    ],
)
def test_serve_refuses_an_invalid_gate(tmp_path: Path, line: str, complaint: str) -> None:
    settings = tmp_path / "forewarn.toml"
    settings.write_text(f"[gates]\n{line}\n")
    result = CliRunner().invoke(app, ["serve", "--config", str(settings)])
    assert result.exit_code == 1
    assert complaint in result.stderr


def test_serve_finds_a_gates_program_as_seen_from_the_file(tmp_path: Path) -> None:
    program = tmp_path / "well"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    settings = tmp_path / "forewarn.toml"
    settings.write_text('[gates]\nwell = ["./well", "-v"]\n')
    made = config(read(settings))
    assert made.gates == {"well": (str(program), "-v")}


def test_dev_refuses_an_invalid_gate() -> None:
    for printed in ("well", "well=", "well=/nothing/here", 'well="'):
        result = CliRunner().invoke(app, ["dev", "--gate", printed])
        assert result.exit_code in (1, 2)
        assert "--gate" in result.stderr


def _on_a_terminal(argv: list[str]) -> str:
    """What it shows on one, until it ends well."""
    ours, theirs = pty.openpty()
    try:
        process = Forked(argv, stdout=theirs, stdin=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # nobody holds the other end any more
            while block := os.read(ours, 65_536):
                shown += block
        _, printed = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, printed
        return shown.decode()
    finally:
        os.close(ours)


def test_a_watcher_retries_while_the_service_does_not_answer(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = typed(service, "start", "--type", "Reboot", "--group", "jumpbox", "--json")
    id = json.loads(start.stdout)["id"]
    looks = 0

    honest = ControlClient.call

    def now_and_then(self: ControlClient, operation: Operation[Any], *given: Any) -> Any:
        nonlocal looks
        looks += 1
        if 2 <= looks <= 4:
            raise Unreachable("no service answers")
        return honest(self, operation, *given)

    monkeypatch.setattr(ControlClient, "call", now_and_then)
    monkeypatch.setattr(rollout_watch, "pause", lambda: service.clock.advance("20m"))
    watched = typed(service, "watch", id)
    assert watched.exit_code == 0
    assert watched.stdout.splitlines()[-1] == "done 1/1"
    assert watched.stderr.count("retrying") == 1


def test_a_watcher_in_a_process_of_its_own_follows_a_rollout_to_its_end() -> None:
    """The whole thing for real: a service in real time, far too fast, and somebody watching."""
    argv = [sys.executable, "-m", "forewarn", "dev", "--speed", "1000"]
    argv += ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    argv += ["--gate", f"well='{sys.executable}' -c pass"]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    running = Running(process, argv)
    try:
        url = json.loads(running.line().removeprefix("ready "))["control"]
        start = ["rollout", "start", "--type", "Reboot", "--group", "sql", "--gate-command", "well"]
        started = CliRunner().invoke(app, [*start, "--json", "--url", url])
        assert started.exit_code == 0, started.output
        id = json.loads(started.stdout)["id"]
        watched = subprocess.run(
            [sys.executable, "-m", "forewarn", "rollout", "watch", id, "--url", url],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert watched.returncode == 0, watched.stderr
        assert watched.stdout.splitlines()[-1] == "done 3/3"
        assert "all" in _on_a_terminal([*argv[:3], "rollout", "watch", id, "--url", url])
    finally:
        running.stop()
