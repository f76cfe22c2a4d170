"""A Freeze carried out on a real process: an open TCP connection survives it.

The whole service, with the example program as its driver. Time is virtual, so the process stays
frozen until the test lets it pass; what is frozen is real.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn.core import Status
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import Program
from forewarn.testing import RefusedError, Service
from helpers.netns import require
from helpers.paths import ROOT
from helpers.waiting import LIMIT

EXAMPLE = ROOT / "examples/drivers/local_processes.py"

# Echoes whatever comes over one connection, as long as it lives.
ECHO = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    while data := connection.recv(1024):
        connection.sendall(data)
"""
FREEZER = "freezer.state"  # of a cgroup v1

FLEET = "groups: [{name: web, kind: standalone, machines: [{name: web_0}]}]"


class Machine:
    """A process with an open connection, and the directory in which the program looks for it."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self.port = int(process.stdout.readline())
        self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
        self.is_frozen: Callable[[], bool] = lambda: self.stat()[0] == "T"
        directory.mkdir(parents=True)
        (directory / "pid").write_text(f"{process.pid}\n")

    def stat(self) -> list[str]:
        """Its fields in /proc, from its state on."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()

    def worked(self) -> tuple[str, ...]:
        """How long it has been running: in its own code, and in the system's."""
        return tuple(self.stat()[11:13])

    def echoes(self, word: bytes) -> bool:
        self.connection.sendall(word)
        return self.hears(word)

    def hears(self, word: bytes) -> bool:
        heard = b""
        while len(heard) < len(word):
            heard += self.connection.recv(1024)
        return heard == word

    def unread(self) -> int:
        """Bytes that the system holds for it, and that it has not taken."""
        mine = self.connection.getsockname()[1]
        pair = f":{self.port:04X}", f":{mine:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines():
            fields = line.split()
            if fields[1].endswith(pair[0]) and fields[2].endswith(pair[1]):
                return int(fields[4].partition(":")[2], 16)
        raise AssertionError("the connection is gone")

    def nothing_is_heard(self) -> bool:
        self.connection.setblocking(False)
        try:
            self.connection.recv(1024)
        except BlockingIOError:
            return True
        finally:
            self.connection.settimeout(20)
        return False


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    process = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
    try:
        machine = Machine(process, tmp_path / "fleet/web_0")
        with machine.connection:
            yield machine
    finally:
        if process.stdout is not None:
            process.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(LIMIT)


def _hierarchies() -> dict[str, Path]:
    """The freezers that this system has, by version."""
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, type, options, *_ = line.split()
        if type == "cgroup2":
            found["cgroup v2"] = Path(place)
        elif type == "cgroup" and "freezer" in options.split(","):
            found["cgroup v1"] = Path(place)
    return found


HIERARCHIES = _hierarchies()


@pytest.fixture(params=[*(HIERARCHIES or ["cgroup v2"]), "SIGSTOP"])
def frozen_by(request: pytest.FixtureRequest, machine: Machine, tmp_path: Path) -> Iterator[str]:
    """Where the process is put, so that the program can freeze it."""
    if request.param == "SIGSTOP":
        yield request.param
        return
    root, thawed = _hierarchy(request.param)
    cgroup = root / f"forewarn-test-{os.getpid()}"
    cgroup.mkdir()
    try:
        (cgroup / "cgroup.procs").write_text(f"{machine.process.pid}\n")
        (tmp_path / "fleet/web_0/cgroup").write_text(f"{cgroup}\n")
        file, word = ("cgroup.events", "frozen 1") if thawed == "0" else (FREEZER, "FROZEN")
        machine.is_frozen = lambda: word in (cgroup / file).read_text()
        yield request.param
    finally:
        (cgroup / ("cgroup.freeze" if thawed == "0" else FREEZER)).write_text(thawed)
        (root / "cgroup.procs").write_text(f"{machine.process.pid}\n")
        cgroup.rmdir()


def _hierarchy(version: str) -> tuple[Path, str]:
    """Where cgroups of that version are made, and the word that thaws one."""
    place = HIERARCHIES.get(version)
    writable = place is not None and os.geteuid() == 0 and os.access(place, os.W_OK)
    require(writable, f"root and a {version} that can be written to")
    assert place is not None
    return place, "0" if version == "cgroup v2" else "THAWED"


def test_an_open_connection_survives_a_freeze_of_a_real_process(
    machine: Machine, frozen_by: str, tmp_path: Path
) -> None:
    driver = CommandDriver(Program(words=(str(EXAMPLE), str(tmp_path / "fleet"))))
    with Service(FLEET, driver=driver) as service:
        assert machine.echoes(b"before the event")
        service.get("web_0")
        event = service.schedule("Freeze", "web_0", duration=9)
        assert machine.echoes(b"announced")

        service.approve("web_0", event)
        service._session.settle()
        (shown,) = service.document("web_0")["Events"]
        assert shown["EventStatus"] == "Started"
        assert machine.is_frozen(), frozen_by
        worked = machine.worked()
        machine.connection.sendall(b"are you there?")

        service.clock.advance("8s")
        assert machine.is_frozen()
        assert machine.unread() == len(b"are you there?")  # it has arrived, and nobody reads it
        assert machine.nothing_is_heard()
        assert machine.worked() == worked

        service.clock.advance("1s")
        assert not machine.is_frozen()
        assert machine.hears(b"are you there?")
        assert machine.echoes(b"and on it goes")
        assert service.document("web_0")["Events"] == []
        over = service._session.run(service._session.node.platform.event(event.id))
        assert getattr(over, "status", None) is Status.FINISHED


def test_an_event_of_a_machine_without_a_process_is_not_announced(tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    driver = CommandDriver(Program(words=(str(EXAMPLE), str(tmp_path / "fleet"))))
    with Service(FLEET, driver=driver) as service:
        with pytest.raises(RefusedError, match=r"there is no .*/fleet/web_0/pid"):
            service.schedule("Freeze", "web_0")
        with pytest.raises(RefusedError, match="a Redeploy of"):
            service.schedule("Redeploy", "web_0")


def test_a_reboot_replaces_the_process_and_ends_its_connections(
    machine: Machine, tmp_path: Path
) -> None:
    start = tmp_path / "fleet/web_0/start"
    start.write_text("#!/bin/sh\nexec sleep 1000\n")
    start.chmod(0o755)
    driver = CommandDriver(Program(words=(str(EXAMPLE), str(tmp_path / "fleet"))))
    with Service(FLEET, driver=driver) as service:
        service.get("web_0")
        service.approve("web_0", service.schedule("Reboot", "web_0"))
        service._session.settle()
        assert service.document("web_0")["Events"] == []
    new = int((tmp_path / "fleet/web_0/pid").read_text())
    try:
        assert new != machine.process.pid
        assert machine.connection.recv(1) == b""
        assert Path(f"/proc/{new}/stat").exists()
    finally:
        os.kill(new, signal.SIGKILL)
