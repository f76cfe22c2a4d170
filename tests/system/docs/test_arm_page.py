"""docs/arm.md: what `forewarn dev --arm` prints is pasted into a shell with az, and the programs of
the page are run with Azure's SDK for Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from helpers.doc_snippets import Block, blocks
from helpers.forked_cli import FOREWARN, start
from helpers.netns import require
from helpers.paths import ROOT
from helpers.process import Running
from helpers.serve_process import environment
from helpers.waiting import LIMIT

AZURE = ROOT / ".venv-azure"
POLL = "/metadata/scheduledevents?api-version=2020-07-01"
SPEED = "600"  # of the service: a notice of 15 minutes takes a second and a half
# Runs a test of the page where forewarn is, with the SDKs of another environment behind our own.
IN_A_TEST = "import sys; sys.path += sys.argv[1:]; exec(sys.stdin.read())"


class Dev:
    """`forewarn dev --arm`, and a shell into which its lines were pasted."""

    def __init__(self, room: Path, running: Running, urls: dict[str, str]) -> None:
        self._room = room
        self._printed = [line.rstrip() for line in running.stderr]
        self.control = urls["control"]

    def lines(self, *words: str) -> list[str]:
        """Return the printed commands that begin with one of these words."""
        return [line for line in self._printed if line.startswith(tuple(f"  {w}" for w in words))]

    def poll(self) -> None:
        """Poll as the first machine, so that its group is warned of what happens."""
        url = self.lines("http")[0].split()[0]
        with urlopen(Request(url + POLL, headers={"Metadata": "true"}), timeout=LIMIT) as answer:
            assert answer.status == 200

    def shell(self, *lines: str, text: str = "") -> str:
        """Run lines after the printed exports. Return what they print."""
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join([*self.lines("export"), *lines])],
            cwd=self._room,
            env={
                "PATH": f"{self._room}/bin:{AZURE}/bin:{os.environ['PATH']}",
                "HOME": str(self._room),
                "LANG": "C.UTF-8",
            },
            input=text,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def events(self) -> list[tuple[str, str]]:
        with urlopen(f"{self.control}/v1/events?status=Finished", timeout=LIMIT) as answer:
            return [(event["type"], event["source"]) for event in json.load(answer)]


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    require((AZURE / ".ready").exists(), "Azure's programs: make .venv-azure/.ready")
    room = tmp_path_factory.mktemp("arm")
    az = room / "bin" / "az"  # as pip installs it, it cannot be run from a path with a space
    az.parent.mkdir()
    az.write_text(f'#!/bin/sh\nexec "{AZURE}/bin/python" -m azure.cli "$@"\n')
    az.chmod(0o755)
    ports = [f"--{name}=127.0.0.1:0" for name in ("metadata", "control", "arm-address")]
    argv = [*FOREWARN, "dev", "--speed", SPEED, *ports]
    pipe = subprocess.PIPE
    process = start(
        argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment(room)
    )
    running = Running(process, argv)
    try:
        dev = Dev(room, running, json.loads(running.line(LIMIT).removeprefix("ready ")))
        dev.poll()
        yield dev
    finally:
        running.stop()


@pytest.fixture(scope="module")
def programs() -> list[Block]:
    page = (ROOT / "docs/arm.md").read_text("utf-8")
    return [block for block in blocks(page) if block.language in ("python", "js")]


def test_az_does_what_is_pasted_and_leaves_its_profile_alone(dev: Dev, tmp_path: Path) -> None:
    assert '"status": "Succeeded"' in dev.shell(f"HOME={tmp_path}", *dev.lines("az"))
    assert list(tmp_path.iterdir()) == []
    assert ("Reboot", "User") in dev.events()


def test_the_program_in_python_restarts_a_machine(dev: Dev, programs: list[Block]) -> None:
    output = dev.shell("python -", text=programs[0].body)
    assert output.splitlines()[0].startswith("['jumpbox', ")
    assert output.splitlines()[-1] == "Succeeded"


def test_the_program_in_javascript_is_one(programs: list[Block], tmp_path: Path) -> None:
    """Its packages are nowhere that tests can have them from; only its syntax is checked here."""
    require(shutil.which("node"), "Node: apt-get install nodejs")
    program = tmp_path / "recipe.mjs"
    program.write_text(programs[1].body)
    subprocess.run(["node", "--check", str(program)], check=True, timeout=LIMIT)


@pytest.mark.parametrize(
    "name",
    [
        "test_a_restart_is_announced_before_it_happens",
        "test_machines_are_counted_by_location",
        "test_every_status_is_received",
    ],
)
def test_the_tests_of_the_page_pass(programs: list[Block], name: str) -> None:
    require((AZURE / ".ready").exists(), "Azure's programs: make .venv-azure/.ready")
    places = [str(path) for path in AZURE.glob("lib/python*/site-packages")]
    test = next(block.body for block in programs if f"def {name}" in block.body)
    done = subprocess.run(
        [sys.executable, "-c", IN_A_TEST, *places],
        input=f"{test}\n\n{name}()\n",
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
