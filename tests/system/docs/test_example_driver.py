"""examples/drivers/local_machines.py, with which the examples carry events out: what happens to a
machine happens to all of it, whatever session its processes are in. Time is virtual."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import Program
from forewarn.testing import RefusedError, Service
from helpers.paths import ROOT
from helpers.waiting import LIMIT, until

DRIVER = ROOT / "examples/drivers/local_machines.py"
FLEET = """
groups:
- {name: web, kind: scale-set, policy: {terminate_notice: 5m}, machines: [{name: web_0}]}
"""
# A machine of three processes: one, its child, and a grandchild in a session of its own.
MACHINE = """#!/bin/sh
(setsid sleep 1000 & echo $! >> pids; exec sleep 1000) &
echo $! >> pids
echo $$ >> pids
exec sleep 1000
"""


class Machine:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True)
        start = directory / "start"
        start.write_text(MACHINE.replace("pids", str(directory / "pids")))
        start.chmod(0o755)
        self._first = subprocess.Popen([start], start_new_session=True)
        self.pid = directory / "pid"
        self.pid.write_text(f"{self._first.pid}\n")

    def processes(self) -> list[int]:
        """Of the life that it is in, once all are there."""
        pids = self._directory / "pids"

        def complete() -> list[str]:
            words = pids.read_text().split() if pids.exists() else []
            return [] if len(words) % 3 else words

        return [int(word) for word in until(complete)[-3:]]

    def states(self) -> set[str]:
        return {_state(pid) for pid in self.processes()}

    def end(self) -> None:
        for pid in map(int, (self._directory / "pids").read_text().split()):
            if _state(pid):
                os.kill(pid, signal.SIGKILL)
        self._first.wait(LIMIT)


def _state(pid: int) -> str:
    """As the system has it: T is stopped; nothing if it is dead. One that has just been started may
    not sleep yet."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if letter in "ZX" else "T" if letter == "T" else "S"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "fleet/web_0")
    yield machine
    machine.end()


@pytest.fixture
def service(machine: Machine, tmp_path: Path) -> Iterator[Service]:
    driver = CommandDriver(Program(words=(str(DRIVER), str(tmp_path / "fleet"))))
    with Service(FLEET, driver=driver) as service:
        service.get("web_0")
        yield service


def test_all_of_a_machine_is_frozen_rebooted_and_ended(machine: Machine, service: Service) -> None:
    assert machine.states() == {"S"}
    service.approve("web_0", service.schedule("Freeze", "web_0", duration=3))
    service._session.settle()
    assert machine.states() == {"T"}
    service.clock.advance("3s")
    assert machine.states() == {"S"}

    before = machine.processes()
    service.approve("web_0", service.schedule("Reboot", "web_0"))
    service._session.settle()
    assert machine.states() == {""}
    service.clock.advance("1s")
    after = machine.processes()
    assert not set(before) & set(after)
    assert machine.states() == {"S"}

    service.approve("web_0", service.schedule("Terminate", "web_0"))
    service._session.settle()
    assert machine.processes() == after
    assert machine.states() == {""}
    assert not machine.pid.exists(), "nobody is killed who gets its number"


def test_an_event_that_the_example_vetoes_is_not_announced(
    service: Service, machine: Machine, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError, match="no other computer"):
        service.schedule("Redeploy", "web_0")
    (tmp_path / "fleet/web_0/start").chmod(0o644)
    with pytest.raises(RefusedError, match="is no program"):
        service.schedule("Reboot", "web_0")
    (tmp_path / "fleet/web_0/pid").unlink()
    with pytest.raises(RefusedError, match=r"there is no .*/fleet/web_0/pid"):
        service.schedule("Freeze", "web_0")
    assert machine.states() == {"S"}
