"""Started without standard input, output or error, a command opens nothing of its own in their
place: else a line of the log would go into the state, or to a guest."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from forewarn.testing import Service
from helpers.polled_service import NEVER_LONGER
from helpers.process import end
from helpers.serve_process import environment, write_settings
from helpers.waiting import LIMIT, until

FOREWARN = [sys.executable, "-m", "forewarn"]
POLL = "/metadata/scheduledevents?api-version=2020-07-01"


def descriptors(pid: int) -> dict[int, str]:
    links = Path(f"/proc/{pid}/fd")
    return {fd: str((links / str(fd)).readlink()) for fd in (0, 1, 2)}


@contextlib.contextmanager
def started(
    words: Sequence[str], closed: Sequence[int], directory: Path, **more: str
) -> Iterator[int]:
    """The command with these descriptors closed and the others at files."""

    def close() -> None:
        for fd in closed:
            os.close(fd)

    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [*FOREWARN, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=close,
            env=environment(directory, **more),
        )
    try:
        yield process.pid
    finally:
        if process.poll() is None:
            end([os.pidfd_open(process.pid)], signal.SIGTERM, patience=20)
        process.kill()
        process.wait()


def urls(directory: Path, pid: int) -> dict[str, Any]:
    """Where a service answers, by the note that it leaves when it is ready."""
    note = directory / "forewarn" / f"{pid}.json"

    def left() -> bool:
        assert Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z", "it has ended"
        return note.exists() and bool(note.read_bytes())

    until(left)
    found = json.loads(note.read_bytes())
    assert isinstance(found, dict)
    return found


def ask(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Metadata": "true", "Content-Type": "application/json"}
    asked = urllib.request.Request(url, data, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=NEVER_LONGER) as answer:
        return json.load(answer)


def children(pid: int) -> list[int]:
    """All that the process has started, and what those have."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


def assert_harmless(pid: int, closed: Sequence[int]) -> None:
    own = descriptors(pid)
    assert [own[fd] for fd in closed] == ["/dev/null"] * len(closed)
    open_links = list(own.values())
    for child in children(pid):
        # It has ended: only root may see that it has no files any more.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            open_links += descriptors(child).values()
    for link in open_links:
        assert link == "/dev/null" or link.startswith("pipe:") or link.endswith("/output")


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_the_service_answers_and_its_state_stays_whole(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    settings = write_settings(tmp_path, "log_level = 'debug'\n")
    with started(["serve", "--config", str(settings)], closed, tmp_path) as pid:
        service = urls(tmp_path, pid)
        assert ask(service["metadata"] + POLL)["Events"] == []
        event = {"type": "Freeze", "machines": ["web-0"]}
        id = ask(service["control"] + "/v1/events", event)["id"]
        assert [e["EventId"] for e in ask(service["metadata"] + POLL)["Events"]] == [id]
        assert_harmless(pid, closed)
    state = tmp_path / "state/forewarn.db"
    with contextlib.closing(sqlite3.connect(state)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert b"forewarn: " not in state.read_bytes()
    assert b'"level":"info"' not in state.read_bytes()


def test_dev_answers_without_standard_streams(tmp_path: Path) -> None:
    words = ["dev", "--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    with started(words, (0, 1, 2), tmp_path) as pid:
        assert ask(urls(tmp_path, pid)["metadata"] + POLL)["Events"] == []
        assert_harmless(pid, (0, 1, 2))


def test_the_agent_prepares_without_standard_streams(tmp_path: Path) -> None:
    with Service(real_time=True) as service:
        machine = service.scale_set("web", 1)[0]
        config = tmp_path / "agent.toml"
        config.write_text(
            f'[agent]\nstate = "{tmp_path}/agent"\nendpoint = "{machine.url}"\n'
            '[[rule]]\nname = "all"\nhooks = ["touch"]\n'
            f'[hook.touch]\nprepare = ["/usr/bin/touch", "{tmp_path}/prepared"]\n'
        )
        (tmp_path / "agent").mkdir(mode=0o700)
        with started(["agent", "--config", str(config)], (0, 1, 2), tmp_path) as pid:
            service.schedule("Reboot", machine.name)
            until((tmp_path / "prepared").exists)
            assert_harmless(pid, (0, 1, 2))


def test_a_program_is_run_without_standard_streams(tmp_path: Path) -> None:
    """The program itself has what the command was given, or nothing."""
    with Service(real_time=True, sockets=True) as service:
        service.scale_set("web", 1)
        script = f"readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 > {tmp_path}/links"
        script += f"; touch {tmp_path}/done; sleep 60"
        words = ["run", "--no-netns", "--", "sh", "-c", script]
        env = {"FOREWARN_URL": service.control_url}
        with started(words, (0, 1, 2), tmp_path, **env) as pid:
            until((tmp_path / "done").exists)
            links = (tmp_path / "links").read_text().split()
            assert links[0] == links[2] == "/dev/null"
            assert_harmless(pid, (0, 1, 2))


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_short_command_succeeds_without_standard_streams(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    def close() -> None:
        for fd in closed:
            os.close(fd)

    ended = subprocess.run(
        [*FOREWARN, "config", "show"], env=environment(tmp_path), preexec_fn=close, timeout=LIMIT
    )
    assert ended.returncode == 0
