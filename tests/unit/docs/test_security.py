"""docs/operate/security.md is held by tests: every line of it names some, and those it names exist.

Whether a test really holds its line is for people to judge; that nothing is claimed without one,
and that no class of threats is left out, is checked here.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from forewarn.drivers.command.options import CommandOptions
from forewarn.node.settings import Settings
from helpers.paths import ROOT

PAGE = ROOT / "docs/operate/security.md"

CLASSES = (
    "Guest against guest",
    "Guest against platform",
    "Request forgery through a guest's proxy",
    "Spoofed addresses",
    "Stolen tokens",
    "Privilege escalation by operators",
    "Network attackers",
    "Malicious fleet files",
    "Slow or many connections",
    "Browsers",
    "The portal",
    "Azure Resource Manager's API",
    "Local users of the host",
    "Nodes on hosts",
    "Drivers and gates",
    "Logs and terminals",
    "Backups and restores",
    "Supply chain and confinement",
    "Metrics, health and feeds",
    "Resource exhaustion of the control API",
    "Faults, verdicts and recordings",
    "Upgrades and downgrades",
    "The agent inside a machine",
)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
HEAD = "| threat | what stops it | test |"
LEAST = 5  # lines that a class has, or it was not thought about


def tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of each table of threats, by the heading that it stands under."""
    found: dict[str, list[list[str]]] = {}
    for part in text.split("\n## ")[1:]:
        heading, _, body = part.partition("\n")
        if HEAD in body:
            rows = body.partition(HEAD)[2].strip().splitlines()[1:]
            lines = [row for row in rows if row.startswith("|")]
            found[heading] = [[cell.strip() for cell in row[1:-1].split("|")] for row in lines]
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    """Of the module itself: pytest would not find any other by this name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(path.read_text()).body
    return frozenset(node.name for node in body if isinstance(node, kinds))


def wrong(row: list[str]) -> str:
    """What is wrong with a line, if anything is."""
    if len(row) != 3 or not all(row):
        return "a line is: threat | what stops it | test"
    if NAMED.sub("", row[2]).strip(", "):
        return f"not a list of `path::test`: {row[2]}"
    for path, name in NAMED.findall(row[2]):
        if not (ROOT / path).is_file():
            return f"no file {path}"
        if name not in names_in(ROOT / path):
            return f"no test {name} in {path}"
    return ""


TABLES = tables(PAGE.read_text())


def test_every_class_of_threats_has_its_lines() -> None:
    assert tuple(TABLES) == CLASSES
    assert {name: len(rows) for name, rows in TABLES.items() if len(rows) < LEAST} == {}


@pytest.mark.parametrize("name", CLASSES)
def test_every_threat_names_tests_that_exist(name: str) -> None:
    assert [found for row in TABLES[name] if (found := wrong(row))] == []


@pytest.mark.parametrize(
    "row",
    [
        ["a threat", "something", ""],
        ["a threat", "", "`tests/unit/docs/test_docs.py::test_every_command_is_documented`"],
        ["a threat", "something", "we have looked at it"],
        ["a threat", "something", "`tests/unit/docs/test_docs.py::test_no_such`"],
        ["a threat", "something", "`tests/unit/test_no_such.py::test_docs`"],
        [
            "a threat",
            "something",
            "`tests/unit/docs/test_docs.py::test_the_readmes_test_passes[x]`",
        ],
    ],
)
def test_a_threat_without_a_test_is_found(row: list[str]) -> None:
    assert wrong(row)


def test_no_threat_is_listed_twice() -> None:
    threats = [row[0] for rows in TABLES.values() for row in rows]
    assert sorted(set(threats)) == sorted(threats)


def test_every_attack_that_was_written_for_the_page_is_on_it() -> None:
    files = ["tests/integration/metadata/test_threats.py", "tests/system/control/test_threats.py"]
    for path in files:
        named = {name for file, name in NAMED.findall(PAGE.read_text()) if file == path}
        assert named == {name for name in names_in(ROOT / path) if name.startswith("test_")}


def test_every_limit_and_setting_that_is_named_exists() -> None:
    stops = " ".join(row[1] for rows in TABLES.values() for row in rows)
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    declared = set(re.findall(r"^([A-Z_]+)\b[^=\n]*= ", sources, re.MULTILINE))
    limits = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", stops))
    assert len(limits) > 20
    assert limits - declared == set()
    settings = set(Settings.__struct_fields__)
    settings |= {f"command.{name}" for name in CommandOptions.__struct_fields__}
    said = set(re.findall(r"`([a-z]+(?:[_.][a-z]+)+)`", stops)) - {"forewarn.nft"}
    assert len(said) > 10
    assert said - settings == set()
