"""docs/arm.md has all operations of Azure Resource Manager's API, and no others."""

from __future__ import annotations

import re
from itertools import product

import pytest

from forewarn.arm import app
from forewarn.arm.routes.event_grid import TOPICS
from forewarn.arm.routing import COMPUTE, MAINTENANCE, RESOURCE_GROUP, ROUTES, SUBSCRIPTION, Route
from forewarn.arm.targets import CHILD, RESOURCE
from helpers.paths import ROOT

PAGE = (ROOT / "docs/arm.md").read_text()
HEAD = "| request | az | what it does | role |"
SHORT = {
    "RESOURCE": (RESOURCE, CHILD),
    "RG": (RESOURCE_GROUP,),
    "SUB": (SUBSCRIPTION,),
    "COMPUTE": (COMPUTE.strip("/"),),
    "MAINTENANCE": (MAINTENANCE.strip("/"),),
    "TOPICS": (TOPICS.strip("/"),),
}


def rows() -> list[list[str]]:
    assert app.ROUTES, "all operations are declared"
    lines = PAGE.partition(HEAD)[2].partition("\n\n")[0].strip().splitlines()[1:]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def templates(short: str) -> list[str]:
    """Return what a path of the table stands for."""
    parts = [SHORT.get(part, (part,)) for part in short.split("/")]
    return ["/".join(chosen) for chosen in product(*parts)]


def role(route: Route) -> str:
    if route.role is None:
        return "anybody"
    return route.role.value + ("" if route.limited else ", unlimited")


def test_the_table_has_every_operation_with_its_role() -> None:
    shown = {
        (method, template): cells[3]
        for cells in rows()
        for method, path in re.findall(r"`([A-Z]+) ([^`]+)`", cells[0])
        for template in templates(path)
    }
    assert shown == {(route.method, route.template): role(route) for route in ROUTES}


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: cells[0])
def test_every_row_has_a_description(cells: list[str]) -> None:
    assert len(cells) == 4
    assert all(cells)
