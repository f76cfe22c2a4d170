"""Open files, of which the system has only so many: as many connections as there is room for."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forewarn.metadata.endpoint.limits import OPEN_FILES
from helpers.polls import (
    GET,
    LAST,
    ODD,
    limit_hits,
    real_time,
    send_poll,
)
from helpers.process import Running
from helpers.raw_http import RawConnection, exchange

FLEET = "groups: [{name: one, kind: standalone, machines: [{name: one, addresses: [127.0.0.1]}]}]"


@contextlib.contextmanager
def served(tmp_path: Path, files: int, *more: str) -> Iterator[tuple[Running, dict[str, Any]]]:
    """A service in a process of its own that may open so many files."""
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "x.toml").write_text("\n".join(['fleet = "fleet.yaml"', *more]))
    argv = [sys.executable, "-m", "forewarn", "serve", "--config", "x.toml"]
    argv += ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        argv,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    running = Running(process, argv)
    try:
        yield running, json.loads(running.line().removeprefix("ready "))
    finally:
        running.stop()


def place_of(urls: dict[str, Any]) -> tuple[str, int]:
    host, _, port = urls["metadata"].removeprefix("http://").partition(":")
    return host, int(port)


def test_there_are_no_more_connections_than_the_system_has_files_for(tmp_path: Path) -> None:
    with served(tmp_path, 300, "max_connections_per_machine = 500") as (process, urls):
        place = place_of(urls)
        for poll in (GET, LAST):  # known from here on, and so answered without being admitted
            exchange(place, poll)
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(RawConnection(place)) for _ in range(150)]
            assert {send_poll(line).status for line in held} == {200}
            for _ in range(10):
                assert exchange(place, ODD).status == 503
            assert exchange(place, LAST).status == 200
            assert {send_poll(line).status for line in held} == {200}
        assert limit_hits(urls["control"])["max_connections"] == 10
    assert any(re.search("300 open files, .*150 connections", line) for line in process.stderr)


def cpu(pid: int) -> float:
    """Seconds of work so far."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(int(tick) for tick in ticks) / 100


def test_without_free_descriptors_callers_wait_and_the_service_is_idle(tmp_path: Path) -> None:
    with served(tmp_path, 4_000, "max_connections_per_machine = 500") as (process, urls):
        place, pid = place_of(urls), process.process.pid
        exchange(place, GET)
        with RawConnection(place) as calm, contextlib.ExitStack() as stack:
            assert send_poll(calm).status == 200
            open_now = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now + 5, 4_000))
            held = [stack.enter_context(RawConnection(place)) for _ in range(40)]
            for line in held:
                line.send(GET)
            before, since = cpu(pid), real_time()
            pause = threading.Event()
            while real_time() - since < 1.5:
                assert send_poll(calm).status == 200, "whoever is there already is served"
                pause.wait(0.1)
            assert cpu(pid) - before < 0.8, "it does not try again and again"
            assert [line.silent() for line in held].count(True) >= 30
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (4_000, 4_000))
            assert {line.answer().status for line in held} == {200}, "all are served at last"
        assert limit_hits(urls["control"])[OPEN_FILES] >= 1
