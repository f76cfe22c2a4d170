"""Query options of Azure Resource Manager's API: each selects what it says, or is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from forewarn.arm import paging, routing
from forewarn.testing import Service
from helpers.arm import COMPUTE, SUBSCRIPTION, Arm, code

MACHINES = f"{COMPUTE}/virtualMachines"
SETS = f"{COMPUTE}/virtualMachineScaleSets"
WEB = f"{SETS}/web"
GROUPS = f"{SUBSCRIPTION}/resourceGroups"
FLEET = """
hosts: [h1]
groups:
  - name: web
    kind: scale-set
    machines: [{name: web_0, host: h1}, {name: web_1}, {name: web_2}]
  - {name: sql, kind: availability-set, machines: [{name: sql-0}, {name: sql-1}]}
  - {name: far, kind: standalone, resource_group: Far, machines: [{name: far-0}]}
"""
OF_WEB = f"'virtualMachineScaleSet/id' eq '{WEB}'"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


@pytest.fixture(scope="module")
def arm(service: Service) -> Arm:
    return Arm(service)


def names(arm: Arm, path: str, **options: str) -> list[str]:
    query = urlencode(
        {name if name == "statusOnly" else f"${name}": options[name] for name in options}
    )
    return [item["name"] for item in arm.get(f"{path}?{query}")["value"]]


@pytest.mark.parametrize(
    ("path", "filter", "expected"),
    [
        (MACHINES, OF_WEB, []),  # whose members are instances, not virtual machines
        (f"{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines", OF_WEB, []),
        (f"{WEB}/virtualMachines", "properties/latestModelApplied eq false", []),
        (
            f"{WEB}/virtualMachines",
            "startswith(instanceView/statuses/code, 'PowerState/running') eq true",
            ["web_0", "web_1", "web_2"],
        ),
        (f"{WEB}/virtualMachines", "startswith(instanceView/statuses/code,'PowerState/st')", []),
        (GROUPS, "tagName eq 'team' and tagValue eq 'shop'", []),
        (MACHINES, "'virtualMachineScaleSet/id' eq ''", []),  # as a script whose variable is unset
    ],
)
def test_a_filter_selects_machines_and_groups(
    arm: Arm, path: str, filter: str, expected: list[str]
) -> None:
    assert names(arm, path, filter=filter) == expected


@pytest.mark.parametrize("path", [MACHINES, f"{WEB}/virtualMachines", GROUPS])
@pytest.mark.parametrize(
    "filter",
    [
        "name eq 'web-a'",
        f"{OF_WEB} or {OF_WEB}",
        f"not {OF_WEB}",
        f"{OF_WEB} and",
        f"'virtualMachineScaleSet/id' eq {WEB}'",
        "'virtualMachineScaleSet/id' gt 'a'",
        "'virtualMachineScaleSet/id' ne 'a'",
        "startswith(instanceView/statuses/code, 'PowerState') eq false",
        "startswith(instanceView/statuses/code, '')",
        "substringof('', tagName)",
        "tagName eq 'team' and tagValue",
        "properties/latestModelApplied",
        "x" * 5_000,
    ],
)
def test_any_other_filter_is_refused(arm: Arm, path: str, filter: str) -> None:
    answer = arm.call("GET", f"{path}?$filter={quote(filter, safe='')}")
    assert code(answer) == (400, "InvalidParameter")


def test_an_and_inside_a_value_belongs_to_it(arm: Arm) -> None:
    assert names(arm, GROUPS, filter="tagName eq 'it''s this and that'") == []


@pytest.mark.parametrize(
    "query", ["$expand=instanceView", "statusOnly=true", "$EXPAND=userData,INSTANCEVIEW"]
)
def test_a_list_shows_instance_views_if_asked(arm: Arm, query: str) -> None:
    machines = arm.get(f"{MACHINES}?{query}")["value"]
    assert all("instanceView" in machine["properties"] for machine in machines)
    assert "instanceView" not in arm.get(f"{MACHINES}?statusOnly=false")["value"][0]["properties"]


def test_az_selects_the_instance_views_of_a_scale_set(arm: Arm) -> None:
    found = arm.get(f"{WEB}/virtualMachines?$select=instanceView&$expand=instanceView")["value"]
    assert all("instanceView" in member["properties"] for member in found)


@pytest.mark.parametrize(
    "query",
    [
        "$expand=instanceview,resiliencyView",
        "statusOnly=1",
        "$top=0",
        "$top=-1",
        "$top=many",
        "$top=",
        "$skiptoken=",
        "$skiptoken=500",
        "$orderby=name",
        "$select=name",
        "$top=1&$top=2",
        "$FILTER=a&$filter=b",
        "=name eq 'web-a'",  # "?$filter=name eq 'web-a'" in a shell
        "filter=a",
        "%2524filter=a",
        "%20$filter=a",
        "top=1",
    ],
)
def test_other_values_and_options_are_refused(arm: Arm, query: str) -> None:
    assert code(arm.call("GET", f"{MACHINES}?{query.replace(' ', '%20')}")) == (
        400,
        "InvalidParameter",
    )


def test_top_limits_a_list_over_all_its_pages(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE", 1)
    first = arm.get(f"{WEB}/virtualMachines?$top=2")
    assert [item["instanceId"] for item in first["value"]] == ["0"]
    last = arm.get(first["nextLink"].partition("8171")[2])
    assert [item["instanceId"] for item in last["value"]] == ["1"]
    assert "nextLink" not in last


MEMBER = "web/virtualMachines/0"
PATHS = {
    "subscription": SUBSCRIPTION.rpartition("/")[2],
    "resource_group": "forewarn",
    "name": "sql-0",
    "scale_set": "web",
    "instance": "0",
    "host_group": "hosts",
    "host": "h1",
    "resource_type": "virtualMachines",
    "resource_name": "sql-0",
    "parent_type": "virtualMachineScaleSets",
}


def test_no_operation_ignores_an_option(service: Service, arm: Arm) -> None:
    before = service._session.node.store.seq
    for route in routing.ROUTES:
        template = route.template.replace("{parent_name}/{resource_type}/{resource_name}", MEMBER)
        path = re.sub(r"\{(\w+)\}", lambda found: PATHS.get(found[1], "default"), template)
        for option in ("$filter", "$expand", "$select", "$top", "$orderby", "statusOnly"):
            answer = arm.call(route.method, f"{path}?{option}=nonsense")
            assert code(answer) == (400, "InvalidParameter"), (route.method, path, option)
    assert service._session.node.store.seq == before
