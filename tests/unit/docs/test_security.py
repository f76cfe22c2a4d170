"""docs/operate/security.md is covered by tests: threats.toml names some for every threat.

Whether a test really covers its threat is for people to judge; that nothing is claimed without one,
and that no class of threats is left out, is checked here.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from forewarn.drivers.command.options import CommandOptions
from forewarn.node.settings import Settings
from helpers.paths import ROOT

PAGE = (ROOT / "docs/operate/security.md").read_text()

LEAST = 5  # threats that a class has, or it was not thought about
THREATS: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("threats.toml").read_text()
)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Of the module itself: pytest would not find any other by this name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(path.read_text()).body
    return frozenset(node.name for node in body if isinstance(node, kinds))


def wrong(name: str) -> str:
    """What is wrong with the name of a test, if anything is."""
    path, _, test = name.partition("::")
    if not (ROOT / path).is_file():
        return f"no file {path}"
    return "" if test in names_in(ROOT / path) else f"no test {test!r} in {path}"


def test_every_class_of_threats_is_a_section_of_the_page() -> None:
    assert re.findall(r"^### (.*)$", PAGE, re.MULTILINE) == list(THREATS)
    assert {name: len(rows) for name, rows in THREATS.items() if len(rows) < LEAST} == {}


@pytest.mark.parametrize("name", THREATS)
def test_every_threat_names_tests_that_exist(name: str) -> None:
    assert all(THREATS[name].values())
    tests = [test for tests in THREATS[name].values() for test in tests]
    assert [found for test in tests if (found := wrong(test))] == []


@pytest.mark.parametrize(
    "name",
    [
        "tests/unit/docs/test_docs.py",
        "tests/unit/docs/test_docs.py::test_no_such",
        "tests/unit/test_no_such.py::test_docs",
        "tests/unit/docs/test_docs.py::test_the_readmes_test_passes[x]",
    ],
)
def test_a_test_that_does_not_exist_is_found(name: str) -> None:
    assert wrong(name)


def test_no_threat_is_listed_twice() -> None:
    threats = [threat for rows in THREATS.values() for threat in rows]
    assert sorted(set(threats)) == sorted(threats)


def test_every_attack_that_was_written_for_the_page_is_listed() -> None:
    tests = {test for rows in THREATS.values() for tests in rows.values() for test in tests}
    for path in (
        "tests/integration/metadata/test_threats.py",
        "tests/system/control/test_threats.py",
    ):
        attacks = {name for name in names_in(ROOT / path) if name.startswith("test_")}
        assert {f"{path}::{name}" for name in attacks} <= tests


def test_every_setting_that_is_named_exists() -> None:
    defences = PAGE.partition("## Threats and defences")[2]
    named = set(re.findall(r"`([a-z]+(?:[_.][a-z]+)+)`", defences)) - {"forewarn.nft"}
    assert len(named) > 5
    settings = set(Settings.__struct_fields__)
    settings |= {f"command.{name}" for name in CommandOptions.__struct_fields__}
    assert named - settings == set()
