"""A disk that is full or cannot be written, under a real service: guests go on being answered from
memory, nobody is told that something happened which did not, and when there is room it goes on."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.schema.core import AdvanceRequest, ScheduleRequest
from forewarn.core import Durations
from forewarn.drivers.simulated import FileImpactJournal
from forewarn.service.telemetry.event_trace import FileEventTrace
from forewarn.wire.requests import write_approval
from helpers.forked_cli import run
from helpers.process import Running
from helpers.waiting import LIMIT, until

FOREWARN = [sys.executable, "-m", "forewarn"]
DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"
SIZE = 3 * 1024 * 1024  # bytes of the disk
HOLDER = 'mount -t tmpfs -o size={size},mode=0700 tmpfs "$0" && echo ready && exec cat'

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")


def _fits(file: IO[bytes]) -> bool:
    try:
        return bool(file.write(b"x" * 4096))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


class Disk:
    """A small disk that only processes of its own mount namespace see."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", HOLDER.format(size=SIZE), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        self.seen = Path(f"/proc/{self._holder.pid}/root{path}")  # as we see it

    def popen(self, *argv: str) -> Running:
        words = ["nsenter", f"--target={self._holder.pid}", "--mount", *argv]
        env = {**os.environ, "XDG_RUNTIME_DIR": str(self.path.parent)}
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        return Running(process, words)

    def fill(self) -> None:
        with (self.seen / "filler").open("ab", buffering=0) as file:
            while _fits(file):
                pass

    def empty(self) -> None:
        (self.seen / "filler").unlink()

    def names(self) -> set[str]:
        return {file.name for file in self.seen.iterdir()}

    def close(self) -> None:
        self._holder.communicate(timeout=LIMIT)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk")
    yield disk
    disk.close()


class Night:
    """A service on that disk, and the two sides that talk to it."""

    def __init__(self, disk: Disk, *words: str) -> None:
        state = ["--state", f"{disk.path}/state.db"]
        ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
        self.running = disk.popen(*FOREWARN, "dev", "--clock", "virtual", *state, *ports, *words)
        urls = json.loads(self.running.line().removeprefix("ready "))
        self.control = urls["control"]
        self.operator = ControlClient(self.control)
        self.guest = self.operator.machine("web_0").metadata_url

    def asked(self, url: str, body: bytes | None = None) -> tuple[int, bytes]:
        request = urllib.request.Request(url, data=body, headers={"Metadata": "true"})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def poll(self) -> list[dict[str, Any]]:
        status, body = self.asked(self.guest + DOCUMENT)
        assert status == 200
        events: list[dict[str, Any]] = json.loads(body)["Events"]
        return events

    def approve(self, id: str) -> int:
        return self.asked(self.guest + DOCUMENT, write_approval([id]))[0]

    def schedule(self, type: str = "Reboot") -> str:
        return self.operator.schedule(ScheduleRequest(type=type, machines=["web_0"])).id

    def reported(self, words: str) -> int:
        return sum(words in line for line in self.running.stderr)

    def kill(self) -> None:
        """Without a last word. What we have started is nsenter, which has become the service."""
        self.running.process.send_signal(signal.SIGKILL)
        self.running.wait()


@pytest.fixture
def night(disk: Disk) -> Iterator[Night]:
    night = Night(disk, "--record", f"{disk.path}/trace.jsonl")
    yield night
    if night.running.process.poll() is None:
        night.running.stop()


@needs_root
def test_a_full_disk_stops_decisions_and_nothing_else_and_only_while_it_is_full(
    disk: Disk, night: Night
) -> None:
    assert night.poll() == []
    event = night.schedule()
    disk.fill()
    before = night.poll()  # that it has been seen cannot be saved, and is tried again
    for _ in range(30):
        assert night.approve(event) == 500
        with pytest.raises(ControlError, match=r"has not happened: .*full"):
            night.schedule("Freeze")
    assert night.poll() == before
    until(lambda: night.reported("the state cannot") == 1)
    assert night.asked(f"{night.control}/readyz")[0] == 503
    assert night.asked(f"{night.control}/healthz")[0] == 200
    assert night.operator.event(event).approved is None
    with pytest.raises(ControlError, match="no copy"):
        night.operator.backup(lambda _: None)
    assert night.reported("a request could") == 1
    assert night.reported("the event trace") == 1
    disk.empty()
    assert night.approve(event) == 200  # without a restart
    (shown,) = night.poll()
    assert (shown["EventId"], shown["EventStatus"]) == (event, "Started")
    second = night.schedule("Freeze")
    until(lambda: night.reported("the state can be") == 1)
    assert night.asked(f"{night.control}/readyz")[0] == 200
    night.kill()
    again = Night(disk)
    assert [shown["EventId"] for shown in again.poll()] == [event, second]
    again.operator.advance(AdvanceRequest(by=3600))
    assert [e.id for e in again.operator.events(past=True)] == [second, event]
    again.running.stop()
    # What was recorded ends with a whole line, and no impact is there twice.
    lines = (disk.seen / "trace.jsonl").read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") and json.loads(line) for line in lines)
    impacts = (disk.seen / "state.db.impacts").read_bytes().splitlines()
    assert [json.loads(line)["event"] for line in impacts] == [event, second]


@needs_root
def test_on_a_disk_that_is_full_or_read_only_nothing_is_started(disk: Disk) -> None:
    night = Night(disk)
    event = night.schedule()
    night.kill()
    there = disk.names()
    disk.fill()
    serve = [*FOREWARN, "serve", "--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    fresh = disk.popen(*serve, "--state", f"{disk.path}/fresh.db")
    assert fresh.wait() == 1
    (line,) = fresh.stderr
    assert "fresh.db cannot be " in line
    assert "No space left" in line or "full" in line
    assert disk.names() - there - {"filler"} <= {"fresh.db.lock"}
    disk.empty()
    (disk.seen / "fresh.db.lock").unlink(missing_ok=True)
    assert disk.popen("mount", "-o", "remount,ro", str(disk.path)).wait() == 0
    for state in ("state.db", "fresh.db"):
        refused = disk.popen(*serve, "--state", f"{disk.path}/{state}")
        assert refused.wait() == 1
        (line,) = refused.stderr
        assert state in line
        assert "read-only" in line.lower()
    assert disk.names() == there
    assert disk.popen("mount", "-o", "remount,rw", str(disk.path)).wait() == 0
    again = Night(disk)
    assert again.operator.event(event).id == event
    again.running.stop()


TORN = """
import resource, signal, sys
from pathlib import Path
from forewarn.drivers.port import Impact
from forewarn.drivers.simulated import FileImpactJournal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
world = FileImpactJournal(path)
world.add(Impact(1.0, "A", "Reboot", ("web_0",)))
size = path.stat().st_size
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for room in (0, 1, size - 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    try:
        world.add(Impact(2.0, "B", "Reboot", ("web_1",)))
    except OSError:
        assert world.impact("B") is None
        assert path.stat().st_size == size, room
    else:
        raise AssertionError("there was no room")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
world.add(Impact(3.0, "B", "Reboot", ("web_1",)))
world.close()
world = FileImpactJournal(path)
assert world.impact("A").t == 1.0 and world.impact("B").t == 3.0
world.close()
print(path.read_text().count("\\n"))
"""


def test_an_impact_that_cannot_be_written_did_not_happen(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", TORN, str(tmp_path / "impacts")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


RECORDED = """
import resource, signal, sys
from pathlib import Path
from forewarn.core import Durations
from forewarn.service.telemetry.event_trace import FileEventTrace

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
trace = FileEventTrace(path, Durations())
trace.write("up", 1)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
trace.write("down", 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
trace.write("end", 3)  # evidence with a hole in it would be none
trace.close()
print(path.read_text(), end="")
"""


def test_files_beside_the_state_are_private_unless_they_existed(tmp_path: Path) -> None:
    """It tells of everybody's machines."""
    made, old = tmp_path / "made", tmp_path / "old"
    old.mkdir()
    for name in ("impacts", "trace"):
        (old / name).write_bytes(b"torn\n")  # which a world takes out of its file
        (old / name).chmod(0o640)
    made.mkdir()
    before = os.umask(0)
    try:
        for directory, mode in ((made, 0o600), (old, 0o640)):
            FileImpactJournal(directory / "impacts").close()
            FileEventTrace(directory / "trace", Durations()).close()
            assert {file.stat().st_mode & 0o777 for file in directory.iterdir()} == {mode}
    finally:
        os.umask(before)


def test_a_recording_on_a_full_disk_ends_with_a_whole_line(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", RECORDED, str(tmp_path / "trace")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert "the event trace" in done.stdout + done.stderr
    (line,) = (tmp_path / "trace").read_text().splitlines()
    assert json.loads(line)["kind"] == "up"


def test_a_damaged_state_is_refused_in_one_line_and_left_alone(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    state.write_bytes(b"SQLite format 3\x00" + b"garbage" * 1_000)
    before = state.read_bytes()
    ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    done = run(
        [*FOREWARN, "serve", "--state", str(state), *ports],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"forewarn: {state} is damaged (")
    assert "(forewarn restore)" in done.stderr
    assert done.stderr.count("\n") == 1
    assert state.read_bytes() == before
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / "state.db").unlink()
    assert not list(tmp_path.iterdir())
