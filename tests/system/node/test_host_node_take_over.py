"""Two control nodes on PostgreSQL, and nodes on two hosts: the leader is killed while guests poll
and approve, and the nodes follow the one that takes over."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from helpers.certificates import Authority
from helpers.control_nodes import LEASE, ask, new_state
from helpers.forked_cli import start
from helpers.free_ports import free_port
from helpers.process import Running
from helpers.recording_guests import DRIVER, Guest, Place, approved, write_trace
from helpers.serve_process import FOREWARN, environment
from helpers.waiting import until

# Each machine is asked for at an endpoint of its own host, so all have one address.
FLEET = b"""
hosts: [h1, h2]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web_0, address: 127.0.0.1, host: h1, update_domain: 0}
      - {name: web_1, address: 127.0.0.1, host: h2, update_domain: 1}
"""
MACHINES = {"web_0": "h1", "web_1": "h2"}
CONTROL = """
name = "{name}"
state = "{state}"
lease = "{lease}"
local_directory = "{room}"
control = "127.0.0.1:0"
nodes = "127.0.0.1:{port}"
nodes_certificate = "{pair.certificate}"
nodes_key = "{pair.key}"
nodes_authority = "{authority}"
record = "{room}/{name}.jsonl"
driver = "command"
log = "json"
[command]
program = ["/bin/sh", "{room}/driver"]
"""
NODE = """
host = "{host}"
control = {control}
certificate = "{pair.certificate}"
key = "{pair.key}"
authority = "{authority}"
metadata = "127.0.0.1:0"
status = ""
journal = "{room}/{host}"
record = "{room}/{host}.jsonl"
log = "json"
"""


class Service:
    """Control nodes, the nodes of two hosts, and a guest on each."""

    def __init__(self, room: Path, state: str) -> None:
        self.room = room
        self.running: dict[str, Running] = {}
        self.urls: dict[str, str] = {}  # of control nodes
        self.guests: dict[str, Guest] = {}
        authority = Authority(room)
        ports = {"c1": free_port(), "c2": free_port()}
        (room / "driver").write_text(DRIVER.format(room=room, machine="", host=""))
        values: dict[str, Any] = {"room": room, "authority": authority.path, "lease": LEASE}
        pair = authority.issue("127.0.0.1")
        for name, port in ports.items():
            text = CONTROL.format(name=name, state=state, port=port, pair=pair, **values)
            (room / f"{name}.toml").write_text(text)
        # They ask the one that follows first.
        values["control"] = [f"127.0.0.1:{port}" for port in reversed(ports.values())]
        for host in MACHINES.values():
            pair = authority.issue(f"forewarn:node:{host}")
            (room / f"{host}.toml").write_text(NODE.format(host=host, pair=pair, **values))

    def start(self, command: str, name: str) -> dict[str, Any]:
        argv = [*FOREWARN, command, "--config", str(self.room / f"{name}.toml")]
        process = start(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(self.room),
        )
        running = self.running[name] = Running(process, argv)
        word, _, urls = running.line().partition(" ")
        assert word == "ready"
        return dict(json.loads(urls))

    def start_control(self, name: str) -> None:
        self.urls[name] = self.start("serve", name)["control"]

    def start_guest(self, machine: str) -> None:
        host = MACHINES[machine]
        place = urlsplit(self.start("node", host)["metadata"])
        endpoint = (place.hostname or "", place.port or 0)
        guest = self.guests[machine] = Guest(machine, Place(host, "127.0.0.1", endpoint))
        guest.start()

    def kill(self, name: str) -> None:
        running = self.running.pop(name)
        running.process.kill()
        running.wait()
        del self.urls[name]

    def api(self, method: str, path: str, body: object = None) -> Any:
        """Ask the control node that decides, once there is one."""
        until(lambda: bool(self._leaders()))
        (leader,) = self._leaders()
        said = ask(leader, method, path, body)
        assert said.status in (200, 201), said.body
        return said.json()

    def _leaders(self) -> list[str]:
        return [url for url in self.urls.values() if ask(url, "GET", "/leaderz").status == 200]

    def history(self, event: str) -> list[str]:
        return [r["what"] for r in self.api("GET", f"/v1/history?event={event}")["records"]]

    def joined(self) -> bool:
        return all(host["node"]["state"] == "joined" for host in self.api("GET", "/v1/hosts"))

    def stop(self) -> None:
        for guest in self.guests.values():
            guest.stop()
        for running in self.running.values():
            running.stop()

    def judge(self) -> None:
        nodes = [self.room / f"{host}.jsonl" for host in MACHINES.values()]
        guests = self.room / "guests.jsonl"
        write_trace(guests, self.guests.values(), nodes)
        files = [self.room / f"{name}.jsonl" for name in ("c1", "c2", "impacts")]
        for seen in (nodes, [guests]):
            ran = CliRunner().invoke(app, ["conformance", *map(str, [*files, *seen])])
            assert ran.exit_code == 0, ran.output


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, new_state())
    try:
        service.start_control("c1")
        service.api("PUT", "/v1/fleet", FLEET)
        service.start_control("c2")
        for machine in MACHINES:
            service.start_guest(machine)
        until(service.joined)
        yield service
    finally:
        service.stop()


def test_nodes_follow_the_control_node_that_takes_over_and_nothing_is_lost(
    service: Service,
) -> None:
    approving = service.guests["web_1"]
    for machine, leader, killed_first in (("web_0", "c1", True), ("web_1", "c2", False)):
        reboot = {"type": "Reboot", "machines": [machine]}
        event = service.api("POST", "/v1/events", reboot)["id"]
        assert approving.sees(event) == "Scheduled"
        with ThreadPoolExecutor(1) as threads:
            if killed_first:
                service.kill(leader)
            answer = threads.submit(approving.approve, event)
            if not killed_first:
                service.kill(leader)
            while (status := answer.result()) != 200:
                assert status == 500  # it took more than 8 s; a client asks again
                answer = threads.submit(approving.approve, event)
        assert service.history(event).count("approved") == 1
        until(lambda event=event: "finished" in service.history(event))  # type: ignore[misc]
        service.start_control(leader)
        until(service.joined)
    until(lambda: not any(guest.poll()["Events"] for guest in service.guests.values()))
    for event in approved(service.guests.values()):
        assert service.history(event).count("finished") == 1
    assert [guest.refused() for guest in service.guests.values()] == [[], []]
    service.judge()
