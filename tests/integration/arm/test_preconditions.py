"""ETags of Azure Resource Manager's API, and requests that are made only if one still holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.testing import Service
from helpers.arm import COMPUTE, RESOURCE_GROUP, Arm, code

MACHINE = f"{COMPUTE}/virtualMachines/jumpbox"
SCALE_SET = f"{COMPUTE}/virtualMachineScaleSets/web"
INSTANCE = f"{SCALE_SET}/virtualMachines/0"
FLEET = """
groups:
  - {name: jump, kind: standalone, machines: [{name: jumpbox}]}
  - {name: web, kind: scale-set, machines: [{name: web_0}, {name: web_1}]}
"""
POLICY: dict[str, Any] = {"properties": {"scheduledEventsPolicy": {"allInstancesDown": {}}}}
# Each changes what it is about.
CHANGES = [
    ("POST", f"{MACHINE}/restart", MACHINE),
    ("DELETE", MACHINE, MACHINE),
    ("POST", f"{INSTANCE}/redeploy", INSTANCE),
    ("POST", f"{SCALE_SET}/restart", SCALE_SET),
    ("PUT", SCALE_SET, SCALE_SET),
    ("PATCH", SCALE_SET, SCALE_SET),
]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        for machine in service.machines:
            machine.get()
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def body(method: str) -> Any:
    return {"sku": {"capacity": 1}} if method in ("PUT", "PATCH") else None


@pytest.mark.parametrize("path", [MACHINE, SCALE_SET, INSTANCE])
def test_an_unchanged_resource_is_not_sent_again(service: Service, arm: Arm, path: str) -> None:
    answer = arm.call("GET", path)
    tag = answer.headers["etag"]
    assert answer.json()["etag"] == tag
    service.clock.advance("1m")
    again = arm.call("GET", path, if_none_match=f"{tag}, W/{tag}")
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    service.schedule("Reboot", "jumpbox" if path == MACHINE else "web_0")
    announced = arm.call("GET", path, if_none_match=tag)
    assert announced.headers["etag"] != tag
    service.clock.advance("15m")
    started = arm.call("GET", path, if_none_match=announced.headers["etag"])
    if path != SCALE_SET:
        assert started.json()["properties"]["provisioningState"] == "Updating"


@pytest.mark.parametrize(("method", "path", "resource"), CHANGES)
def test_a_resource_that_has_changed_meanwhile_is_left_alone(
    service: Service, arm: Arm, method: str, path: str, resource: str
) -> None:
    old = arm.get(resource)["etag"]
    service.schedule("Freeze", "jumpbox" if resource == MACHINE else "web_0")
    before = service._session.node.store.seq
    for condition in (old, "nonsense", f"W/{arm.get(resource)['etag']}"):
        answer = arm.call(method, path, body(method), if_match=condition)
        assert code(answer) == (412, "PreconditionFailed")
    assert service._session.node.store.seq == before


@pytest.mark.parametrize(("method", "path", "resource"), CHANGES)
def test_one_of_two_changes_with_the_same_tag_succeeds(
    arm: Arm, method: str, path: str, resource: str
) -> None:
    headers = {"if_match": arm.get(resource)["etag"], "x_ms_client_request_id": "one"}
    first = arm.call(method, path, body(method), **headers)
    assert first.status in (200, 202)
    again = arm.call(method, path, body(method), **headers)  # after its answer was lost
    assert again.headers["azure-asyncoperation"] == first.headers["azure-asyncoperation"]
    other = {**headers, "x_ms_client_request_id": "two"}
    assert code(arm.call(method, path, body(method), **other)) == (412, "PreconditionFailed")


def test_an_update_that_changes_nothing_is_refused_too(arm: Arm) -> None:
    for headers in ({"if_match": '"other"'}, {"if_none_match": "*"}):
        answer = arm.call("PATCH", SCALE_SET, POLICY, b"", **headers)
        assert code(answer) == (412, "PreconditionFailed")
    assert arm.call("PATCH", SCALE_SET, POLICY, if_match="*").status == 200


def test_a_condition_on_a_resource_without_a_tag_is_refused(service: Service, arm: Arm) -> None:
    maintenance = f"{RESOURCE_GROUP}/providers/Microsoft.Maintenance"
    path = f"{maintenance}/maintenanceConfigurations/nights"
    for headers in ({"if_match": "*"}, {"if_none_match": "*"}):
        assert code(arm.call("PUT", path, {}, b"", **headers)) == (400, "InvalidParameter")
