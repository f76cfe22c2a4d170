"""`forewarn serve` and `forewarn driver` as processes: what is under way outlives kill -9 of each,
and happens once; and the inventory follows what the driver sees."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from forewarn.drivers.port import MachineState, Seen, SeenMachine
from helpers.certificates import Authority
from helpers.forked_cli import SCRIPT, start
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

MAC = "52:54:00:00:00:10"
FLEET = """
hosts: [h1, h2]
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
host = "{host}"
control = "127.0.0.1:{port}"
certificate = "{pair.certificate}"
key = "{pair.key}"
authority = "authority.pem"
directory = "driver-{host}"
log = "json"
"""
COMMAND = """
driver = "command"
[command]
program = ["./carry"]
"""
# A hypervisor that is a file for each host, and a driver that reports what is in it.
HYPERVISOR = """
import asyncio
import msgspec
from pathlib import Path
from forewarn.drivers.port import Done, Driver, DriverOptions, NotYet, Ok, Seen
from forewarn.drivers.registry import DriverType

class Hypervisor(Driver):
    repeatable = False

    def __init__(self, options, context):
        (self.host,) = context.hosts

    async def check(self, task):
        return Ok()

    async def observe(self, task):
        return NotYet()

    async def perform(self, task):
        return Done()

    async def watch(self, report):
        file, last = Path(__file__).parent / f"{self.host}.json", b""
        while True:
            if (seen := file.read_bytes()) != last:
                report(msgspec.json.decode(seen, type=Seen))
                last = seen
            await asyncio.sleep(0.02)

DRIVER = DriverType(Hypervisor)
"""
WITH_HYPERVISOR = """
import runpy, sys
site, *sys.argv = sys.argv[1:]
sys.path.insert(0, site)
runpy.run_module("forewarn", run_name="__main__", alter_sys=True)
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
    """The settings of control and of driver processes, which are started and killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority, port = Authority(directory), free_port()
        control = authority.issue("127.0.0.1")
        settings = write_settings(directory, CONTROL.format(port=port, control=control))
        settings.write_text(settings.read_text().replace('metadata = "127.0.0.1:0"\n', ""))
        (directory / "fleet.yaml").write_text(FLEET)
        for host in ("h1", "h2"):
            pair = authority.issue(f"forewarn:driver:{host}")
            text = DRIVER.format(host=host, port=port, pair=pair)
            (directory / f"{host}.toml").write_text(text)
            (directory / host).mkdir()
        (directory / "carry").write_text(CARRY)
        (directory / "carry").chmod(0o755)
        self.settings = settings

    def install_hypervisor(self) -> None:
        """Install the hypervisor, and have the inventory follow it."""
        metadata = self.directory / "hypervisor-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: hypervisor\nVersion: 1.0\n"
        )
        entry_points = "[forewarn.drivers]\nhypervisor = hypervisor:DRIVER\n"
        (metadata / "entry_points.txt").write_text(entry_points)
        (self.directory / "hypervisor.py").write_text(HYPERVISOR)
        self.settings.write_text('inventory = "follow"\n' + self.settings.read_text())

    def see(self, host: str, *names: str, removed: tuple[str, ...] = ()) -> None:
        machines = tuple(
            SeenMachine(name=name, state=MachineState.RUNNING, ports={"vnet0": MAC})
            for name in names
        )
        seen = Seen(host=host, machines=machines, whole=True, removed=removed)
        new = self.directory / "new.json"
        new.write_bytes(msgspec.json.encode(seen))
        new.replace(self.directory / f"{host}.json")

    @contextlib.contextmanager
    def driver(self, host: str = "h1", kind: str = COMMAND) -> Iterator[Running]:
        settings = self.directory / f"{host}.toml"
        if "driver =" not in settings.read_text():
            settings.write_text(settings.read_text() + kind)
        words = ["driver", "--config", str(settings)]
        argv = [*FOREWARN, *words]
        if kind != COMMAND:
            argv = [*SCRIPT, WITH_HYPERVISOR, str(self.directory), "forewarn", *words]
        process = start(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(self.directory, RUNTIME_DIRECTORY=str(self.directory / host)),
        )
        running = Running(process, argv)
        try:
            word, _, ready = running.line().partition(" ")
            assert (word, json.loads(ready)) == ("ready", {"hosts": [host]})
            yield running
        finally:
            process.kill()
            process.wait()

    def ports(self, host: str) -> str:
        return (self.directory / host / "ports").read_text()

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
    fences = json.loads((hosts.directory / "driver-h1" / "fences").read_text())
    assert fences["fences"] == {"web-0": max(hosts.lines("observed"))}


def test_the_inventory_follows_what_happens_on_the_hosts(hosts: Hosts) -> None:
    hosts.install_hypervisor()
    hosts.see("h1", "web-0")
    hosts.see("h2")
    hypervisor = 'driver = "hypervisor"\n'
    with (
        running_service(hosts.directory, hosts.settings) as service,
        hosts.driver("h2", hypervisor),
    ):

        def follows(host: str) -> bool:
            try:
                return bool(service.get("/v1/machines/web-0")["host"] == host)
            except urllib.error.HTTPError as error:
                return error.code == 404 and host == ""

        def drift(key: str) -> list[str]:
            return [found[key] for found in service.get("/v1/drift")]

        with hosts.driver("h1", hypervisor) as first:
            body = {"type": "Redeploy", "machines": ["web-0"]}

            def announced() -> str:
                with contextlib.suppress(urllib.error.HTTPError):
                    return str(service.post("/v1/events", body)["id"])
                return ""

            event = until(announced)
            hosts.see("h2", "web-0")
            until(lambda: drift("drift") == ["unclear"])
            hosts.see("h1", removed=("web-0",))
            until(lambda: follows("h2"))
            assert hosts.ports("h1") == ""
            assert hosts.ports("h2") == f"vnet0 {MAC} web-0\n"
            assert service.get(f"/v1/events/{event}")["status"] == "Withdrawn"
            first.process.kill()
            first.process.wait()
        hosts.see("h2", removed=("web-0",))
        until(lambda: "h1" in "".join(drift("problem")))  # it may be there
        assert follows("h2")
        with hosts.driver("h1", hypervisor):
            until(lambda: follows(""))
