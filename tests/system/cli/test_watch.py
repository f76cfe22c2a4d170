"""`forewarn watch` as it is typed: lines, commands per change, what is there, a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.testing import Group, Service
from helpers.forked_cli import FOREWARN, Forked
from helpers.process import Running
from helpers.serve_process import environment
from helpers.waiting import LIMIT, until


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture
def web(service: Service) -> Group:
    return service.scale_set("web", 3)


def typed(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["watch", *words])
    return done.exit_code, done.stdout, done.stderr


def test_watch_once_prints_the_current_events(web: Group) -> None:
    mine, other = web[0].restart(), web[1].freeze(duration=9)
    code, out, _ = typed("--endpoint", web[0].url, "--once")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["*", "Reboot"],
        ["Freeze", "Scheduled"],
    ]
    code, out, _ = typed("--endpoint", web[0].url, "--once", "--json", "--mine")
    assert (code, [json.loads(line)["event"]["id"] for line in out.splitlines()]) == (0, [mine.id])
    code, out, _ = typed("--endpoint", web[0].url, "--once", "--min-freeze", "10s")
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["*", "Reboot"]]
    code, out, _ = typed("--endpoint", web[1].url, "--once", "--json", "--min-freeze", "9s")
    assert [json.loads(line)["event"]["id"] for line in out.splitlines()] == [mine.id, other.id]
    code, out, _ = typed("--endpoint", web[2].url, "--once", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["event"]["id"], line["mine"]) for line in lines] == [
        (mine.id, False),
        (other.id, False),
    ]


def test_watch_once_waits_for_the_command_of_each_event(web: Group, tmp_path: Path) -> None:
    web[0].restart()
    kept = tmp_path / "kept"
    command = f"sh -c 'cat > {kept}; exit 3'"
    code, _, err = typed("--endpoint", web[0].url, "--once", "--json", "--exec", command)
    assert code == 0
    assert json.loads(kept.read_text())["change"] == "appeared"
    assert re.fullmatch(r"sh for appeared [0-9A-F]{8} .*3\n", err)


def test_an_absent_endpoint_or_wrong_usage_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.client.pace.ABSENT", 0.0)
    code, out, err = typed("--endpoint", "http://127.0.0.1:1", "--once")
    assert (code, out) == (1, "")
    assert err.startswith("forewarn: http://127.0.0.1:1 ")
    assert err.endswith("connection was refused\n")
    for words, says in (
        (("--endpoint", "https://x"), "plain HTTP"),
        (("--exec", "no-such-program --x"), "no-such-program"),
        (("--exec", "'"), "No closing quotation"),
        (("--exec", ""), "no program"),
        (("--min-freeze", "soon"), "'soon'"),
    ):
        code, out, err = typed(*words)
        assert (code, out) == (2, "")
        assert says in re.sub(r"[│\s]+", " ", err)


@pytest.fixture
def watched(web: Group, tmp_path: Path) -> Iterator[Running]:
    """With a command that says what it was told, and fails on a start."""
    script = tmp_path / "hook"
    script.write_text(
        "#!/bin/sh\nread line\n"
        'echo "ran $FOREWARN_CHANGE $FOREWARN_EVENT_TYPE $FOREWARN_MINE"\n'
        'test "$FOREWARN_CHANGE" != started || exit 7\n'
        'test "$FOREWARN_CHANGE" != withdrawn || sleep 600\n'
    )
    script.chmod(0o755)
    argv = [*FOREWARN, "watch", "--json", "--exec", str(script)]
    process = Forked(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(tmp_path), **web[0].env},
    )
    running = Running(process, argv)
    yield running
    running.stop()


def until_printed(running: Running, words: str) -> None:
    """On standard error."""
    until(lambda: words in "".join(running.stderr), f"'{words}'")


def test_watch_prints_each_change_and_runs_a_command_for_it(
    service: Service, web: Group, watched: Running
) -> None:
    def change(kind: str, mine: bool) -> None:
        """A line, and then what the command says."""
        output = watched.message()
        assert (output["change"], output["mine"]) == (kind, mine)
        type = output["event"]["type"]
        assert watched.line() == f"ran {kind} {type} {str(mine).lower()}"

    event = web[0].restart()
    change("appeared", True)
    service.faults.add("error", machine="web_0", times=3)
    event.approve()
    change("started", True)  # before the trouble if it was being waited for, else after it
    until_printed(watched, "trouble: ")
    until_printed(watched, "recovered: ")
    event.finish()
    change("finished", True)
    other = web[1].freeze()
    change("appeared", False)
    other.cancel()
    change("withdrawn", False)  # whose command does not end by itself
    watched.process.send_signal(signal.SIGINT)
    assert watched.wait() == 0
    output = "".join(watched.stderr)
    assert output.count("trouble: ") == output.count("recovered: ") == 1
    assert re.search(r"hook for started [0-9A-F]{8} .*7\n", output)
    assert "Traceback" not in output


def test_watch_ends_when_its_output_is_closed(web: Group, tmp_path: Path) -> None:
    web[0].restart()
    process = Forked(
        [*FOREWARN, "watch", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environment(tmp_path), **web[0].env},
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["change"] == "appeared"
    process.stdout.close()  # as `| head -1` does
    assert process.wait(LIMIT) == 0, "though nothing happened since"


def test_a_terminal_shows_a_table_that_ticks(service: Service, web: Group, tmp_path: Path) -> None:
    web[0].restart()
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "forewarn", "watch"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**environment(tmp_path), **web[0].env, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(slave)
    shown = ""

    def read_until(words: str) -> None:
        nonlocal shown
        while words not in shown:
            assert select.select([master], [], [], LIMIT)[0], shown[-2_000:]
            shown += os.read(master, 65_536).decode("utf-8", "replace")

    try:
        read_until("in 14 min")
        read_until("appeared   Reboot")
        assert "long-polling" in shown or "polling" in shown
        service.clock.advance("10m")
        web[1].freeze()
        read_until("in 4 min")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)
