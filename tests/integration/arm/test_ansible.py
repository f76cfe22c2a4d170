"""What the inventories of Ansible's azure.azcollection 3.12.0 send, replayed: it is too large to be
installed for tests. Recorded from `ansible-inventory --list`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.testing import Service
from helpers.arm import COMPUTE, SUBSCRIPTION, Arm

FLEET = """
groups:
  - {name: web, kind: scale-set, machines: [{name: web_0}, {name: web_1}]}
  - {name: jump, kind: standalone, machines: [{name: jumpbox, tags: {team: shop}}]}
  - {name: other, kind: standalone, machines: [{name: other-0}]}
"""
PUBLIC_CLOUD = "management.azure.com"
# From the documentation of azure_kql, without its join with subscriptions and network interfaces.
QUERY = """Resources
    | where type =~ 'microsoft.compute/virtualmachines'
    | project vmId = tolower(tostring(id)),
              inventory_hostname = name,
              tags,
              location,
              resourceGroup,
              osType = tostring(properties.storageProfile.osDisk.osType),
              powerState = tostring(properties.extended.instanceView.powerState.displayStatus),
              hostName = properties.osProfile.computerName,
              subscription_id = subscriptionId
    | sort by inventory_hostname asc"""


@pytest.fixture
def arm() -> Iterator[Arm]:
    with Service(FLEET) as service:
        yield Arm(service)


def test_azure_kql_finds_machines_by_its_query(arm: Arm) -> None:
    options = {"resultFormat": "objectArray", "allowPartialScopes": False}
    options["authorizationScopeFilter"] = "AtScopeAndBelow"
    path = "/providers/Microsoft.ResourceGraph/resources?api-version=2022-10-01"
    found = arm.call("POST", path, {"query": QUERY, "options": options}).json()
    assert "$skipToken" not in found
    jumpbox, other = found["data"]
    assert (jumpbox["inventory_hostname"], other["inventory_hostname"]) == ("jumpbox", "other-0")
    assert jumpbox == {
        "vmId": f"{COMPUTE}/virtualMachines/jumpbox".lower(),
        "inventory_hostname": "jumpbox",
        "tags": {"team": "shop"},
        "location": "local",
        "resourceGroup": "forewarn",
        "osType": "Linux",
        "powerState": "VM running",
        "hostName": "jumpbox",
        "subscription_id": SUBSCRIPTION.rpartition("/")[2],
    }


def batch(arm: Arm, *paths: str) -> list[Any]:
    """Return the contents of the answers. Ansible has the public cloud built in."""
    requests = [
        {
            "httpMethod": "GET",
            "url": f"https://{PUBLIC_CLOUD}{path}?api-version=2024-07-01",
            "name": f"af76366b-6081-43f1-aa70-63c7162cc0{number:02}",
        }
        for number, path in enumerate(paths)
    ]
    place, body = "/batch?api-version=2015-11-01", {"requests": requests}
    responses = arm.call("POST", place, body, Host=PUBLIC_CLOUD).json()["responses"]
    assert [each["name"] for each in responses] == [each["name"] for each in requests]
    assert {each["httpStatusCode"] for each in responses} == {200}
    return [each["content"] for each in responses]


def test_azure_rm_asks_for_machines_and_then_for_the_power_state_of_each(arm: Arm) -> None:
    everywhere = f"{SUBSCRIPTION}/providers/Microsoft.Compute"
    machines, sets = batch(
        arm, f"{everywhere}/virtualMachines", f"{everywhere}/virtualMachineScaleSets"
    )
    [scale_set] = sets["value"]
    *views, members = batch(
        arm,
        *(f"{machine['id']}/instanceView" for machine in machines["value"]),
        f"{scale_set['id']}/virtualMachines",
    )
    views += batch(arm, *(f"{member['id']}/instanceView" for member in members["value"]))
    assert [found["name"] for found in machines["value"] + members["value"]] == [
        *("jumpbox", "other-0", "web_0", "web_1")
    ]
    for view in views:
        assert "PowerState/running" in [status["code"] for status in view["statuses"]]
