"""`forewarn dev` as a developer has it on any system: a port for each machine, the commands that
control it, a program under test, and its end. Nothing here needs Linux."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from forewarn.client import Client
from forewarn.support.system import ON_LINUX
from helpers.waiting import LIMIT

FOREWARN = [sys.executable, "-m", "forewarn"]
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
MACHINES = 200

# Approves what is announced for its own machine, and ends when it is told to.
PROGRAM = """
import os
from forewarn.client import Client

with Client() as client:
    for change in client.watch():
        event = change.event
        if event.status == "Scheduled" and os.environ["FOREWARN_MACHINE"] in event.resources:
            client.approve(event)
"""


def fleet(count: int) -> str:
    machines = ", ".join(f"{{name: web_{number}}}" for number in range(count))
    return f"groups: [{{kind: availability-zone, name: web, machines: [{machines}]}}]\n"


class Dev:
    def __init__(self, directory: Path) -> None:
        self.fleet = directory / "fleet.yaml"
        self.fleet.write_text(fleet(MACHINES))
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(directory)}
        self._stderr = (directory / "stderr").open("w+b")
        options = ["--addresses", "ports", "--clock", "virtual", "--fleet", str(self.fleet)]
        ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*FOREWARN, "dev", *options, *ports],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().decode()
        if not ready.startswith("ready "):
            self.end()
            pytest.fail((directory / "stderr").read_text())
        self.urls = json.loads(ready.removeprefix("ready "))
        self.environment["FOREWARN_URL"] = self.urls["control"]

    def end(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=LIMIT)
        self._stderr.close()
        return self.process.returncode

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*FOREWARN, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=LIMIT,
            check=False,
        )

    def machines(self) -> dict[str, str]:
        """The URL of each machine, as the API lists them."""
        listed = self.run("machine", "list", "--json")
        assert listed.returncode == 0, listed.stderr
        return {machine["name"]: machine["metadata_url"] for machine in json.loads(listed.stdout)}


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    dev = Dev(tmp_path_factory.mktemp("dev"))
    yield dev
    code = dev.end()
    assert code == 0 or os.name != "posix"  # Windows ends it at once


def name_at(url: str) -> str:
    with urlopen(Request(url + NAME, headers={"Metadata": "true"}), timeout=LIMIT) as answer:
        name: str = answer.read().decode()
        return name


def test_every_machine_is_reached_at_its_own_port(dev: Dev) -> None:
    urls = dev.machines()
    assert len(set(urls.values())) == MACHINES
    assert {name: name_at(url) for name, url in urls.items()} == {name: name for name in urls}
    assert name_at(dev.urls["metadata"]) == "web_0"


def test_ports_follow_the_fleet(dev: Dev) -> None:
    before = dev.machines()
    dev.fleet.write_text(fleet(MACHINES + 2))
    assert dev.run("apply", str(dev.fleet)).returncode == 0
    more = dev.machines()
    assert name_at(more["web_201"]) == "web_201"
    dev.fleet.write_text(fleet(MACHINES))
    assert dev.run("apply", str(dev.fleet)).returncode == 0
    assert dev.machines() == before
    with pytest.raises(OSError, match=r"refused|10061"):
        name_at(more["web_201"])


def test_events_are_seen_and_approved_at_the_port(dev: Dev) -> None:
    url = dev.machines()["web_7"]
    with Client(url) as client:
        client.events()  # so that the group is enabled
        scheduled = dev.run("event", "schedule", "Reboot", "web_7")
        assert scheduled.returncode == 0, scheduled.stderr
        watched = dev.run("watch", "--endpoint", url, "--once")
        assert [line.split()[:3] for line in watched.stdout.splitlines()[1:]] == [
            ["*", "Reboot", "Scheduled"]
        ]
        (event,) = client.events()
        client.approve(event)
        assert client.events()[0].status == "Started"


def test_a_scenario_is_played_to_a_program(dev: Dev) -> None:
    command = ["scenario", "run", "user-reboot", "--", sys.executable, "-c", PROGRAM]
    played = dev.run(*command)
    assert played.returncode == 0, played.stdout + played.stderr


def test_help_is_shown_everywhere(dev: Dev) -> None:
    shown = dev.run("--help")  # which imports the modules of all commands
    assert (shown.returncode, shown.stderr) == (0, "")


if not ON_LINUX:

    @pytest.mark.parametrize("command", [["serve"], ["run", "--", sys.executable, "-c", ""]])
    def test_commands_that_need_linux_name_it_elsewhere(dev: Dev, command: list[str]) -> None:
        refused = dev.run(*command)
        assert refused.returncode == 2
        assert "needs Linux 5.3 or newer" in refused.stderr


def test_a_program_is_run_as_a_machine_without_a_namespace(dev: Dev) -> None:
    url = dev.machines()["web_3"]
    program = "import os, sys; print(os.environ['FOREWARN_METADATA']); sys.exit(7)"
    command = ["run", "--no-netns", "--machine", "web_3", "--", sys.executable, "-c", program]
    done = dev.run(*command)
    assert (done.returncode, done.stdout.strip()) == (7, url)
