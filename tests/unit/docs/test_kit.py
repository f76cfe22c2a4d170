"""docs/test/kit.md: every snippet runs, and what it names is there."""

from __future__ import annotations

import asyncio
import inspect
import re
import unittest
from typing import Any

import pytest

from forewarn import testing
from forewarn.testing import Event, Group, Host, Machine, Service
from forewarn.testing.kit.fleets import GroupDetails
from forewarn.testing.plugin import _marker_arguments
from helpers.paths import ROOT

PAGE = ROOT / "docs" / "test" / "kit.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


class _Item:
    """What the plug-in asks a test of: its markers."""

    def __init__(self, test: Any) -> None:
        self._marks = list(getattr(test, "pytestmark", []))

    def iter_markers(self, name: str) -> list[Any]:
        return [mark for mark in self._marks if mark.name == name]


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_runs(number: int) -> None:
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(SNIPPETS[number], f"snippet {number} of {PAGE.name}", "exec"), names)
    ran = 0
    for name, thing in list(names.items()):
        if name.startswith("test_"):
            ran += 1
            with Service(**_marker_arguments(_Item(thing), Service)) as service:
                if inspect.iscoroutinefunction(thing):
                    asyncio.run(thing(service))
                else:
                    thing(service)
        if isinstance(thing, type) and issubclass(thing, unittest.TestCase):
            result = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromTestCase(thing).run(result)
            assert (result.errors, result.failures) == ([], [])
            ran += result.testsRun
    assert ran or "with Service()" in SNIPPETS[number], "it does something"


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 8


def _public(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [Event, Machine, Group, Host], ids=lambda kind: kind.__name__)
def test_every_class_of_the_kit_is_described(kind: type) -> None:
    text = PAGE.read_text()
    known = {"name", "names", "host", "health", "address", "alive"}  # say what they are
    missing = [n for n in _public(kind) if n not in known and not re.search(rf"\b{n}\b", text)]
    assert missing == []


def test_every_parameter_of_a_group_is_described() -> None:
    text = PAGE.read_text()
    assert [key for key in GroupDetails.__annotations__ if f"`{key}`" not in text] == []


def test_every_public_name_is_documented() -> None:
    assert all(getattr(testing, name) is not None for name in testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        testing.Nothing  # noqa: B018
