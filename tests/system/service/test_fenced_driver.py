"""Two control nodes on PostgreSQL, the first of which stands still while its program is at work:
the second carries the event out, and what the first had begun is refused on the target."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.cli.commands.fenced import REFUSED
from forewarn.control.client.client import ControlClient
from forewarn.control.schema.core import ScheduleRequest
from forewarn.node.daemon.run import OUTCOME_UNKNOWN
from helpers import postgres
from helpers.forked_cli import Forked
from helpers.process import Running
from helpers.waiting import LIMIT, until

FLEET = "groups: [{name: web, kind: standalone, machines: [{name: web_0, address: 192.0.2.1}]}]"
SETTINGS = """
state = "STATE"
name = "NAME"
lease = "30s"
metadata = "127.0.0.1:0"
control = "127.0.0.1:0"
driver = "command"
[command]
program = ["../carry", "NAME"]
"""
# The first node's waits before it reaches the target. An impact is one line.
CARRY = """#!/bin/sh
cd DIR
case $2 in
    perform)
        if [ $1 = c1 ]; then
            echo > at_work
            cat may_go_on > /dev/null
        fi
        FENCED sh -c "echo $1 >> impacts"
        status=$?
        echo $1 $status >> statuses
        exit $status
        ;;
    observe)
        FENCED test -e impacts && exit 30
        exit 10
        ;;
esac
"""


class ControlNode:
    def __init__(self, directory: Path, name: str, state: str) -> None:
        place = directory / name
        place.mkdir()
        settings = SETTINGS.replace("STATE", state).replace("NAME", name)
        (place / "serve.toml").write_text(settings)
        words = [sys.executable, "-m", "forewarn", "serve", "--config", "serve.toml"]
        self.process = Forked(
            words,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(place)},
        )
        self.running = Running(self.process, words)
        self.url = json.loads(self.running.line(LIMIT).partition(" ")[2])["control"]
        self.operator = ControlClient(self.url)

    def decides(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/leaderz", timeout=LIMIT):
                return True
        except urllib.error.HTTPError:
            return False


def takes_over(node: ControlNode, state: str) -> bool:
    """Return whether the node decides, after ending the lease of the first one in its place."""
    with psycopg.connect(state) as connection:
        connection.execute("UPDATE leader SET until = 'epoch' WHERE name = 'c1'")
    return node.decides()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    postgres.needed()
    command = f"'{sys.executable}' -m forewarn fenced --dir {tmp_path}/fences --key web_0"
    fenced = f"{command} --fence $FOREWARN_FENCE --"
    script = CARRY.replace("DIR", str(tmp_path)).replace("FENCED", fenced)
    (tmp_path / "carry").write_text(script)
    (tmp_path / "carry").chmod(0o755)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    os.mkfifo(tmp_path / "at_work")
    os.mkfifo(tmp_path / "may_go_on")
    return tmp_path


def test_the_late_program_of_a_leader_that_stood_still_is_refused(directory: Path) -> None:
    state = postgres.shared_server().new_state()
    at_work = os.open(directory / "at_work", os.O_RDWR)
    first = ControlNode(directory, "c1", state)
    try:
        until(first.decides)
        fleet = str(directory / "fleet.yaml")
        applied = CliRunner().invoke(app, ["apply", fleet, "--url", first.url])
        assert applied.exit_code == 0, applied.output
        second = ControlNode(directory, "c2", state)
        try:
            event = first.operator.schedule(ScheduleRequest(type="Reboot", machines=["web_0"])).id
            first.operator.approve(event)
            assert select.select([at_work], [], [], LIMIT)[0], first.running.failure("no program")
            first.process.send_signal(signal.SIGSTOP)
            until(lambda: takes_over(second, state))
            until(lambda: second.operator.event(event).status == "Finished")
            assert (directory / "impacts").read_text() == "c2\n"

            (directory / "may_go_on").write_text("")
            statuses = directory / "statuses"
            until(lambda: statuses.read_text().split("\n")[1:2] != [""])
            assert statuses.read_text() == f"c2 0\nc1 {REFUSED}\n"
            assert (directory / "impacts").read_text() == "c2\n"

            first.process.send_signal(signal.SIGCONT)
            assert first.process.wait(LIMIT) == OUTCOME_UNKNOWN
        finally:
            second.running.stop()
    finally:
        first.process.send_signal(signal.SIGCONT)
        first.running.stop()
        os.close(at_work)
