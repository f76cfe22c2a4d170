"""What is installed on a fleet is what was tested: the locks agree, and name no place."""

from __future__ import annotations

import re
import tomllib

import pytest

from helpers.paths import ROOT

LOCKS = ROOT / "requirements"


def pinned(name: str) -> dict[str, str]:
    text = (LOCKS / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("lock", ["server.lock", "node.lock", "agent.lock"])
def test_packages_contain_the_versions_that_the_tests_run_with(lock: str) -> None:
    tested, installed = pinned("dev.lock"), pinned(lock)
    assert installed
    assert {name: tested.get(name) for name in installed} == installed


def test_an_image_is_built_with_what_builds_everything_else() -> None:
    tested, building = pinned("dev.lock"), pinned("build.lock")
    assert "hatchling" in building
    assert {name: tested.get(name) for name in building} == building
    steps = (ROOT / "deploy/container/Containerfile").read_text().splitlines()
    installs = [step for step in steps if "pip install" in step]
    assert installs
    assert [step for step in installs if not re.search("--require-hashes|--no-index", step)] == []


def test_each_lock_has_exactly_what_its_requirements_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    base, server = (
        {re.split(r"[<>=!;\[ ]", need)[0].lower() for need in needed}
        for needed in (project["dependencies"], [*extras["server"], *extras["postgres"]])
    )
    assert base | server <= set(pinned("server.lock"))
    assert not {"pytest", "hypothesis", "mypy", "ruff"} & set(pinned("server.lock"))
    node = {re.split(r"[<>=!;]", need)[0] for need in extras["node"]}
    assert base | node <= set(pinned("node.lock")) < set(pinned("server.lock"))
    assert not (server - node) & set(pinned("node.lock"))
    assert base <= set(pinned("agent.lock"))
    assert not server & set(pinned("agent.lock"))


def test_the_agents_packages_run_on_every_python_that_the_project_supports() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    supported = {c.rpartition(" ")[2] for c in classifiers if "Python :: 3." in c}
    assert set((ROOT / "packaging/agent/pythons").read_text().split()) == supported


def test_every_lock_has_hashes_and_no_address() -> None:
    for lock in LOCKS.glob("*.lock"):
        text = lock.read_text()
        assert "://" not in text, lock
        assert "--index-url" not in text
        blocks = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
        assert [block[:40] for block in blocks if "--hash=sha256:" not in block] == []
