"""docs/reference/python.md lists every public name of the public modules, and no other."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from forewarn import client, testing
from forewarn.testing import scenarios, timeline
from helpers.paths import ROOT

PAGE = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
OWN_ENTRIES = {"Client", "AsyncClient", "Service"}
NOT_GENERATED = {"SAMPLE"}  # a constant; docs/test/kit.md describes it


@pytest.mark.parametrize(
    "module", [client, testing, scenarios, timeline], ids=lambda module: module.__name__
)
def test_every_public_name_is_listed(module: ModuleType) -> None:
    section = PAGE.partition(f"## {module.__name__}\n")[2].partition("\n## ")[0]
    (members,) = re.findall(r"members: \[(.+)\]", section)
    own = set(re.findall(rf"^::: {module.__name__}\.(\w+)$", section, re.MULTILINE))
    assert own <= OWN_ENTRIES
    assert set(members.split(", ")) | own == set(module.__all__) - NOT_GENERATED
