"""Queries of Azure Resource Graph, by which chaos tools choose machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.arm import SUBSCRIPTION, Arm, code
from helpers.token_api import token

QUERIES = "/providers/Microsoft.ResourceGraph/resources"
MACHINES = "Resources | where type=~'Microsoft.Compute/virtualMachines'"
FLEET = """
groups:
  - {name: web, kind: scale-set, machines: [{name: web_0}, {name: web_1}]}
  - name: sql
    kind: availability-set
    machines: [{name: sql-0, tags: {team: shop}}, {name: SQL-1, tags: {my-team: x and y}}]
  - {name: far, kind: standalone, resource_group: Far, machines: [{name: far-0}]}
  - name: other
    kind: standalone
    subscription: 11111111-1111-1111-1111-111111111111
    machines: [{name: other-0}]
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


@pytest.fixture(scope="module")
def arm(service: Service) -> Arm:
    return Arm(service)


def query(arm: Arm, text: str, **body: Any) -> Any:
    answer = arm.call("POST", QUERIES, {"query": text, **body})
    assert answer.status == 200, answer
    return answer.json()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("", ["far-0", "sql-0", "SQL-1", "other-0"]),
        ("| where resourceGroup=='far'", ["far-0"]),
        ("| where resourceGroup=='Far'", []),  # Azure shows it in lower case
        ('| where resourceGroup =~ "FAR" and name=="far-0"', ["far-0"]),
        ("| where name == 'sql-1'", []),
        ("| where name =~ 'sql-1' | where tags['my-team'] == 'x and y'", ["SQL-1"]),
        ("|where tags.team=='shop'|take 2", ["sql-0"]),
        ("| where tags.team != 'shop' and name !~ 'sql-1'", ["far-0", "other-0"]),
        ("| WHERE name contains 'QL-' | LIMIT 1", ["sql-0"]),
        ("| where name startswith 'far' and name endswith '0'", ["far-0"]),
        ("| where name in ('far-0', 'sql-1')", ["far-0"]),
        ("| where name in~ ('far-0', 'sql-1')", ["far-0", "SQL-1"]),
        ("| where subscriptionId startswith '1111'", ["other-0"]),
        ("| where name == ''", []),
        ("| take 0", []),
    ],
)
def test_a_query_chooses_resources(arm: Arm, steps: str, expected: list[str]) -> None:
    found = query(arm, MACHINES + steps)
    assert [row["name"] for row in found["data"]] == expected
    assert found["totalRecords"] == found["count"] == len(expected)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "virtualMachines",
        "Resources | where",
        "Resources | where name = 'far-0'",
        "Resources | where name == far",
        "Resources | where name == 'far-0' or name == 'sql-0'",
        "Resources | where not(name == 'far-0')",
        "Resources | where name contains ''",
        "Resources | where name contains '",
        "Resources | where name == 'far-0",
        "Resources | where name == 'far-0' and",
        "Resources | where name in ()",
        "Resources | where name in ('far-0' 'sql-0')",
        "Resources | where name in ('far-0', )",
        "Resources | where properties.provisioningState == 'Succeeded'",
        "Resources | where tags == 'x'",
        "Resources | project name",
        "Resources | take many",
        "Resources | take 1 | ",
        "Resources | where name != 'x'" + " | where name != 'x'" * 32,
        "Resources " + " " * 10_000,
    ],
)
def test_any_other_query_is_refused(arm: Arm, text: str | None) -> None:
    assert code(arm.call("POST", QUERIES, {"query": text})) == (400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        {"options": {"$top": "all"}},
        {"options": {"$top": 0}},
        {"options": []},
        {"managementGroups": ["all"]},
        {"subscriptions": SUBSCRIPTION},
        {"facets": [{"expression": "location"}]},
    ],
)
def test_other_options_are_refused(arm: Arm, body: dict[str, Any]) -> None:
    assert code(arm.call("POST", QUERIES, {"query": MACHINES, **body})) == (400, "BadRequest")


def test_a_sample_is_chosen_at_random(arm: Arm) -> None:
    chosen = query(arm, f"{MACHINES} | sample 2")["data"]
    assert len({row["name"] for row in chosen}) == 2
    assert query(arm, f"{MACHINES} | sample 9")["count"] == 4


def test_an_answer_is_a_table_if_wanted(arm: Arm) -> None:
    subscriptions = [SUBSCRIPTION.rpartition("/")[2]]
    options = {"resultFormat": "table", "$top": 2}
    first = query(arm, MACHINES, subscriptions=subscriptions, options=options)
    columns = [column["name"] for column in first["data"]["columns"]]
    rows = [dict(zip(columns, row, strict=True)) for row in first["data"]["rows"]]
    assert [(row["name"], row["resourceGroup"]) for row in rows] == [
        ("far-0", "far"),
        ("sql-0", "forewarn"),
    ]
    assert (first["totalRecords"], first["resultTruncated"]) == (3, "true")
    options["$skipToken"] = first["$skipToken"]
    rest = query(arm, MACHINES, subscriptions=subscriptions, options=options)
    assert [row[1] for row in rest["data"]["rows"]] == ["SQL-1"]
    assert "$skipToken" not in rest


def test_a_limited_token_sees_its_own() -> None:
    with Service(FLEET) as service:
        token(service, "ops", Role.ADMIN)
        arm = Arm(service, token(service, "t", Role.TENANT, groups=("far",)).secret.text)
        assert [row["name"] for row in query(arm, MACHINES)["data"]] == ["far-0"]
