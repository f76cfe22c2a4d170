"""What goes wrong around a service at night, and must not stop it or make it lie."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.schema.core import AdvanceRequest, ScheduleRequest
from forewarn.metadata.endpoint.limits import Limits
from forewarn.testing import SAMPLE, Service
from helpers.forked_cli import Forked, run
from helpers.waiting import LIMIT

FOREWARN = [sys.executable, "-m", "forewarn"]
ANY_PORT = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"


class Night:
    """A process of its own, and the two sides that talk to it."""

    def __init__(self, directory: Path, *words: str, stderr: Any = subprocess.DEVNULL) -> None:
        self.process = Forked(
            [*FOREWARN, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(directory)},
        )
        assert self.process.stdout is not None
        ready, _, rest = self.process.stdout.readline().partition(" ")
        assert ready == "ready"
        self.urls: dict[str, str] = json.loads(rest)
        self.operator = ControlClient(self.urls["control"])

    def get(self, machine: str) -> Any:
        url = self.operator.machine(machine).metadata_url
        request = urllib.request.Request(f"{url}{DOCUMENT}", headers={"Metadata": "true"})
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return json.loads(answer.read())

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(LIMIT)


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    night = Night(
        tmp_path, "dev", "--clock", "virtual", "--state", str(tmp_path / "s.db"), *ANY_PORT
    )
    yield night
    if night.process.poll() is None:
        night.end()


@pytest.fixture(scope="module")
def long_night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """For those who leave it as they found it, but for the hour."""
    night = Night(tmp_path_factory.mktemp("night"), "dev", "--clock", "virtual", *ANY_PORT)
    yield night
    assert night.end() == 0


def test_a_log_that_nobody_reads_any_more_stops_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    night = Night(tmp_path, "dev", "--clock", "virtual", *ANY_PORT, stderr=writer)
    os.close(writer)
    os.close(reader)
    for machine in ("web_0", "sql-0"):
        assert night.get(machine)["Events"] == []
        night.operator.schedule(ScheduleRequest(type="Freeze", machines=[machine]))
    night.operator.advance(AdvanceRequest(by=900))
    for machine in ("web_0", "sql-0"):
        assert night.get(machine)["Events"][0]["EventStatus"] == "Started"
    assert night.end() == 0


def test_an_acknowledged_approval_survives_kill_9(night: Night, tmp_path: Path) -> None:
    night.get("web_0")
    event = night.operator.schedule(ScheduleRequest(type="Reboot", machines=["web_0"]))
    night.operator.approve(event.id)
    night.end(signal.SIGKILL)
    again = Night(
        tmp_path, "dev", "--clock", "virtual", "--state", str(tmp_path / "s.db"), *ANY_PORT
    )
    (shown,) = again.get("web_0")["Events"]
    assert (shown["EventId"], shown["EventStatus"]) == (event.id, "Started")
    assert again.end() == 0


def test_a_state_in_use_is_refused_under_another_name_too(night: Night, tmp_path: Path) -> None:
    (tmp_path / "other.db").symlink_to(tmp_path / "s.db")
    words = ["dev", "--state", str(tmp_path / "other.db"), *ANY_PORT]
    second = run([*FOREWARN, *words], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"process {night.process.pid}" in second.stderr


def test_nothing_is_acknowledged_once_the_state_has_been_deleted(
    night: Night, tmp_path: Path
) -> None:
    night.get("web_0")
    (tmp_path / "s.db").unlink()
    with pytest.raises(ControlError, match="has not happened"):
        night.operator.schedule(ScheduleRequest(type="Reboot", machines=["web_0"]))
    assert night.get("web_0") == {"DocumentIncarnation": 1, "Events": []}  # polls go on


@pytest.mark.parametrize("by", [1e300, -1.0, 3e11])
def test_a_clock_cannot_be_advanced_beyond_its_range(long_night: Night, by: float) -> None:
    before = long_night.operator.clock().now
    with pytest.raises(ControlError):
        long_night.operator.advance(AdvanceRequest(by=by))
    assert long_night.operator.clock().now == before
    assert long_night.get("web_0")["Events"] == []


def test_several_callers_may_advance_the_clock_at_once(long_night: Night) -> None:
    threads = [
        threading.Thread(target=long_night.operator.advance, args=(AdvanceRequest(by=by),))
        for by in (7200.0, 3600.0, 10.0, 5.0)
    ]
    before = long_night.operator.clock().now
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (long_night.operator.clock().now - before).total_seconds() >= 7200


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--record", "/nowhere/trace"], "/nowhere/trace: No such file"),
        (["--record", "/"], "/: Is a directory"),
        (["--state", "/dev/null/s.db"], "cannot be used"),
        (["--control", "169.254.169.254:1"], "loopback"),
        (["--metadata", "[::1]:0"], "loopback"),
    ],
)
def test_dev_refuses_unusable_paths_and_addresses_in_one_line(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["dev", *ANY_PORT, *words])
    assert done.exit_code == 1
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_long_polls_are_answered_when_the_service_stops(tmp_path: Path) -> None:
    night = Night(tmp_path, "dev", "--enable-delay", "100s", *ANY_PORT)
    port = int(night.urls["metadata"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as guest:
        guest.sendall(f"GET {DOCUMENT} HTTP/1.1\r\nMetadata: true\r\n\r\n".encode())
        night.operator.status()  # by now it has been read
        assert night.end() == 0
        answer = b""
        while data := guest.recv(4096):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 ")
    assert b"connection: close" in head.lower()
    assert b"x-ms-request-id: " in head.lower()
    assert json.loads(body)["error"]


@pytest.mark.parametrize("host", ["localhost.evil.example", "127.0.0.1.evil.example", "evil:80"])
def test_a_page_under_another_name_does_not_reach_the_control_api(
    long_night: Night, host: str
) -> None:
    control = long_night.urls["control"]
    request = urllib.request.Request(f"{control}/v1/status", headers={"Host": host})
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(request)
    refusal.value.close()
    assert refusal.value.code == 421


@pytest.mark.parametrize(
    "head",
    [b"X: " + b"x" * 40_000, b"\r\n".join(b"X-%d: y" % n for n in range(4_000))],
    ids=["one long line", "many lines"],
)
def test_a_head_that_is_too_long_is_cut_off_and_disturbs_nobody(head: bytes) -> None:
    with Service(SAMPLE, sockets=True) as service:
        port = int(service.url().rpartition(":")[2])
        with socket.create_connection((service.addresses["web_0"], port), timeout=LIMIT) as guest:
            guest.sendall(f"GET {DOCUMENT} HTTP/1.1\r\nMetadata: true\r\n".encode() + head)
            assert guest.recv(4096).startswith(b"HTTP/1.1 400 ")
        assert service.get("web_1").status == 200


@pytest.mark.parametrize("output", [b"", b"GET /meta", b"GET / HTTP/1.1\r\nMetadata: tr"])
def test_silent_connections_are_closed(output: bytes) -> None:
    limits = Limits(head_timeout=0.2, keep_alive=1)
    with Service(SAMPLE, sockets=True, limits=limits) as service:
        port = int(service.url().rpartition(":")[2])
        with socket.create_connection((service.addresses["web_0"], port), timeout=LIMIT) as guest:
            guest.sendall(output)
            assert guest.recv(4096) == b""


def test_hundreds_of_events_of_one_group_start_one_after_the_other() -> None:
    with Service(SAMPLE) as service:
        service.get("web_0")
        for _ in range(300):
            service.schedule("Freeze", "web_0")
        assert len(service.document("web_1")["Events"]) == 300
        service.clock.advance("15m")
        statuses = [event["EventStatus"] for event in service.document("web_1")["Events"]]
        assert statuses == ["Started"] + ["Scheduled"] * 299  # one machine, one at a time
        service.clock.advance("5m")
        assert len(service.document("web_1")["Events"]) == 299


def test_changes_of_the_fleet_file_are_applied_at_a_restart(tmp_path: Path) -> None:
    def fleet(location: str, *machines: str) -> str:
        listed = ", ".join(f"{{name: {name}, update_domain: 0}}" for name in machines)
        kind = "kind: availability-set"
        return f"location: {location}\ngroups: [{{name: g, {kind}, machines: [{listed}]}}]"

    place = "/metadata/instance/compute/location?api-version=2021-02-01&format=text"
    with Service(fleet("north", "a", "b"), state=tmp_path / "s.db") as service:
        service.get("a")
        service.schedule("Reboot", "a")
        both = service.schedule("Freeze", "a", "b")
    with Service(fleet("south", "b", "c"), state=tmp_path / "s.db") as service:
        answer = service.request("b", "GET", place, {"Metadata": "true"})
        assert answer.body == b"south"
        (left,) = service.document("c")["Events"]  # a removed machine stays named
        assert (left["EventId"], left["Resources"]) == (both.id, ["a", "b"])


def test_conformance_refuses_a_file_that_is_no_trace(tmp_path: Path) -> None:
    no_trace = "not a trace"
    for content, words in (
        (b"", "nothing to check"),
        (b"[]\n", no_trace),
        (b"\xff\x00garbage\n" * 5, no_trace),
    ):
        (tmp_path / "trace").write_bytes(content)
        done = CliRunner().invoke(app, ["conformance", str(tmp_path / "trace")])
        assert done.exit_code == 1
        assert words in done.stderr
