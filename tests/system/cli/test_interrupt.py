"""Ctrl-C in commands that run for long: they end at once, without a traceback."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.testing import SAMPLE, Service
from helpers.forked_cli import FOREWARN, Forked
from helpers.waiting import LIMIT

ENDED = 0  # of a command that is usually ended like this, and has done its work
INTERRUPTED = 130
AGENT = '[agent]\nendpoint = "{endpoint}"\nstate = "{directory}/state"\n'

# The words of each command, a part of what it prints once it works, and its exit code.
COMMANDS = {
    "dev": (
        "dev --metadata 127.0.0.1:0 --control 127.0.0.1:0 --state {directory}/state",
        "ready {",
        ENDED,
    ),
    "watch": ("watch --endpoint {endpoint} --all", "appeared", ENDED),
    "record": ("record {endpoint} --output {directory}/recording", "document 1", ENDED),
    "agent": ("agent --dry-run --config {directory}/agent.toml", "ready {", ENDED),
    "feed": ("feed --after 0 --url {control}", "host-added", INTERRUPTED),
    "rollout watch": ("rollout watch {rollout} --url {control}", "running", INTERRUPTED),
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        service.schedule("Freeze", "web_0", notice="1h")
        yield service


def rollout(service: Service) -> str:
    words = ["rollout", "start", "--type", "Reboot", "--group", "sql", "--json"]
    result = CliRunner().invoke(app, [*words, "--url", service.control_url])
    id: str = json.loads(result.stdout)["id"]
    return id


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_interrupted_ends_without_a_traceback(
    service: Service, tmp_path: Path, command: str
) -> None:
    words, works, code = COMMANDS[command]
    endpoint = service.url("web_0")
    (tmp_path / "agent.toml").write_text(AGENT.format(endpoint=endpoint, directory=tmp_path))
    line = words.format(
        directory=tmp_path,
        endpoint=endpoint,
        control=service.control_url,
        rollout=rollout(service) if "{rollout}" in words else "",
    )
    process = Forked(
        [*FOREWARN, *line.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PYTHONUNBUFFERED": "1", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert process.stdout is not None
    with process:
        output = ""
        while works not in output and (text := process.stdout.readline()):
            output += text
        assert works in output, output
        process.send_signal(signal.SIGINT)
        output += process.stdout.read()
    assert process.returncode == code, output
    assert "Traceback" not in output


@pytest.mark.parametrize("words", ["clock advance 1h", "clock play 1h", "status"])
def test_a_command_that_waits_for_the_service_is_interrupted(tmp_path: Path, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(LIMIT)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = Forked(
            [*FOREWARN, *words.split(), "--url", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1)  # it has sent its request
            process.send_signal(signal.SIGINT)
            output = process.communicate()[0]
    assert (process.returncode, output.strip()) == (INTERRUPTED, "")
