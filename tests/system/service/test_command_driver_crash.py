"""The real service is killed while an operator's program is at work, and started again.

What is asked first is what became of the attempt, and whatever happens, the impact happens once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient
from forewarn.control.schema.core import ScheduleRequest
from helpers.forked_cli import Forked
from helpers.process import Running
from helpers.waiting import LIMIT, until

FLEET = "groups: [{name: web, kind: standalone, machines: [{name: web_0, address: 127.0.1.1}]}]"
SETTINGS = """
fleet = "fleet.yaml"
metadata = "127.0.0.1:0"
control = "127.0.0.1:0"
driver = "command"
[command]
program = ["./carry"]
"""
# Says its number when it is at work, and goes on when it may. The impact is one line.
CARRY = """#!/bin/sh
cd DIR
echo $1 >> calls
case $1 in
    perform)
        echo $$ > at_work
        cat may_go_on > /dev/null
        echo impact >> impacts
        ;;
    observe)
        [ ! -e nobody_knows ] || exit 40
        [ -e impacts ] && exit 30
        exit 10
        ;;
esac
"""


class Site:
    """A directory with all that a service needs, and the service that runs there now."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "fleet.yaml").write_text(FLEET)
        (directory / "serve.toml").write_text(SETTINGS)
        (directory / "carry").write_text(CARRY.replace("DIR", str(directory)))
        (directory / "carry").chmod(0o755)
        os.mkfifo(directory / "at_work")
        os.mkfifo(directory / "may_go_on")
        self._at_work = os.open(directory / "at_work", os.O_RDWR)
        self.start()

    def close(self) -> None:
        self.service.stop()
        os.close(self._at_work)

    def start(self) -> None:
        words = [sys.executable, "-m", "forewarn", "serve", "--config", "serve.toml"]
        process = Forked(
            words,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.directory)},
        )
        self.service = Running(process, words)
        self.url = json.loads(self.service.line().partition(" ")[2])["control"]
        self.operator = ControlClient(self.url)

    def kill(self) -> None:
        self.service.process.kill()
        self.service.process.wait(LIMIT)

    def begin(self) -> str:
        """An event that has started."""
        made = self.operator.schedule(ScheduleRequest(type="Reboot", machines=["web_0"]))
        self.operator.approve(made.id)
        return made.id

    def program_at_work(self) -> int:
        """Its process, once it is there."""
        there, _, _ = select.select([self._at_work], [], [], 20)
        assert there, self.service.failure(f"no program is at work; calls: {self.lines('calls')}")
        return int(os.read(self._at_work, 100))

    def may_go_on(self) -> None:
        """It has what it waits for, as soon as it waits for it."""

        def let_go_on() -> bool:
            try:
                os.close(os.open(self.directory / "may_go_on", os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True

        until(let_go_on)

    def is_over(self, id: str) -> bool:
        return self.operator.event(id).status == "Finished"

    def lines(self, name: str) -> list[str]:
        file = self.directory / name
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def test_a_program_that_outlives_the_service_is_waited_for_and_then_asked(site: Site) -> None:
    id = site.begin()
    program = site.program_at_work()
    site.kill()
    os.kill(program, 0)  # it goes on
    site.start()
    assert site.operator.event(id).status == "Started"
    assert site.lines("calls") == ["check", "perform"]
    site.may_go_on()
    until(lambda: site.is_over(id))
    assert site.lines("calls") == ["check", "perform", "observe"]
    assert site.lines("impacts") == ["impact"]


def test_an_action_of_a_killed_program_is_observed_and_repeated_once(site: Site) -> None:
    id = site.begin()
    program = site.program_at_work()
    site.kill()
    os.killpg(program, signal.SIGKILL)
    site.start()
    site.program_at_work()
    assert site.lines("calls") == ["check", "perform", "observe", "perform"]
    assert site.lines("impacts") == []
    site.may_go_on()
    until(lambda: site.is_over(id))
    assert site.lines("impacts") == ["impact"]


def test_an_event_of_unknown_outcome_waits_for_an_operator(site: Site) -> None:
    id = site.begin()
    program = site.program_at_work()
    site.kill()
    os.killpg(program, signal.SIGKILL)
    (site.directory / "nobody_knows").touch()
    site.start()
    until(lambda: "exit code 40" in str(site.operator.explain(id)))
    assert site.lines("calls") == ["check", "perform", "observe"]
    words = ["event", "finish", id, "--reason", "it is up", "--url", site.url]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert site.is_over(id)
    assert site.lines("calls") == ["check", "perform", "observe"]
    assert site.lines("impacts") == []


def test_a_service_that_is_stopped_ends_the_program_and_asks_when_it_is_back(site: Site) -> None:
    id = site.begin()
    program = site.program_at_work()
    assert site.service.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)
    site.start()
    site.program_at_work()
    assert site.lines("calls") == ["check", "perform", "observe", "perform"]
    site.may_go_on()
    until(lambda: site.is_over(id))
    assert site.lines("impacts") == ["impact"]
