"""The action for workflows elsewhere: its steps are run as a runner runs them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.paths import ROOT
from helpers.waiting import LIMIT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
FLEET = "groups: [{name: app, kind: standalone, machines: [{name: app_0}]}]"
FREE = "--metadata 127.0.0.1:0 --control 127.0.0.1:0 --addresses ports"


class Runner:
    """Runs composite steps: expressions are replaced, and files tell later steps what was found."""

    def __init__(self, directory: Path, inputs: dict[str, str]) -> None:
        self._directory = directory
        defaults = {name: str(value["default"]) for name, value in ACTION["inputs"].items()}
        assert set(inputs) <= set(defaults)
        self._inputs = defaults | inputs
        self._files = {name: directory / name for name in ("OUTPUT", "ENV", "PATH")}
        self._steps: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "GITHUB_ACTION_PATH": str(ROOT),
            "RUNNER_TEMP": str(directory),
            **{f"GITHUB_{name}": str(file) for name, file in self._files.items()},
        }
        for file in self._files.values():
            file.touch()

    def run(self) -> None:
        for step in ACTION["runs"]["steps"]:
            added = {name: self._replaced(text) for name, text in step.get("env", {}).items()}
            assert step["shell"] == "bash"
            assert "${{" not in step["run"], "what an input says must never become a script"
            with (self._directory / "stderr").open("w+") as stderr:
                started = subprocess.Popen(
                    ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                    env=self._environment | added,
                    start_new_session=True,
                    stderr=stderr,
                )
                self._steps.append(started)
                if started.wait(LIMIT):
                    stderr.seek(0)
                    raise AssertionError(stderr.read())

    def _replaced(self, text: str) -> str:
        return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: self._inputs[found[1]], text)

    def lines(self, name: str) -> list[str]:
        return self._files[name].read_text().splitlines()

    def end(self) -> None:
        """End what a step has left running, as a runner does at the end of a job."""
        for step in self._steps:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(step.pid, signal.SIGTERM)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return tmp_path


def test_a_workflow_has_a_service_and_the_command_for_it(directory: Path) -> None:
    fleet = str(directory / "fleet.yaml")
    runner = Runner(directory, {"fleet": fleet, "arguments": FREE})
    try:
        runner.run()
        environment = dict(line.split("=", 1) for line in runner.lines("ENV"))
        outputs = dict(line.split("=", 1) for line in runner.lines("OUTPUT"))
        named = {re.search(r"outputs\.(\w+)", o["value"])[1] for o in ACTION["outputs"].values()}  # type: ignore[index]
        assert set(outputs) == named == set(ACTION["outputs"])
        assert outputs["metadata"] == environment["FOREWARN_METADATA"]
        request = urllib.request.Request(
            outputs["metadata"] + "/metadata/scheduledevents?api-version=2020-07-01",
            headers={"Metadata": "true"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            assert json.load(answer)["Events"] == []
        (path,) = runner.lines("PATH")
        assert [file.name for file in Path(path).iterdir()] == ["forewarn"]
        shown = subprocess.run(
            [f"{path}/forewarn", "clock", "show", "--json"],
            env=os.environ | {"FOREWARN_URL": outputs["control"]},
            check=True,
            capture_output=True,
            timeout=LIMIT,
        )
        assert json.loads(shown.stdout)["virtual"] is True
    finally:
        runner.end()


def test_a_service_that_does_not_start_fails_the_step_and_says_why(directory: Path) -> None:
    (directory / "fleet.yaml").write_text("groups: 1")
    runner = Runner(directory, {"fleet": str(directory / "fleet.yaml"), "arguments": FREE})
    try:
        with pytest.raises(AssertionError, match="groups"):
            runner.run()
    finally:
        runner.end()
