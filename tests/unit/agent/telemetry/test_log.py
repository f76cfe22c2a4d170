"""What the agent says: a line for each happening, without secrets, for programs and for people."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator

import pytest

from forewarn.agent.telemetry import log
from forewarn.agent.telemetry.log import AgentLog, secrets_in
from forewarn.client.events import from_timestamp


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Pipe:
    """One that nobody has read from yet, as standard error."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.stream = os.fdopen(writing, "w")

    def read(self) -> str:
        return os.read(self.reading, 1_000_000).decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self.reading)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def line(what: str, **facts: object) -> dict[str, object]:
    stream = io.StringIO()
    AgentLog(stream=stream)(what, **facts)
    (printed,) = stream.getvalue().splitlines()
    found: dict[str, object] = json.loads(printed)
    return found


def test_an_entry_is_one_line_with_the_field_names_of_the_service() -> None:
    printed = line(
        "hook ended", event="E1", resources=("web_0",), output="a\nb", ok=True, code=None
    )
    assert str(printed.pop("timestamp")).endswith("Z")
    assert printed == {
        "level": "info",
        "event": "hook ended",
        "event_id": "E1",
        "machines": ["web_0"],
        "output": "a\nb",
        "ok": True,
    }


@pytest.mark.parametrize(
    ("what", "facts", "level"),
    [
        ("event seen", {}, "info"),
        ("hook ended", {"ok": True}, "info"),
        ("hook ended", {"ok": False}, "warning"),
        ("problem", {"why": "x"}, "warning"),
        ("hook given up", {}, "error"),
    ],
)
def test_failures_have_a_higher_level(what: str, facts: dict[str, object], level: str) -> None:
    assert line(what, **facts)["level"] == level


def test_on_a_terminal_the_log_is_readable_text() -> None:
    terminal = Terminal()
    AgentLog(stream=terminal)("problem", about="identity", why="it's away", at=from_timestamp(0))
    printed = terminal.getvalue()
    assert printed.endswith(
        'Z  warning: problem  about=identity  why="it\'s away"  at=1970-01-01 00:00:00+00:00\n'
    )


@pytest.mark.parametrize("form", ["json", "text"])
def test_text_from_others_is_escaped(form: str) -> None:
    stream = io.StringIO()
    AgentLog(form, stream=stream)("event seen", description="x\n{}\x1b[2J\u2028\u202e")
    (printed,) = stream.getvalue().splitlines()
    assert not {"\x1b", "\u2028", "\u202e"} & set(printed)


def test_secrets_among_options_are_removed() -> None:
    options = {
        "webhook": {"url": "https://example.org/T0/s3cr3t", "headers": {"X-Key": "abcdefgh"}},
        "notify": {"urls": ["slack://tokens/here"], "urls_file": "/etc/forewarn/urls"},
        "haproxy": {"socket": "/run/haproxy/admin.sock", "server": ["web/web1"]},
    }
    secrets = secrets_in(options)
    assert secrets == {"https://example.org/T0/s3cr3t", "abcdefgh", "slack://tokens/here"}
    stream = io.StringIO()
    AgentLog(stream=stream, secrets=secrets)(
        "hook ended",
        output="POST https://example.org/T0/s3cr3t: 403, key abcdefgh",
        resources=["slack://tokens/here"],
        why="https://ann:hunter2@example.net fw_0123abcd_" + "x" * 43,
    )
    printed = json.loads(stream.getvalue())
    assert printed["output"] == "POST …: 403, key …"
    assert printed["machines"] == ["…"]
    assert printed["why"] == "https://…@example.net fw_0123abcd_…"


def test_output_of_commands_keeps_its_end_and_other_values_their_beginning() -> None:
    long = "a" * 9_000 + "b" * 9_000
    printed = line("hook ended", output=long, why=long)
    assert printed["output"] == "…" + "b" * (log.MAX_OUTPUT - 1)
    assert printed["why"] == "a" * (log.MAX_VALUE - 1) + "…"


def test_only_the_journal_gets_priorities(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.fstat(pipe.stream.fileno())
    write = AgentLog(stream=pipe.stream)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
    write("hook given up")
    assert pipe.read().startswith('<3>{"timestamp"')
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + 1}")
    write("hook given up")
    assert pipe.read().startswith('{"timestamp"')


def test_a_log_that_is_not_read_does_not_block_and_reports_dropped_lines(pipe: Pipe) -> None:
    write = AgentLog(stream=pipe.stream)
    for number in range(100):
        write("problem", about=str(number), why="x" * 1_500, output="y" * 1_000, where="z" * 2_000)
    printed = pipe.read()
    write("problem resolved")
    lines = [json.loads(line) for line in (printed + pipe.read()).splitlines()]
    *kept, missing, last = lines  # every one of them whole
    assert [one["about"] for one in kept] == [str(number) for number in range(len(kept))]
    assert "dropped" in missing["event"]
    assert missing["lines"] == 100 - len(kept) > 0
    assert last["event"] == "problem resolved"


def test_a_closed_log_does_not_block(pipe: Pipe) -> None:
    write = AgentLog(stream=pipe.stream)
    os.close(pipe.reading)
    write("problem", about="x", why="y")
    pipe.reading = os.open(os.devnull, os.O_RDONLY)
