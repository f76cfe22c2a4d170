"""All resources in one list, tags, and providers, in Azure Resource Manager's API."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from forewarn.arm import paging
from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.arm import RESOURCE_GROUP, SUBSCRIPTION, Arm
from helpers.token_api import token

FLEET = """
hosts: [{name: h1, labels: {team: shop}}]
groups:
  - name: sql
    kind: availability-set
    machines:
      - {name: sql-0, tags: {team: shop, tier: gold}}
      - {name: sql-1, tags: {team: gold}}
  - {name: near, kind: scale-set, scale_set: web, machines: [{name: web_0}]}
  - {name: away, kind: scale-set, scale_set: web, machines: [{name: web_1}]}
  - name: far
    kind: standalone
    resource_group: Far
    location: westeurope
    machines: [{name: far-0}]
"""
ALL = ["far-0", "sql", "sql-0", "sql-1", "h1", "hosts", "web"]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


@pytest.fixture(scope="module")
def arm(service: Service) -> Arm:
    return Arm(service)


def names(arm: Arm, path: str = SUBSCRIPTION, filter: str = "") -> list[str]:
    query = f"?$filter={quote(filter)}" if filter else ""
    return [item["name"] for item in arm.get(f"{path}/resources{query}")["value"]]


def test_all_resources_are_listed(arm: Arm) -> None:
    assert sorted(names(arm)) == sorted(ALL)
    assert sorted(names(arm, RESOURCE_GROUP)) == sorted({*ALL} - {"far-0"})
    assert names(arm, f"{SUBSCRIPTION}/resourceGroups/far") == ["far-0"]


def test_every_resource_is_where_its_id_says(arm: Arm) -> None:
    for item in arm.get(f"{SUBSCRIPTION}/resources")["value"]:
        found = arm.get(item["id"])
        assert {name: found[name] for name in item} == item


def test_resources_come_in_pages(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE", 2)
    listed, path = [], f"{SUBSCRIPTION}/resources"
    while path:
        page = arm.get(path)
        listed += [item["name"] for item in page["value"]]
        path = page.get("nextLink", "").partition("8171")[2]
    assert sorted(listed) == sorted(ALL)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("resourceType eq 'microsoft.compute/virtualMachines'", ["far-0", "sql-0", "sql-1"]),
        ("resourceType eq 'Microsoft.Compute/virtualMachineScaleSets'", ["web"]),
        ("name eq 'SQL-0'", ["sql-0"]),
        ("location eq 'westeurope'", ["far-0"]),
        ("resourceGroup eq 'far'", ["far-0"]),
        ("substringof('sql', name) and tagName eq 'tier'", ["sql-0"]),
        ("tagName eq 'team' and tagValue eq 'shop'", ["sql-0", "h1"]),
        ("tagname eq 'team' and tagvalue eq 'gold'", ["sql-1"]),
        ("tagName eq 'tier' and tagValue eq 'shop'", []),
        ("tagName eq ''", []),
        ("name eq 'sql-1' and tagValue eq ''", []),
    ],
)
def test_a_filter_selects_resources(arm: Arm, filter: str, expected: list[str]) -> None:
    assert names(arm, filter=filter) == expected


def test_az_resource_list_asks_for_more(arm: Arm) -> None:
    query = "$filter=&$expand=createdTime,changedTime,provisioningState"
    listed = arm.get(f"{SUBSCRIPTION}/resources?{query}")["value"]
    assert len(listed) == len(ALL)
    for item in listed:
        assert item["provisioningState"] == "Succeeded"
        assert item["createdTime"] == item["changedTime"]


def test_tags_are_counted(arm: Arm) -> None:
    tags = {tag["tagName"]: tag for tag in arm.get(f"{SUBSCRIPTION}/tagNames")["value"]}
    assert tags.keys() == {"team", "tier"}
    assert tags["team"]["count"]["value"] == 3
    values = {value["tagValue"]: value["count"]["value"] for value in tags["team"]["values"]}
    assert values == {"shop": 2, "gold": 1}


def test_providers_have_types_with_versions_and_locations(arm: Arm) -> None:
    provider = arm.get(f"{SUBSCRIPTION}/providers/microsoft.compute")
    [machines] = [t for t in provider["resourceTypes"] if t["resourceType"] == "virtualMachines"]
    assert machines["locations"] == ["local", "westeurope"]
    path = f"{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines"
    assert arm.call("GET", f"{path}?api-version={machines['apiVersions'][0]}").status == 200


def test_a_limited_token_sees_its_own() -> None:
    with Service(FLEET) as service:
        token(service, "ops", Role.ADMIN)
        arm = Arm(service, token(service, "t", Role.TENANT, groups=("sql",)).secret.text)
        assert names(arm) == ["sql", "sql-0", "sql-1", "hosts"]
