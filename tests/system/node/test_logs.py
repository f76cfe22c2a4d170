"""The log of a real process: each change and each call a line, whatever is said to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.schema.core import ScheduleRequest
from helpers.forked_cli import Forked
from helpers.process import Running
from helpers.waiting import LIMIT, until

FLEET = """
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0, addresses: [127.0.0.1]}
      - {name: web_1, update_domain: 1, addresses: [127.0.0.2]}
"""


@contextmanager
def serving(directory: Path, **settings: Any) -> Iterator[tuple[Running, ControlClient]]:
    (directory / "fleet.yaml").write_text(FLEET)
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
    config = directory / "forewarn.toml"
    config.write_text('fleet = "fleet.yaml"\nstate = "s.db"\n' + "".join(lines))
    ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    argv = [sys.executable, "-m", "forewarn", "serve", "--config", str(config), *ports]
    pipe = subprocess.PIPE
    env = {**os.environ, "XDG_RUNTIME_DIR": str(directory)}
    running = Running(Forked(argv, stdout=pipe, stderr=pipe, text=True, env=env), argv)
    try:
        urls = json.loads(running.line().partition(" ")[2])
        yield running, ControlClient(urls["control"])
    finally:
        running.stop()


def output(running: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in list(running.stderr)]


def about(running: Running, **fields: Any) -> list[dict[str, Any]]:
    """The lines that have these fields."""
    return [
        line
        for line in output(running)
        if all(key in line and line[key] == value for key, value in fields.items())
    ]


def test_changes_and_calls_are_lines_that_a_program_can_read(tmp_path: Path) -> None:
    with serving(tmp_path) as (running, client):
        event = client.schedule(ScheduleRequest(type="Reboot", machines=["web_0"]))
        client.events()  # which only looks
        with pytest.raises(ControlError):
            client.approve("nothing\nof\x1b[2Jthe kind")
        until(lambda: len(about(running, method="POST")) == 2)
        (scheduled,) = about(running, event_id=event.id)
        assert scheduled["status"] == "Scheduled"
        assert (scheduled["group"], scheduled["machines"]) == ("web", ["web_0"])
        assert scheduled["by"] == "operator"
        carried_out, refused = about(running, method="POST")
        assert (carried_out["by"], carried_out["path"]) == ("operator", "/v1/events")
        assert carried_out["status"] // 100 == 2
        assert carried_out["request_id"]
        assert carried_out["seconds"] >= 0
        assert (refused["status"], refused["level"]) == (404, "info")
        assert refused["event"] != carried_out["event"]
        assert about(running, method="GET") == []
        assert [line for line in output(running) if line["level"] == "error"] == []
        for line in output(running):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", line["timestamp"])
            assert line["level"] in ("info", "warning", "error")


def test_a_console_log_has_dates_and_can_become_json_while_it_runs(tmp_path: Path) -> None:
    with serving(tmp_path, log="console") as (running, client):
        client.schedule(ScheduleRequest(type="Reboot", machines=["web_0"]))
        until(lambda: any("Scheduled Reboot of web_0" in line for line in list(running.stderr)))
        (line,) = [line for line in running.stderr if "Scheduled Reboot" in line]
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  web: Scheduled Reboot of web_0 ", line)
        config = tmp_path / "forewarn.toml"
        config.write_text(config.read_text().replace('"console"', '"json"'))
        running.process.send_signal(signal.SIGHUP)
        until(lambda: running.stderr[-1].startswith("{"))
        assert json.loads(running.stderr[-1])["level"] == "info"


def test_at_level_warning_only_warnings_and_errors_are_logged(tmp_path: Path) -> None:
    with serving(tmp_path, log_level="warning") as (running, client):
        client.schedule(ScheduleRequest(type="Reboot", machines=["web_0"]))
        assert client.events()
        running.stop()
        assert [line for line in output(running) if line["level"] == "info"] == []


def test_a_full_disk_or_closed_pipe_for_the_log_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    argv = [sys.executable, "-m", "forewarn", "serve", "--fleet", "fleet.yaml", "--state", "s.db"]
    argv += ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    with Path("/dev/full").open("w") as full:
        process = Forked(
            argv,
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        )
    assert process.stdout is not None
    with process.stdout as out:
        urls = json.loads(out.readline().partition(" ")[2])
        client = ControlClient(urls["control"])
        for _ in range(20):
            event = client.schedule(ScheduleRequest(type="Reboot", machines=["web_0"]))
            client.cancel(event.id)
        process.terminate()
        assert process.wait(LIMIT) == 0
