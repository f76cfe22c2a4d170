"""Maintenance configurations in Azure Resource Manager's API, and what they are assigned to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.testing import SAMPLE, Service
from forewarn.testing.kit.inprocess import Response
from helpers.arm import COMPUTE, RESOURCE_GROUP, SUBSCRIPTION, Arm, code, message
from helpers.token_api import token

MAINTENANCE = "/providers/Microsoft.Maintenance"
ALL = f"{MAINTENANCE}/maintenanceConfigurations"
NIGHTS = f"{RESOURCE_GROUP}{ALL}/nights"
ASSIGNMENTS = f"{MAINTENANCE}/configurationAssignments"
SCALE_SET = f"{COMPUTE}/virtualMachineScaleSets/web"
JUMPBOX = f"{COMPUTE}/virtualMachines/jumpbox"
WINDOW = {
    "startDateTime": "2027-01-10 22:00",
    "duration": "06:00",
    "timeZone": "W. Europe Standard Time",
    "recurEvery": "Week Saturday,Sunday",
}


def body(window: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    wanted = {"maintenanceScope": "Host", "maintenanceWindow": window or WINDOW, **properties}
    return {"location": "westeurope", "properties": wanted}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE) as service:
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def kept(service: Service) -> dict[str, tuple[str, list[str], list[str]]]:
    """Return the configurations of the fleet: their selectors, windows and blackouts."""
    registry = service._session.node.store.registry
    return {
        name: (c.select, [w.text for w in c.windows], [b.text for b in c.blackouts])
        for name, c in registry.configurations.items()
    }


def assign(arm: Arm, resource: str, configuration: str, name: str = "mine") -> Response:
    id = f"{RESOURCE_GROUP}{ALL}/{configuration}"
    wanted = {"properties": {"maintenanceConfigurationId": id, "resourceId": resource}}
    return arm.call("PUT", f"{resource}{ASSIGNMENTS}/{name}", wanted)


def assigned(arm: Arm, resource: str) -> dict[str, str]:
    """Return the names of the assignments of a resource, and of their configurations."""
    return {
        found["name"]: found["properties"]["maintenanceConfigurationId"].rpartition("/")[2]
        for found in arm.get(f"{resource}{ASSIGNMENTS}")["value"]
    }


def test_a_configuration_is_put_read_changed_and_deleted(service: Service, arm: Arm) -> None:
    answer = arm.call("PUT", NIGHTS, body())
    assert answer.status == 200, answer
    assert kept(service) == {
        "nights": (
            "maintenance/nights",
            ["sat,sun 22:00-04:00 Europe/Berlin"],
            ["1970-01-01 to 2027-01-10 22:00 Europe/Berlin"],
        )
    }
    found = arm.get(NIGHTS.upper())
    assert found == answer.json()
    assert (found["id"], found["properties"]["maintenanceWindow"]) == (NIGHTS, WINDOW)
    for scope in (SUBSCRIPTION, RESOURCE_GROUP):
        assert arm.get(scope + ALL)["value"] == [found]
    before = service._session.node.store.seq
    assert arm.call("PUT", f"{RESOURCE_GROUP}{ALL}/NIGHTS", found).json() == found
    absent = dict.fromkeys(["namespace", "visibility", "installPatches", "extensionProperties"])
    wanted = body({**WINDOW, "expirationDateTime": None}, **absent)  # null is as absent
    assert arm.call("PUT", NIGHTS, {**wanted, "tags": None}).json() == found
    assert service._session.node.store.seq == before
    change = {"properties": {"maintenanceWindow": {"duration": "02:00"}}}
    changed = arm.call("PATCH", NIGHTS, change).json()
    assert changed["properties"]["maintenanceWindow"] == {**WINDOW, "duration": "02:00"}
    assert kept(service)["nights"][1] == ["sat,sun 22:00-24:00 Europe/Berlin"]
    answers = [arm.call("DELETE", NIGHTS) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 204]
    assert answers[0].json() == changed
    assert (kept(service), code(arm.call("GET", NIGHTS))) == ({}, (404, "ResourceNotFound"))
    assert code(arm.call("PATCH", NIGHTS, change)) == (404, "ResourceNotFound")


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (body(maintenanceScope="InGuestPatch"), "properties.maintenanceScope"),
        (body(maintenanceScope=None), "properties.maintenanceScope"),
        (body(visibility="Public"), "properties.visibility"),
        (body(installPatches={"rebootSetting": "Always"}), "properties.installPatches"),
        (body(maintenanceWindow=None), "properties.maintenanceWindow"),
        (body(maintenanceWindow="nightly"), "properties.maintenanceWindow"),
        (body({**WINDOW, "recurEvery": "3Days"}), "properties.maintenanceWindow.recurEvery"),
        (body({**WINDOW, "timeZone": "Mars"}), "properties.maintenanceWindow.timeZone"),
        (body({**WINDOW, "duration": "00:03"}), "properties.maintenanceWindow: "),
        (body(extensionProperties={"a": "b"}), "properties.extensionProperties.a"),
        (body(extensionProperties={"windows": "22:00-04:00"}), "properties.maintenanceWindow"),
        (body(extensionProperties={"select": "a=b=c"}), "properties.extensionProperties.select: "),
        (
            body(extensionProperties={"blackouts": "?"}),
            "properties.extensionProperties.blackouts: ",
        ),
        ({**body(), "tags": {"a": "b"}}, "tags"),
        ({}, "properties.maintenanceScope"),
    ],
)
def test_a_configuration_that_cannot_be_expressed_is_refused(
    service: Service, arm: Arm, wanted: dict[str, Any], name: str
) -> None:
    answer = arm.call("PUT", NIGHTS, wanted)
    assert (code(answer), name in message(answer)) == ((400, "InvalidParameter"), True), answer
    assert kept(service) == {}


def test_a_name_has_to_fit_into_a_label(service: Service, arm: Arm) -> None:
    for name in ("n" * 52, "nights_", "a%20b"):
        answer = arm.call("PUT", f"{RESOURCE_GROUP}{ALL}/{name}", body())
        assert (code(answer), message(answer)[:6]) == ((400, "InvalidParameter"), "name: ")
    assert kept(service) == {}


def test_a_configuration_of_the_fleet_can_be_sent_back() -> None:
    fleet = """
maintenance:
  - name: nights
    select: tier=web
    windows: ["sat 22:00-04:00", "2nd tue 01:00-05:00 Europe/Berlin"]
    blackouts: ["2027-12-24", "2027-12-30 to 2028-01-02"]
  - {name: freeze, blackouts: ["2027-12-24"]}
  - {name: days, windows: ["day 1,15 09:00-17:00 UTC"]}
groups: [{name: web, kind: scale-set, labels: {tier: web}, machines: [{name: web_0}]}]
"""
    with Service(fleet) as service:
        arm, before = Arm(service), kept(service)
        found = arm.get(SUBSCRIPTION + ALL)["value"]
        assert [item["name"] for item in found] == ["days", "freeze", "nights"]
        assert "maintenanceWindow" not in found[2]["properties"]
        for item in found:
            assert arm.call("PUT", item["id"], item).json() == item
        assert kept(service) == before
        scale_set = f"{COMPUTE}/virtualMachineScaleSets/web"
        assert assigned(arm, scale_set) == {name: name for name in before}
        for name, why in (("nights", "'tier=web'"), ("freeze", "all machines")):
            answer = arm.call("DELETE", f"{scale_set}{ASSIGNMENTS}/{name}")
            assert (code(answer)[0], why in message(answer)) == (409, True)


def test_a_configuration_holds_only_what_it_is_assigned_to(service: Service, arm: Arm) -> None:
    arm.call("PUT", NIGHTS, body())
    assert [assign(arm, SCALE_SET, "nights").status for _ in range(2)] == [200, 200]
    assert assign(arm, JUMPBOX.upper(), "NIGHTS", "vm").status == 200
    assert assigned(arm, SCALE_SET) == assigned(arm, f"{SCALE_SET}/virtualMachines/0")
    assert assigned(arm, SCALE_SET) == {"mine": "nights"}
    assert assigned(arm, f"{COMPUTE}/availabilitySets/sql") == {}
    assert {item["id"] for item in arm.get(SUBSCRIPTION + ASSIGNMENTS)["value"]} == {
        f"{SCALE_SET}{ASSIGNMENTS}/mine",
        f"{JUMPBOX}{ASSIGNMENTS}/vm",
    }
    held = [service.schedule("Freeze", name) for name in ("web_0", "jumpbox")]
    free = service.schedule("Freeze", "sql-0")
    assert [event.not_before.isoformat() for event in held] == ["2027-01-16T21:00:00+00:00"] * 2
    assert free.not_before.isoformat() < "2027-01-15T09"
    assert code(arm.call("DELETE", NIGHTS)) == (409, "OperationNotAllowed")
    inherited = f"{SCALE_SET}/virtualMachines/0{ASSIGNMENTS}/mine"
    assert code(arm.call("DELETE", inherited)) == (409, "OperationNotAllowed")
    for resource, name in ((SCALE_SET, "MINE"), (JUMPBOX, "vm")):
        path = f"{resource}{ASSIGNMENTS}/{name}"
        assert [arm.call("DELETE", path).status for _ in range(2)] == [200, 204]
        assert code(arm.call("GET", path)) == (404, "ResourceNotFound")
    assert service.schedule("Freeze", "web_1").not_before == free.not_before
    assert arm.call("DELETE", NIGHTS).status == 200


def test_an_assignment_is_replaced(arm: Arm) -> None:
    for name in ("nights", "days"):
        arm.call("PUT", f"{RESOURCE_GROUP}{ALL}/{name}", body())
    assert assign(arm, JUMPBOX, "nights").status == 200
    assert assign(arm, JUMPBOX, "days").status == 200
    assert assigned(arm, JUMPBOX) == {"mine": "days"}
    assert assign(arm, JUMPBOX, "nights", "other").status == 200
    assert assigned(arm, JUMPBOX) == {"mine": "days", "other": "nights"}
    for wanted, why in (("nights", "as 'other'"), ("unknown", "no maintenance configuration")):
        answer = assign(arm, JUMPBOX, wanted)
        assert (answer.status in (404, 409), why in message(answer)) == (True, True)
    answer = assign(
        arm, f"{COMPUTE}/availabilitySets/sql", "nights", "two words".replace(" ", "%20")
    )
    assert (code(answer)[0], "label value" in message(answer)) == (400, True)


def test_a_configuration_that_selects_by_other_labels_is_not_assigned(
    service: Service, arm: Arm
) -> None:
    arm.call("PUT", NIGHTS, body(extensionProperties={"select": "tier=web"}))
    assert assigned(arm, SCALE_SET) == {"nights": "nights"}
    answer = assign(arm, JUMPBOX, "nights")
    assert (code(answer)[0], "'tier=web'" in message(answer)) == (409, True)
    assert assigned(arm, JUMPBOX) == {}
    assert kept(service)["nights"][0] == "tier=web"


def test_configurations_are_for_operators_of_the_whole_fleet() -> None:
    fleet = "groups: [{name: web, kind: standalone, resource_group: shop, machines: [{name: web}]}]"
    with Service(fleet) as service:
        arm = Arm(service)
        shop = f"{SUBSCRIPTION}/resourceGroups/shop{ALL}"
        assert arm.get(shop) == {"value": []}
        answer = arm.call("PUT", f"{shop}/nights", body())
        assert (code(answer)[0], "resource group 'forewarn'" in message(answer)) == (409, True)
        assert code(arm.call("GET", f"{RESOURCE_GROUP}x{ALL}")) == (404, "ResourceGroupNotFound")
        token(service, "all", Role.ADMIN)
        reader = Arm(service, token(service, "reads", Role.VIEWER).secret.text)
        limited = Arm(service, token(service, "one", Role.OPERATOR, groups=("web",)).secret.text)
        machine = f"{SUBSCRIPTION}/resourceGroups/shop/providers/Microsoft.Compute"
        machine += "/virtualMachines/web"
        assert reader.get(SUBSCRIPTION + ALL) == {"value": []}
        for refused in (
            reader.call("PUT", NIGHTS, body()),
            limited.call("PUT", NIGHTS, body()),
            limited.call("GET", NIGHTS),
            assign(reader, machine, "nights"),
            assign(limited, machine, "nights"),
        ):
            assert code(refused) == (403, "AuthorizationFailed")
        assert kept(service) == {}
