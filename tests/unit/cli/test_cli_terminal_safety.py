"""What a recording, a scenario file or a guest says is printed so that it acts upon no terminal."""

from __future__ import annotations

import json
import os
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.judge import judge_files
from forewarn.support.text import visible

T0 = 1_800_000_000.0
PATH = "/metadata/scheduledevents?api-version=2020-07-01"
ID = "AAAAAAAA-0000-4000-8000-000000000001"
# Clears the screen, sets the window's title, ends the line, overstrikes, turns the direction of
# writing (in each of the ways there are), and is half a character.
HOSTILE = "\x1b[2J\x1b]0;x\x07\r\n\b\x7f\x9b31m\x85\u202e\u2066\u200f\u200e\u061c\u2028\ud800"
DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def event(**changed: Any) -> dict[str, Any]:
    return {
        "EventId": ID,
        "EventStatus": "Scheduled",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_0"],
        "NotBefore": "Fri, 15 Jan 2027 08:15:00 GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": 9,
        **changed,
    }


def exchange(t: float, *events: dict[str, Any], **changed: Any) -> dict[str, Any]:
    document = {"DocumentIncarnation": 1 + int(t - T0), "Events": list(events)}
    return {
        "kind": "exchange",
        "t": t,
        "asked": t - 0.01,
        "machine": f"web{HOSTILE}",
        "method": "GET",
        "target": PATH,
        "headers": [["Metadata", "true"], ["User-Agent", f"curl{HOSTILE}"]],
        "status": 200,
        "answer_headers": [["Server", f"nginx{HOSTILE}"], ["x-ms-request-id", HOSTILE]],
        "answer": json.dumps(document, separators=(",", ":")),
        **changed,
    }


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """In which everything that anybody may say is said by somebody with bad intentions."""
    hostile = event(Resources=[f"web{HOSTILE}"], Description=HOSTILE)
    lines = [
        {
            "kind": "fleet",
            "t": T0 - 1,
            "groups": {f"g{HOSTILE}": {"kind": "scale-set"}},
            "machines": {f"web{HOSTILE}": {"group": f"g{HOSTILE}", "addresses": [HOSTILE]}},
        },
        exchange(T0, hostile),
        exchange(T0 + 1, {**hostile, "Description": "other", "EventType": HOSTILE}),
        exchange(T0 + 2, {**hostile, "Description": f"x{HOSTILE}"}),
        exchange(T0 + 3, event(EventId=HOSTILE)),
        exchange(T0 + 4, method=f"GET{HOSTILE}", target=f"{HOSTILE}/scheduled", status=404),
        exchange(T0 + 5, method="POST", body=json.dumps({"StartRequests": [{"EventId": ID}]})),
        exchange(
            T0 + 6,
            method="POST",
            status=400,
            body=json.dumps({"StartRequests": [{"EventId": HOSTILE}]}),
        ),
        exchange(T0 + 7, fault=f"f{HOSTILE}"),
        {"kind": "impact", "t": T0 + 8, "event": ID, "type": HOSTILE, "machines": [HOSTILE]},
        {"kind": "approval", "t": T0 + 8, "event": ID, "by": HOSTILE},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def dangers(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in DANGEROUS and c != "\n"}


@pytest.mark.parametrize(
    "command",
    [
        ["conformance"],
        ["conformance", "--json"],
        ["verdict"],
        ["verdict", "--json"],
        ["timeline"],
        ["scenario", "from"],
        ["scenario", "show"],
        ["scenario", "check"],
    ],
    ids=" ".join,
)
def test_control_characters_of_files_are_escaped(recording: Path, command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, str(recording)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.output.strip(), "there is something to look at"
    assert dangers(result.output) == set()


def test_a_judgement_is_safe_to_print(recording: Path) -> None:
    judgement = judge_files([recording])
    assert dangers(judgement.render()) == set()
    assert "\\x1b" in judgement.render()


def test_every_control_character_is_made_visible() -> None:
    every = "".join(map(chr, [*range(0x20), 0x7F, *range(0x80, 0xA0), 0x061C, 0x200E, 0x200F]))
    bidirectional = "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
    assert dangers(visible(every + bidirectional + "\ud800\udfff\u2028\u2029")) == set()
    assert visible("Grüße, 世界 ✓ 🙂") == "Grüße, 世界 ✓ 🙂"


def through_a_pipe(path: Path, tmp_path: Path, ask: Callable[[Path], Any]) -> Any:
    """What comes of it if the file can be read only once, from beginning to end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()), daemon=True)
    writer.start()
    found = ask(pipe)
    writer.join(10)
    assert not writer.is_alive()
    return found


@pytest.mark.parametrize("command", ["conformance", "verdict", "timeline"])
def test_a_recording_may_come_through_a_pipe(recording: Path, tmp_path: Path, command: str) -> None:
    invoke = CliRunner().invoke
    plain = invoke(app, [command, str(recording)])
    piped = through_a_pipe(recording, tmp_path, lambda pipe: invoke(app, [command, str(pipe)]))
    assert piped.output.replace("pipe", "trace.jsonl") == plain.output
    assert piped.exit_code == plain.exit_code


def test_documents_as_json_may_come_through_a_pipe(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text('{"DocumentIncarnation":1,"Events":[]}')
    piped = through_a_pipe(
        text, tmp_path, lambda pipe: CliRunner().invoke(app, ["conformance", str(pipe)])
    )
    assert "no promise broken (1 exchange" in piped.output
