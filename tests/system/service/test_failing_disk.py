"""A whole service on a disk that refuses to sync, or whose log somebody removes, or whose state has
a second name: nobody is told what is not so, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.control.client.client import ControlClient
from forewarn.control.schema.core import ScheduleRequest
from forewarn.core.access import Role
from forewarn.service.access import offline
from forewarn.service.access.tokens import NewToken
from forewarn.wire.requests import write_approval
from helpers import failing_disk
from helpers.forked_cli import run
from helpers.process import Running
from helpers.waiting import LIMIT, until

FOREWARN = [sys.executable, "-m", "forewarn"]
DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"
PORTS = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
NOTICE = 7200.0  # seconds
OPENING_SYNCS = 3  # of a state that was closed properly
EVERY_SYNC_WHILE_FAIL_EXISTS = (
    f"{failing_disk.SYNC}:-1:1:5"  # every sync fails with EIO while there is a file .fail
)


class Service:
    def __init__(self, home: Path, *words: str) -> None:
        self.disk = home / "disk"
        self.disk.mkdir(exist_ok=True)
        self.state = self.disk / "state.db"
        argv = [*FOREWARN, "dev", "--clock", "virtual", "--state", str(self.state), *PORTS, *words]
        env = failing_disk.environment(self.disk, EVERY_SYNC_WHILE_FAIL_EXISTS)
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**env, "XDG_RUNTIME_DIR": str(home)},
        )
        self.running = Running(process, argv)
        urls = json.loads(self.running.line().removeprefix("ready "))
        self.control = urls["control"]
        self.operator = ControlClient(self.control)
        self.guest = self.operator.machine("web_0").metadata_url

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        trigger = self.disk.with_name(self.disk.name + ".fail")
        trigger.touch()
        yield
        trigger.unlink()

    def asked(self, method: str, url: str, body: bytes | None = None) -> int | None:
        """The status, None if there was no answer."""
        headers = {"Metadata": "true", "Content-Type": "application/json"}
        request = urllib.request.Request(url, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except (http.client.RemoteDisconnected, ConnectionResetError):
            return None

    def events(self) -> dict[str, str]:
        with urllib.request.urlopen(
            urllib.request.Request(self.guest + DOCUMENT, headers={"Metadata": "true"}),
            timeout=LIMIT,
        ) as answer:
            shown = json.loads(answer.read())["Events"]
        return {event["EventId"]: event["EventStatus"] for event in shown}

    def schedule(self) -> str:
        wanted = ScheduleRequest(type="Reboot", machines=["web_0"], notice=NOTICE)
        return self.operator.schedule(wanted).id

    def kill(self) -> None:
        self.running.process.send_signal(signal.SIGKILL)
        self.running.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def begin(*words: str) -> Service:
        started.append(Service(tmp_path, *words))
        return started[-1]

    yield begin
    for service in started:
        if service.running.process.poll() is None:
            service.running.stop()


def raising(service: Service, _: str) -> tuple[str, str, bytes | None]:
    body = {"type": "Freeze", "machines": ["web_0"], "notice": NOTICE}
    return "POST", f"{service.control}/v1/events", json.dumps(body).encode()


def approving(service: Service, event: str) -> tuple[str, str, bytes | None]:
    return "POST", service.guest + DOCUMENT, write_approval([event])


def cancelling(service: Service, event: str) -> tuple[str, str, bytes | None]:
    return "POST", f"{service.control}/v1/events/{event}/cancel", None


ASKED = {"a raise": raising, "an approval": approving, "a cancellation": cancelling}


def test_a_commit_that_could_not_be_synced_is_not_answered_and_keeps_its_outcome(
    start: Callable[..., Service],
) -> None:
    service = start()
    assert service.events() == {}
    event = service.schedule()
    for what, asking in ASKED.items():
        method, url, body = asking(service, event)
        with service.failing():
            assert service.asked(method, url, body) is None, what
            assert service.running.wait() == os.EX_IOERR
        reported = "".join(service.running.stderr)
        assert "outcome of " in reported
        assert "Traceback" not in reported
        service = start()
        assert "synced again" in "".join(service.running.stderr)
        before = service.events()
        # Whatever it is now, it stays: also if power is cut, and not only the process killed.
        service.kill()
        failing_disk.cut_power(service.disk)
        service = start()
        assert service.events() == before
        if event not in service.events() or service.events()[event] == "Started":
            event = service.schedule()


def test_a_command_whose_commit_cannot_be_synced_reports_an_unknown_outcome(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    state = disk / "state.db"

    async def create() -> None:
        async with offline.opened(state, print) as (tokens, _):
            await tokens.create(NewToken(name="alice", role=Role.ADMIN), by="operator")

    asyncio.run(create())
    plan = f"{failing_disk.SYNC}:{OPENING_SYNCS + 1}:0:{errno.EIO}"
    argv = [*FOREWARN, "clock", "accept", "--state", str(state)]
    env = failing_disk.environment(disk, plan)  # preloaded, so that it cannot be a fork of ours
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, env=env)
    assert done.returncode == 1
    assert "unknown whether" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_that_is_removed_while_it_serves_loses_nothing(start: Callable[..., Service]) -> None:
    service = start()
    events = {service.schedule()}
    service.state.with_name("state.db-wal").unlink()
    until(lambda: "a new log" in "".join(service.running.stderr))
    events.add(service.schedule())
    assert service.asked("GET", f"{service.control}/readyz") == 200
    service.kill()
    again = start()
    again.events()
    assert {event.id for event in again.operator.events()} == events


def test_a_second_service_on_a_hard_link_is_refused(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    service = start()
    event = service.schedule()
    other = tmp_path / "elsewhere" / "second.db"
    other.parent.mkdir()
    os.link(service.state, other)
    argv = [*FOREWARN, "serve", "--state", str(other), *PORTS]
    done = run(argv, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1
    process = f"process {service.running.process.pid} "
    assert done.stderr.startswith(f"forewarn: {other} is in use ")
    assert f"{process}as {service.state}, " in done.stderr
    assert done.stderr.count("\n") == 1
    for words in (
        ["backup", "--state", str(other), str(tmp_path / "backup")],
        ["token", "list", "--state", str(other)],
        ["upgrade", "--state", str(other)],
    ):
        refused: Any = run([*FOREWARN, *words], capture_output=True, text=True, timeout=LIMIT)
        assert refused.returncode == 1, words
        assert process in refused.stderr, words
        assert str(service.state) in refused.stderr, words
    assert {file.name for file in other.parent.iterdir()} == {"second.db"}
    made = tmp_path / "backup"
    words = ["backup", "--state", str(service.state), str(made)]
    assert run([*FOREWARN, *words], capture_output=True, timeout=LIMIT).returncode == 0
    assert service.operator.event(event).id == event
