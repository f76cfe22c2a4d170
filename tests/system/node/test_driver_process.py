"""`forewarn serve` and `forewarn driver` as processes: what is under way outlives kill -9 of each,
and happens once."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.certificates import Authority
from helpers.forked_cli import start
from helpers.free_ports import free_port
from helpers.process import Running
from helpers.serve_process import (
    FOREWARN,
    ServeProcess,
    environment,
    running_service,
    write_settings,
)
from helpers.waiting import until

FLEET = """
hosts: [h1]
groups:
  - name: web
    kind: standalone
    machines: [{name: web-0, address: 127.0.0.1, host: h1}]
"""
CONTROL = """
driver = "hosts"
nodes = "127.0.0.1:{port}"
nodes_certificate = "{control.certificate}"
nodes_key = "{control.key}"
nodes_authority = "authority.pem"
"""
DRIVER = """
host = "h1"
control = "127.0.0.1:{port}"
certificate = "{driver.certificate}"
key = "{driver.key}"
authority = "authority.pem"
directory = "driver"
driver = "command"
log = "json"
[command]
program = ["./carry"]
"""
CARRY = """#!/bin/sh
cd "$(dirname "$0")"
case $1 in
    perform)
        echo "$FOREWARN_FENCE" >> performed
        while [ -e hold ]; do sleep 0.02; done
        touch "done" ;;
    observe)
        echo "$FOREWARN_FENCE" >> observed
        [ -e "done" ] || exit 10 ;;
esac
"""


class Hosts:
    """The settings of control and of a driver process, which is started and killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority, port = Authority(directory), free_port()
        pairs = {
            "control": authority.issue("127.0.0.1"),
            "driver": authority.issue("forewarn:driver:h1"),
        }
        settings = write_settings(directory, CONTROL.format(port=port, **pairs))
        settings.write_text(settings.read_text().replace('metadata = "127.0.0.1:0"\n', ""))
        (directory / "fleet.yaml").write_text(FLEET)
        (directory / "driver.toml").write_text(DRIVER.format(port=port, **pairs))
        (directory / "carry").write_text(CARRY)
        (directory / "carry").chmod(0o755)
        self.settings = settings

    @contextlib.contextmanager
    def driver(self) -> Iterator[Running]:
        argv = [*FOREWARN, "driver", "--config", str(self.directory / "driver.toml")]
        process = start(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(self.directory),
        )
        running = Running(process, argv)
        try:
            word, _, ready = running.line().partition(" ")
            assert (word, json.loads(ready)) == ("ready", {"hosts": ["h1"]})
            yield running
        finally:
            process.kill()
            process.wait()

    def lines(self, name: str) -> list[int]:
        file = self.directory / name
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def hold(self) -> None:
        (self.directory / "hold").touch()

    def go_on(self) -> None:
        (self.directory / "hold").unlink()


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def freeze(service: ServeProcess) -> str:
    """Announce an event that starts at once, as soon as the driver process is connected."""
    body = {"type": "Freeze", "machines": ["web-0"], "notice": 0, "short_notice": True}

    def announced() -> str:
        try:
            return str(service.post("/v1/events", body)["id"])
        except urllib.error.HTTPError as error:
            if "driver process of host 'h1' is not connected" not in error.read().decode():
                raise
            return ""

    return until(announced)


def test_what_a_driver_process_has_begun_outlives_kill_9(hosts: Hosts) -> None:
    with running_service(hosts.directory, hosts.settings) as service:
        with hosts.driver():
            hosts.hold()
            id = freeze(service)
            until(lambda: hosts.lines("performed"))
        explained = until(lambda: "not connected" in str(service.get(f"/v1/events/{id}/explain")))
        assert explained
        hosts.go_on()
        until((hosts.directory / "done").exists)
        with hosts.driver():
            service.wait_for(f"/v1/events/{id}", status="Finished")
        assert len(hosts.lines("performed")) == 1


def test_what_control_has_asked_for_outlives_kill_9_of_control(hosts: Hosts) -> None:
    with hosts.driver():
        with running_service(hosts.directory, hosts.settings) as service:
            hosts.hold()
            id = freeze(service)
            until(lambda: hosts.lines("performed"))
            service.running.process.kill()
        with running_service(hosts.directory, hosts.settings) as service:
            hosts.go_on()
            service.wait_for(f"/v1/events/{id}", status="Finished")
        assert len(hosts.lines("performed")) == 1
        assert max(hosts.lines("observed")) >= max(hosts.lines("performed"))
    fences = json.loads((hosts.directory / "driver" / "fences").read_text())
    assert fences["fences"] == {"web-0": max(hosts.lines("observed"))}
