"""`forewarn record` and what becomes of a recording, as typed at a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.testing import Service
from forewarn.testing.recording import read
from helpers.forked_cli import Forked
from helpers.waiting import LIMIT


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(sockets=True) as service:
        service.scale_set("web", 3)
        yield service


class Recording:
    """The command, whose words on standard error are read as they come."""

    def __init__(self, *args: str) -> None:
        argv = [sys.executable, "-m", "forewarn", "record", *args, "--every", "0.05s"]
        env = {**os.environ, "http_proxy": "http://127.0.0.1:1", "PYTHONUNBUFFERED": "1"}
        self.process = Forked(argv, stderr=subprocess.PIPE, text=True, env=env)
        self.lines: list[str] = []  # read so far

    def until(self, words: str) -> str:
        assert self.process.stderr is not None
        limit = threading.Timer(LIMIT, self.process.kill)
        limit.start()
        try:
            for line in self.process.stderr:
                self.lines.append(line)
                if words in line:
                    return str(line).rstrip("\n")
        finally:
            limit.cancel()
        read = "".join(self.lines)
        raise AssertionError(f"no line with '{words}' within {LIMIT:g} s; read:\n{read}")

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        assert self.process.stderr is not None
        with self.process.stderr as rest:
            self.rest = rest.read()
        return self.process.wait(LIMIT)


def test_a_recording_outlives_a_kill_and_becomes_a_scenario(
    service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "seen.jsonl"
    first = Recording(service.url("web_0"), "-o", str(path))
    first.until("document 1, no events")
    event = service.schedule(
        "Reboot", "web_1", description="Host server is undergoing maintenance."
    )
    first.until("Reboot")
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    with path.open("ab") as file:
        file.write(b'{"kind":"exchange","t":18000')  # as a kill may leave it
    second = Recording(service.url("web_0"), "-o", str(path))
    second.until("appending to")
    second.until("document 2, 1 event")
    service.clock.advance("15m")
    assert second.until("is Started").startswith(f"Reboot {event.id[:8]} of web_1")
    service.clock.advance("10m")
    second.until("is gone")
    assert second.end(signal.SIGINT) == 0
    assert "polls" in second.rest

    found = read([path])
    assert found.unreadable == 0
    assert found.lines[-1]["kind"] == "end"
    assert {line["machine"] for line in found.lines if line["kind"] == "exchange"} == {"web_0"}

    runner = CliRunner()
    judged = runner.invoke(app, ["conformance", str(path)])
    assert judged.exit_code == 0, judged.output
    assert "no promise broken" in judged.output
    made = tmp_path / "made.yaml"
    assert runner.invoke(app, ["scenario", "from", str(path), "-o", str(made)]).exit_code == 0
    checked = runner.invoke(app, ["scenario", "check", str(made)])
    assert "scenario seen: steps: 1, expectations: 0" in checked.output, made.read_text()

    with Service() as again:
        lines = []
        again.play_scenario(path, client=lambda: lines.append(again.document("web_0"))).check()
    stages = {
        (e["EventType"], e["EventStatus"], e["Description"]) for d in lines for e in d["Events"]
    }
    words = "Host server is undergoing maintenance."
    assert stages == {("Reboot", "Scheduled", words), ("Reboot", "Started", words)}


def test_an_endpoint_that_is_not_there_is_recorded_too(tmp_path: Path) -> None:
    path = tmp_path / "nobody.jsonl"
    result = CliRunner().invoke(
        app,
        ["record", "-o", str(path), "--for", "0.2s", "--every", "0.1s"],
        env={"FOREWARN_METADATA": "http://127.0.0.1:1"},
    )
    assert result.exit_code == 1
    assert "http://127.0.0.1:1 never " in result.output
    lines = read([path]).lines
    assert {line["trouble"] for line in lines if line["kind"] == "exchange"} == {"refused"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["https://169.254.169.254"], "plain"),
        (["http://127.0.0.1:1", "--version", "latest"], "'latest'"),
        (["http://127.0.0.1:1", "--every", "0s"], "0.05 s"),
        (["http://127.0.0.1:1", "--for", "ever"], "ever"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_writes_nothing(
    args: list[str], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    result = CliRunner().invoke(app, ["record", *args, "-o", str(path)], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert says in result.output
    assert not path.exists()


def test_a_document_is_judged_and_made_a_scenario_of_standard_input(tmp_path: Path) -> None:
    document = (
        '{"DocumentIncarnation":192,"Events":[{"EventId":"28512AF7-C957-4500-9BC4-'
        '842D6FB531E4","EventStatus":"Scheduled","EventType":"Reboot","ResourceType":'
        '"VirtualMachine","Resources":["sample_4"],"NotBefore":"Wed, 24 Jan 2018 21:20:44 GMT"}]}'
    )
    runner = CliRunner()
    (text := tmp_path / "document.json").write_text(document)
    judged = runner.invoke(app, ["conformance", str(text)])
    assert judged.exit_code == 0, judged.output
    assert "no promise broken (1 exchange, 0 machines, 1 event, 0 impacts)" in judged.output
    made = runner.invoke(app, ["scenario", "from", "-"], input=document)
    assert made.exit_code == 0
    assert "machine: sample_4" in made.output
    assert "note: document 1 (line 1): " in made.output
    text.write_text("nothing")
    refused = runner.invoke(app, ["scenario", "from", str(text)])
    assert refused.exit_code == 1
    assert "document.json: " in refused.output
