"""Control and the node of a host as processes, and a guest that asks 169.254.169.254 there, while
one or the other is killed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from helpers.certificates import Authority
from helpers.guest_network import approve, poll
from helpers.netns import METADATA_ADDRESS, Lab, Namespace, needs_root
from helpers.process import Running
from helpers.serve_process import FOREWARN

GUEST = "10.77.0.11"
FLEET = f"""
hosts: [rack-1]
groups:
  - name: web
    kind: scale-set
    machines: [{{name: web_0, address: {GUEST}, host: rack-1}}]
"""
CONTROL = """
fleet = "fleet.yaml"
state = "state.db"
record = "control.jsonl"
nodes = "127.0.0.1:8171"
nodes_certificate = "{control.certificate}"
nodes_key = "{control.key}"
nodes_authority = "{authority}"
"""
NODE = """
host = "rack-1"
control = "127.0.0.1:8171"
certificate = "{node.certificate}"
key = "{node.key}"
authority = "{authority}"
journal = "journal"
record = "node.jsonl"
"""
# Polls on a new connection each time, and prints what it gets.
POLLER = f"""
import time, urllib.request
url = "http://{METADATA_ADDRESS}/metadata/scheduledevents?api-version=2020-07-01"
while True:
    try:
        request = urllib.request.Request(url, headers={{"Metadata": "true"}})
        print(urllib.request.urlopen(request, timeout=60).status, flush=True)
    except Exception as error:
        print(repr(error), flush=True)
    time.sleep(0.05)
"""


class Rack:
    """A host with a node and a guest, and control, which is reached over loopback."""

    def __init__(self, lab: Lab, room: Path) -> None:
        self.lab = lab
        self.room = room
        authority = Authority(room)
        names = {
            "control": authority.issue("127.0.0.1"),
            "node": authority.issue("forewarn:node:rack-1"),
            "authority": authority.path,
        }
        (room / "fleet.yaml").write_text(FLEET)
        (room / "serve.toml").write_text(CONTROL.format(**names))
        (room / "node.toml").write_text(NODE.format(**names))
        self.environment = {
            "FOREWARN_URL": "http://127.0.0.1:8170",
            "XDG_RUNTIME_DIR": str(room),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    @property
    def guest(self) -> Namespace:
        return self.lab.guests[GUEST]

    def start(self, command: str) -> Running:
        words = [*FOREWARN, command, "--config", str(self.room / f"{command}.toml")]
        return self.lab.host.popen(words, env=self.environment)

    def started(self, command: str) -> Running:
        running = self.start(command)
        assert running.line().startswith("ready ")
        return running

    def output(self, *words: str) -> Any:
        ran = self.lab.host.run([*FOREWARN, *words, "--json"], env=self.environment)
        return json.loads(ran.stdout)

    def poller(self) -> Running:
        poller = self.guest.popen([sys.executable, "-c", POLLER])
        assert poller.line() == "200"
        return poller


def kill(running: Running) -> None:
    running.process.kill()
    running.wait()


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    needs_root()
    with Lab([GUEST]) as lab:
        yield Rack(lab, tmp_path_factory.mktemp("rack"))


def test_a_guest_is_answered_while_control_is_away_and_its_node_is_killed(rack: Rack) -> None:
    control = rack.started("serve")
    node = rack.started("node")
    assert poll(rack.guest).json()["Events"] == []
    (host,) = rack.output("host", "list")
    assert host["node"]["state"] == "joined"
    event = rack.output("event", "schedule", "Reboot", "web_0")["id"]
    assert [e["EventId"] for e in poll(rack.guest).json()["Events"]] == [event]

    # Control is killed: polls go on, and an approval waits for control to be back.
    poller = rack.poller()
    kill(control)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(approve, rack.guest, event)
        control = rack.started("serve")
        while (status := answer.result().status) != 200:
            assert status == 500  # it took more than 8 s; a client asks again
            answer = threads.submit(approve, rack.guest, event)
    assert rack.output("event", "show", event)["approved"]["by"] == "web_0"
    poller.stop()
    assert {line.strip() for line in poller.stdout} == {"200"}

    # Control is killed, and the node as well: it shows what it has shown before.
    kill(control)
    before = poll(rack.guest)
    kill(node)
    node = rack.started("node")
    after = poll(rack.guest)
    assert (after.status, after.body) == (200, before.body)

    # All that was recorded is in order.
    control = rack.started("serve")
    rack.output("host", "list")
    for running in (control, node):
        assert running.stop() == 0
    files = [rack.room / "control.jsonl", rack.room / "node.jsonl"]
    rack.lab.host.run([*FOREWARN, "conformance", *files], env=rack.environment)
    kinds = [json.loads(line)["kind"] for line in files[1].read_text().splitlines()]
    assert kinds.count("up") == 2
    assert "disconnected" in kinds  # after its own restart
