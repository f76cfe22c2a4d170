"""The workflow for whoever hosts the project: valid, pinned, and about commands that exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import Any

import pytest
import yaml

from helpers.paths import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    read: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in read.items()}  # YAML's `on`


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def commands(workflow: dict[str, Any]) -> list[list[str]]:
    lines = "\n".join(step.get("run", "") for step in steps(workflow)).splitlines()
    return [shlex.split(line) for line in lines if line.strip()]


def test_the_workflow_runs_for_every_change_on_three_systems(workflow: dict[str, Any]) -> None:
    assert set(workflow["on"]) == {"push", "pull_request"}
    jobs = workflow["jobs"]
    assert {"lint", "quick", "system", "elsewhere", "docs", "release"} == set(jobs)
    assert jobs["system"]["runs-on"].startswith("ubuntu-")
    systems = jobs["elsewhere"]["strategy"]["matrix"]["system"]
    assert {system.partition("-")[0] for system in systems} == {"macos", "windows"}
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in jobs.values())


def test_the_workflow_runs_on_every_supported_python(workflow: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    for name in ("quick", "system", "elsewhere"):
        assert workflow["jobs"][name]["strategy"]["matrix"]["python"] == named


def test_the_package_names_the_systems_that_it_runs_on(workflow: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    systems = [name for name in project["classifiers"] if name.startswith("Operating System")]
    assert len(systems) == 1 + len(workflow["jobs"]["elsewhere"]["strategy"]["matrix"]["system"])


def test_actions_are_pinned_by_commit(workflow: dict[str, Any]) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [action for action in used if not re.search(r"@[0-9a-f]{40}$", action)] == []


def test_every_command_of_the_workflow_exists(workflow: dict[str, Any]) -> None:
    ran = commands(workflow)
    paths = [word for words in ran for word in words if re.match(r"(requirements|tools)/", word)]
    assert {"requirements/dev.lock", "tools/portable-tests"} <= set(paths)
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    targets = {t for words in ran if "make" in words for t in words[words.index("make") + 1 :]}
    makefile = (ROOT / "Makefile").read_text()
    assert {"lint", "quick-tests", "test", "docs", "dist"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    extras = {extra for words in ran for word in words for extra in re.findall(r"\[(.+)\]", word)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extras <= set(project["optional-dependencies"])


def test_the_tests_that_run_everywhere_exist() -> None:
    script = (ROOT / "tools" / "portable-tests").read_text()
    tests = re.findall(r'"\$root/(tests/\S+)"', script)
    assert len(tests) > 5
    assert [test for test in tests if not (ROOT / test).exists()] == []
