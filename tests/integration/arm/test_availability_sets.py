"""Availability sets in Azure Resource Manager's API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.arm import COMPUTE, SUBSCRIPTION, Arm, code
from helpers.token_api import token

SETS = "/providers/Microsoft.Compute/availabilitySets"
FLEET = """
groups:
  - name: sql
    kind: availability-set
    machines: [{name: sql-0}, {name: sql-1, update_domain: 1, fault_domain: 1}]
  - name: far
    kind: availability-set
    resource_group: Elsewhere
    location: westeurope
    machines: [{name: far-0}]
  - name: web
    kind: scale-set
    machines: [{name: web_0}]
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def names(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [item["name"] for item in answer["value"]]


def test_availability_sets_are_listed_by_subscription_and_by_resource_group(arm: Arm) -> None:
    expand = "?$expand=virtualMachines/$ref"
    assert names(arm.get(SUBSCRIPTION + SETS + expand)) == ["far", "sql"]
    assert names(arm.get(f"{SUBSCRIPTION}/resourcegroups/ELSEWHERE{SETS}")) == ["far"]
    assert names(arm.get(f"{COMPUTE}/availabilitySets")) == ["sql"]
    assert code(arm.call("GET", f"{SUBSCRIPTION}/resourceGroups/nowhere{SETS}")) == (
        404,
        "ResourceGroupNotFound",
    )


def test_an_availability_set_has_its_domains_and_its_machines(arm: Arm) -> None:
    found = arm.get(f"{COMPUTE}/AVAILABILITYSETS/SQL".replace("Compute", "compute"))
    assert found["id"] == f"{COMPUTE}/availabilitySets/sql"
    assert found["properties"]["platformUpdateDomainCount"] == 2
    assert found["properties"]["platformFaultDomainCount"] == 2
    ids = [machine["id"] for machine in found["properties"]["virtualMachines"]]
    assert ids == [f"{COMPUTE}/virtualMachines/sql-{number}" for number in (0, 1)]
    assert arm.get(ids[1])["properties"]["availabilitySet"]["id"] == found["id"]


@pytest.mark.parametrize("name", ["web", "far", "sql2"])
def test_other_groups_are_not_availability_sets(arm: Arm, name: str) -> None:
    answer = arm.call("GET", f"{COMPUTE}/availabilitySets/{name}")
    assert code(answer) == (404, "ResourceNotFound")


def test_a_limited_token_sees_only_its_own() -> None:
    with Service(FLEET) as service:
        token(service, "all", Role.ADMIN)
        arm = Arm(service, token(service, "far", Role.VIEWER, groups=("far",)).secret.text)
        assert names(arm.get(SUBSCRIPTION + SETS)) == ["far"]
        answer = arm.call("GET", f"{COMPUTE}/availabilitySets/sql")
        assert code(answer) == (404, "ResourceNotFound")
