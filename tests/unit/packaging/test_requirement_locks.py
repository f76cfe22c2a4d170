"""What is installed on a fleet is what was tested: the locks agree, and name no place."""

from __future__ import annotations

import re
import tomllib

from helpers.paths import ROOT

LOCKS = ROOT / "requirements"


def pinned(name: str) -> dict[str, str]:
    text = (LOCKS / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_the_service_is_installed_with_the_versions_that_the_tests_run_with() -> None:
    tested, installed = pinned("dev.lock"), pinned("server.lock")
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


def test_all_that_the_server_needs_is_in_its_lock_and_nothing_that_only_tests_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["server"]]
    names = {re.split(r"[<>=!;\[ ]", need)[0].lower() for need in needed}
    installed = pinned("server.lock")
    assert names <= set(installed)
    assert not {"pytest", "hypothesis", "mypy", "ruff"} & set(installed)


def test_every_lock_has_hashes_and_no_address() -> None:
    for lock in LOCKS.glob("*.lock"):
        text = lock.read_text()
        assert "://" not in text, lock
        assert "--index-url" not in text
        blocks = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
        assert [block[:40] for block in blocks if "--hash=sha256:" not in block] == []
