"""The planned maintenance of a resource in Azure Resource Manager's API, and having it done now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.testing import SAMPLE, Service
from helpers.arm import COMPUTE, RESOURCE_GROUP, SUBSCRIPTION, Arm, code, message
from helpers.token_api import token

MAINTENANCE = "/providers/Microsoft.Maintenance"
SCALE_SET = f"{COMPUTE}/virtualMachineScaleSets/web"
HOST = f"{COMPUTE}/hostGroups/hosts/hosts/host-a"
APPLY = f"{MAINTENANCE}/applyUpdates"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE) as service:
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def updates(arm: Arm, resource: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = arm.get(f"{resource}{MAINTENANCE}/updates")["value"]
    return found


def status(arm: Arm, resource: str, name: str) -> str:
    return str(arm.get(f"{resource}{APPLY}/{name}")["properties"]["status"])


def test_updates_are_the_maintenance_that_the_platform_plans(service: Service, arm: Arm) -> None:
    service.schedule("Reboot", "web_0", notice="20m", duration=9)
    service.schedule("Freeze", "web_1")
    service.schedule("Preempt", "web_2")
    service["web_3"].restart()
    instance = f"{SCALE_SET}/virtualMachines/0"
    [update] = updates(arm, instance)
    assert update.pop("notBefore").startswith("2027-01-15T08:2")
    assert update == {
        "maintenanceScope": "Host",
        "impactType": "Restart",
        "status": "Pending",
        "impactDurationInSec": 9,
        "properties": {"resourceId": instance},
    }
    assert {update["impactType"] for update in updates(arm, SCALE_SET)} == {"Restart", "Freeze"}
    assert updates(arm, f"{COMPUTE}/availabilitySets/sql") == []
    service.clock.advance("20m 2s")
    assert [update["status"] for update in updates(arm, instance)] == ["InProgress"]


def test_planned_maintenance_is_carried_out_now(service: Service, arm: Arm) -> None:
    machine = f"{COMPUTE}/virtualMachines/jumpbox"
    event = service.schedule("Redeploy", "jumpbox", duration=60)
    assert status(arm, machine, "default") == "Pending"
    answer = arm.call("PUT", f"{machine}{APPLY}/default", {})
    assert answer.status == 200, answer
    update = answer.json()
    assert update["id"] == f"{machine}{APPLY}/{update['name']}"
    assert update["properties"]["resourceId"] == machine
    assert event.status == "Started"
    assert status(arm, machine, update["name"]) == "InProgress"
    again = arm.call("PUT", f"{machine}{APPLY}/default")
    assert (again.status, again.json()["name"]) == (200, update["name"])
    for scope in (SUBSCRIPTION, RESOURCE_GROUP):
        assert [item["id"] for item in arm.get(scope + APPLY)["value"]] == [update["id"]]
    service.clock.advance("10m")
    for name in (update["name"], "default"):
        assert status(arm, machine, name) == "Completed"
    assert arm.get(SUBSCRIPTION + APPLY) == {"value": []}


def test_a_scale_set_is_done_when_all_its_machines_are(service: Service, arm: Arm) -> None:
    first = service.schedule("Reboot", "web_0", duration=60)
    second = service.schedule("Reboot", "web_1", duration=60)
    name = arm.call("PUT", f"{SCALE_SET}{APPLY}/default").json()["name"]
    assert first.approved_by == second.approved_by != ""
    assert (first.status, second.status) == ("Started", "Scheduled")  # one domain at a time
    service.clock.advance("10m")
    assert (first.status, status(arm, SCALE_SET, name)) == ("Finished", "InProgress")
    service.clock.advance("10m")
    assert status(arm, SCALE_SET, name) == "Completed"


def test_a_cancelled_update_is_shown_as_cancelled(service: Service, arm: Arm) -> None:
    service.schedule("Reboot", "web_0", duration=600)
    event = service.schedule("Reboot", "web_1")
    arm.call("PUT", f"{SCALE_SET}/virtualMachines/0{APPLY}/default")
    arm.call("PUT", f"{SCALE_SET}/virtualMachines/1{APPLY}/default")
    assert status(arm, f"{SCALE_SET}/virtualMachines/1", event.id) == "Pending"
    event.cancel()
    assert status(arm, f"{SCALE_SET}/virtualMachines/1", event.id.lower()) == "Cancelled"


def test_the_maintenance_of_a_host_is_done_for_all_its_groups(service: Service, arm: Arm) -> None:
    events = service.host("host-a").maintain("Freeze")
    assert len(events) > 1
    assert len(updates(arm, HOST.upper())) == len(events)
    assert arm.call("PUT", f"{HOST}{APPLY}/default").status == 200
    assert {event.status for event in events} == {"Started"}


def test_a_machine_without_planned_maintenance_has_no_update_to_apply(
    service: Service, arm: Arm
) -> None:
    machine = f"{COMPUTE}/virtualMachines/jumpbox"
    assert status(arm, machine, "default") == "NoUpdatesPending"
    answer = arm.call("PUT", f"{machine}{APPLY}/default")
    assert code(answer) == (409, "OperationNotAllowed")
    assert re.match("No maintenance .*jumpbox'", message(answer))
    event = service.schedule("Reboot", "web_0")
    assert code(arm.call("GET", f"{machine}{APPLY}/{event.id}")) == (404, "NotFound")
    service.schedule("Reboot", "jumpbox")
    for name, body, why in (
        ("mine", {}, "named by the service"),
        ("default", {"properties": {"status": "Cancel"}}, "properties.status"),
    ):
        answer = arm.call("PUT", f"{machine}{APPLY}/{name}", body)
        assert (code(answer), why in message(answer)) == ((409, "OperationNotAllowed"), True)
    assert arm.get(SUBSCRIPTION + APPLY) == {"value": []}


def test_a_tenant_has_the_maintenance_of_its_own_machines_done(service: Service) -> None:
    token(service, "all", Role.ADMIN)
    arm = Arm(service, token(service, "shop", Role.TENANT, groups=("web",)).secret.text)
    service.host("host-a").maintain("Freeze")
    assert len(updates(arm, SCALE_SET)) == 1
    assert code(arm.call("GET", f"{HOST}{MAINTENANCE}/updates")) == (404, "ResourceNotFound")
    assert arm.call("PUT", f"{SCALE_SET}{APPLY}/default").status == 200
    reader = Arm(service, token(service, "reads", Role.VIEWER, groups=("web",)).secret.text)
    answer = reader.call("PUT", f"{SCALE_SET}{APPLY}/default")
    assert code(answer) == (403, "AuthorizationFailed")


def test_an_apply_update_that_is_repeated_when_it_is_over_is_the_same(
    service: Service, arm: Arm
) -> None:
    service.schedule("Reboot", "web_0", notice="20m")

    def apply() -> Any:
        path = f"{SCALE_SET}{APPLY}/default"
        return arm.call("PUT", path, x_ms_client_request_id="c0ffee").json()

    first = apply()
    service.clock.advance("12m")
    assert service.events == []
    again = apply()
    assert (again["id"], again["properties"]["status"]) == (first["id"], "Completed")
