"""Virtual machines in Azure Resource Manager's API."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from forewarn.testing.kit.inprocess import Response
from helpers.arm import COMPUTE, SUBSCRIPTION, Arm, code, message
from helpers.token_api import token

MACHINES = f"{COMPUTE}/virtualMachines"
FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, host: h1, update_domain: 3, fault_domain: 1, tags: {team: shop}}
      - {name: web-1, host: h2, update_domain: 4, fault_domain: 2}
  - name: batch
    kind: standalone
    machines: [{name: batch-0, spot: true, host: h1}]
  - name: far
    kind: standalone
    subscription: 11111111-2222-3333-4444-555555555555
    resource_group: Elsewhere
    location: westeurope
    zone: "2"
    machines: [{name: far-0}]
  - name: flex
    kind: scale-set
    machines: [{name: flex_0}, {name: flex_1}]
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def test_virtual_machines_are_listed_by_subscription_and_by_resource_group(arm: Arm) -> None:
    listed = arm.get(f"{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines")["value"]
    assert [item["name"] for item in listed] == ["batch-0", "web-0", "web-1"]
    assert listed == arm.get(MACHINES.upper().replace("SUBSCRIPTIONS", "subScriptions"))["value"]
    far = "/subscriptions/11111111-2222-3333-4444-555555555555"
    [item] = arm.get(f"{far}/resourcegroups/elsewhere/providers/Microsoft.Compute/virtualMachines")[
        "value"
    ]
    assert item["id"] == f"{far}/resourceGroups/Elsewhere/providers/Microsoft.Compute" + (
        "/virtualMachines/far-0"
    )
    assert (item["location"], item["zones"]) == ("westeurope", ["2"])
    assert [s["subscriptionId"] for s in arm.get("/subscriptions")["value"]] == [
        SUBSCRIPTION.rpartition("/")[2],
        far.rpartition("/")[2],
    ]
    groups = arm.get(f"{far}/resourceGroups")["value"]
    assert [(group["name"], group["location"]) for group in groups] == [("Elsewhere", "westeurope")]


def test_a_machine_shows_its_host_and_its_planned_maintenance(service: Service, arm: Arm) -> None:
    service["web-0"].get()
    found = arm.get(f"{MACHINES}/WEB-0?$EXPAND=InstanceView")
    assert (found["name"], found["tags"]) == ("web-0", {"team": "shop"})
    properties = found["properties"]
    assert properties["availabilitySet"]["id"].endswith("/availabilitySets/web")
    assert properties["host"]["id"].endswith("/hostGroups/hosts/hosts/h1")
    view = properties["instanceView"]
    assert (view["platformUpdateDomain"], view["platformFaultDomain"]) == (3, 1)
    assert [status["code"] for status in view["statuses"]] == [
        "ProvisioningState/succeeded",
        "PowerState/running",
    ]
    assert "maintenanceRedeployStatus" not in view
    assert "instanceView" not in arm.get(f"{MACHINES}/web-0")["properties"]
    event = service.schedule("Reboot", "web-0", duration=300)
    view = arm.get(f"{MACHINES}/web-0/instanceView")
    status = view["maintenanceRedeployStatus"]
    assert status["isCustomerInitiatedMaintenanceAllowed"] is True
    not_before = event.not_before.isoformat().replace("+00:00", "Z")
    assert status["maintenanceWindowStartTime"] == not_before


def test_fields_that_clients_index_are_present(arm: Arm) -> None:
    machine = arm.get(f"{MACHINES}/web-0")["properties"]
    scale_set = arm.get(f"{COMPUTE}/virtualMachineScaleSets/flex")["properties"]
    profile = scale_set["virtualMachineProfile"]
    for storage in (machine["storageProfile"], profile["storageProfile"]):
        assert storage["osDisk"]["caching"] == "ReadWrite"
        assert storage["osDisk"]["managedDisk"]["storageAccountType"]
        assert storage["imageReference"].keys() == {"publisher", "offer", "sku", "version"}
        assert storage["dataDisks"] == []
    for os_profile in (machine["osProfile"], profile["osProfile"]):
        assert os_profile["adminUsername"]
    assert machine["timeCreated"] == scale_set["timeCreated"]
    view = arm.get(f"{MACHINES}/web-0/instanceView")
    disk = machine["storageProfile"]["osDisk"]
    assert view["disks"][0]["name"] == disk["name"]
    assert disk["managedDisk"]["id"].endswith(f"/disks/{disk['name']}")
    assert view["vmAgent"]["statuses"]


def test_a_spot_machine_has_spot_priority(arm: Arm) -> None:
    properties = arm.get(f"{MACHINES}/batch-0")["properties"]
    assert (properties["priority"], properties["evictionPolicy"]) == ("Spot", "Delete")


@pytest.mark.parametrize("name", ["nobody", "far-0", "flex_0", "0"])
def test_machines_outside_of_the_resource_group_are_not_found(arm: Arm, name: str) -> None:
    answer = arm.call("GET", f"{MACHINES}/{name}")
    assert code(answer) == (404, "ResourceNotFound")
    assert f"'Microsoft.Compute/virtualMachines/{name}'" in message(answer)


@pytest.mark.parametrize(("verb", "type"), [("restart", "Reboot"), ("redeploy", "Redeploy")])
def test_a_guest_is_asked_while_the_caller_waits(
    service: Service, arm: Arm, verb: str, type: str
) -> None:
    service["web-0"].get()
    answer = arm.call("POST", f"{MACHINES}/web-0/{verb}")
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (202, b"", "1")
    [event] = service["web-0"].document()["Events"]
    assert (event["EventType"], event["EventSource"]) == (type, "User")
    assert arm.status_of(answer) == "InProgress"
    service["web-0"].approve(event["EventId"])
    service.clock.advance("1h")
    assert service["web-0"].document()["Events"] == []
    assert arm.status_of(answer) == "Succeeded"
    assert arm.result_of(answer).status == 200


def test_an_unapproved_restart_starts_at_its_not_before(service: Service, arm: Arm) -> None:
    service["web-0"].get()
    answer = arm.call("POST", f"{MACHINES}/web-0/restart")
    service.clock.advance("10m")
    assert arm.status_of(answer) == "InProgress"
    waiting = arm.get(f"{MACHINES}/web-0?$expand=instanceView")["properties"]
    assert waiting["provisioningState"] == "Updating"  # for `az vm wait --updated`
    assert [status["code"] for status in waiting["instanceView"]["statuses"]] == [
        "ProvisioningState/updating",
        "PowerState/running",
    ]
    assert arm.result_of(answer).status == 202
    service.clock.advance("1h")
    assert arm.status_of(answer) == "Succeeded"
    assert arm.get(f"{MACHINES}/web-0")["properties"]["provisioningState"] == "Succeeded"


def test_a_cancelled_operation_shows_who_cancelled_it_and_why(service: Service, arm: Arm) -> None:
    service["web-0"].get()
    answer = arm.call("POST", f"{MACHINES}/web-0/restart")
    service.events[0].cancel("not today")
    status = arm.operation(answer)
    assert (status["status"], status["error"]["code"]) == ("Canceled", "OperationCanceled")
    assert "not today" in status["error"]["message"]
    assert code(arm.result_of(answer)) == (409, "OperationCanceled")


def test_an_operation_that_is_held_shows_the_reason(service: Service, arm: Arm) -> None:
    service["web-0"].get()
    answer = arm.call("POST", f"{MACHINES}/web-0/restart")
    status = arm.operation(answer)
    assert status["status"] == "InProgress"
    [event] = service.events
    assert status["properties"]["events"] == [event.id]
    assert status["properties"]["message"] == f"Reboot {event.id}: {event.explain()}"


def test_retry_after_gets_shorter_towards_the_end_of_an_operation(
    service: Service, arm: Arm
) -> None:
    """On a real clock; on a virtual one, time may have passed at once."""
    service["web-0"].get()
    answer = arm.call("POST", f"{MACHINES}/web-0/restart")
    path = answer.headers["azure-asyncoperation"].partition("8171")[2]

    def waits() -> int:
        return int(arm.call("GET", path).headers["retry-after"])

    assert waits() == 1
    arm._app._context = msgspec.structs.replace(arm._app._context, virtual_time=None)
    seconds = [waits()]
    for _ in range(14):
        service.clock.advance("1m")
        seconds.append(waits())
    assert seconds == sorted(seconds, reverse=True)
    assert (seconds[0], seconds[-1]) == (15, 2)


def test_a_repeated_request_raises_nothing_more(service: Service, arm: Arm) -> None:
    service["web-0"].get()

    def ask(machine: str) -> Response:
        path = f"{MACHINES}/{machine}/restart"
        return arm.call("POST", path, x_ms_client_request_id="c0ffee")

    first = ask("web-0")
    again = ask("WEB-0")
    assert again.headers["azure-asyncoperation"] == first.headers["azure-asyncoperation"]
    service["web-0"].approve(*[event.id for event in service.events])
    service.clock.advance("12m")
    late = ask("web-0")
    assert arm.status_of(late) == "Succeeded"
    assert service.events == []
    other = ask("web-1")  # az has one id for a command
    assert arm.status_of(other) == "InProgress"
    anew = arm.call("POST", f"{MACHINES}/web-0/restart")
    assert [event.resources for event in service.events] == [("web-1",), ("web-0",)]
    assert arm.status_of(anew) == "InProgress"


def test_a_client_id_that_never_changes_starts_a_new_operation_after_each_end(
    service: Service, arm: Arm
) -> None:
    """As with a pipeline whose id is that of the whole run."""
    operations = []
    for _ in range(6):
        service["web-0"].get()
        answer = arm.call("POST", f"{MACHINES}/web-0/restart", x_ms_client_request_id="pipeline")
        assert arm.status_of(answer) == "InProgress"
        again = arm.call("POST", f"{MACHINES}/web-0/restart", x_ms_client_request_id="pipeline")
        assert again.headers["location"] == answer.headers["location"]
        operations.append(answer)
        [event] = service.events
        event.approve()
        service.clock.advance("1h")
    assert len({answer.headers["location"] for answer in operations}) == 6
    assert {arm.status_of(answer) for answer in operations} == {"Succeeded"}


def test_a_request_repeated_after_its_end_gets_the_same_operation(
    service: Service, arm: Arm
) -> None:
    """Its answer may have been lost, with the service or the connection."""
    service["web-0"].get()
    service["web-1"].get()
    service.schedule("Redeploy", "web-0")
    by_hand = service["web-1"].restart()
    verbs = {
        f"{MACHINES}/web-0/performMaintenance": 202,
        f"{MACHINES}/web-1/restart": 202,  # for which that by hand is waited
    }

    def ask() -> list[Response]:
        return [arm.call("POST", path, x_ms_client_request_id="c0ffee") for path in verbs]

    first = ask()
    assert [answer.status for answer in first] == list(verbs.values())
    service["web-1"].approve(by_hand.id)
    service.clock.advance("12m")
    again = ask()
    assert [answer.status for answer in again] == list(verbs.values())
    for answer, repeated in zip(first, again, strict=True):
        assert repeated.headers["location"] == answer.headers["location"]
        assert arm.status_of(repeated) == "Succeeded"
    assert service.events == []


def test_an_eviction_that_is_repeated_when_the_machine_is_gone_is_fine(
    service: Service, arm: Arm
) -> None:
    path = f"{MACHINES}/batch-0/simulateEviction"
    assert arm.call("POST", path, x_ms_client_request_id="c0ffee").status == 204
    service.clock.advance("3m")
    assert not service["batch-0"].alive
    assert arm.call("POST", path, x_ms_client_request_id="c0ffee").status == 204


def test_a_request_for_an_announced_event_waits_for_that_event(service: Service, arm: Arm) -> None:
    service["web-0"].get()
    by_hand = service["web-0"].restart()
    answer = arm.call("POST", f"{MACHINES}/web-0/restart")
    second = arm.call("POST", f"{MACHINES}/web-0/restart")
    assert [event.id for event in service.events] == [by_hand.id]
    assert arm.operation(answer)["properties"]["events"] == [by_hand.id]
    service["web-0"].approve(by_hand.id)
    service.clock.advance("1h")
    assert arm.status_of(answer) == arm.status_of(second) == "Succeeded"


def test_maintenance_that_is_planned_can_be_done_now(service: Service, arm: Arm) -> None:
    service["web-0"].get()
    refused = arm.call("POST", f"{MACHINES}/web-0/performMaintenance")
    assert code(refused) == (409, "OperationNotAllowed")
    planned = service.schedule("Redeploy", "web-0")
    answer = arm.call("POST", f"{MACHINES}/web-0/performMaintenance")
    assert answer.status == 202
    assert planned.status == "Started"
    service.clock.advance("1h")
    assert arm.status_of(answer) == "Succeeded"


def test_only_spot_machines_are_evicted(service: Service, arm: Arm) -> None:
    service["batch-0"].get()
    assert arm.call("POST", f"{MACHINES}/batch-0/simulateEviction").status == 204
    [event] = service["batch-0"].document()["Events"]
    assert event["EventType"] == "Preempt"
    refused = arm.call("POST", f"{MACHINES}/web-0/simulateEviction")
    assert refused.status == 409
    service.clock.advance("5m")
    assert code(arm.call("GET", f"{MACHINES}/batch-0")) == (404, "ResourceNotFound")


def test_a_deleted_machine_is_gone_and_deleting_it_again_is_fine(
    service: Service, arm: Arm
) -> None:
    answer = arm.call("DELETE", f"{MACHINES}/web-0")
    assert answer.status == 202
    service.clock.advance("30m")
    assert arm.status_of(answer) == "Succeeded"
    assert code(arm.call("GET", f"{MACHINES}/web-0")) == (404, "ResourceNotFound")
    assert arm.call("DELETE", f"{MACHINES}/web-0").status == 204


@pytest.mark.parametrize("verb", ["powerOff", "deallocate", "start", "reimage", "POWEROFF"])
def test_power_operations_are_refused_as_not_offered(service: Service, arm: Arm, verb: str) -> None:
    answer = arm.call("POST", f"{MACHINES}/web-0/{verb}")
    assert code(answer) == (409, "OperationNotAllowed")
    assert "does not offer" in message(answer)
    assert service.events == []
    assert "retry-after" not in answer.headers


def test_the_history_shows_the_caller(service: Service) -> None:
    arm = Arm(service, token(service, "ops", Role.ADMIN).secret.text)
    service["web-0"].get()
    arm.call("POST", f"{MACHINES}/web-0/restart")
    [event] = service._session.node.active_events
    assert (event.by, event.cause[:4]) == ("ops", "arm/")


def test_an_operation_of_another_caller_is_not_found(service: Service) -> None:
    admin = Arm(service, token(service, "ops", Role.ADMIN).secret.text)
    answer = admin.call("POST", f"{MACHINES}/web-0/restart")
    tenant = Arm(service, token(service, "t", Role.TENANT, groups=("batch",)).secret.text)
    path = answer.headers["azure-asyncoperation"].partition("8171")[2]
    assert code(tenant.call("GET", path)) == (404, "NotFound")
    id = path.rpartition("/")[2].partition("?")[0]
    for other in (f"0{id}", id[:8], id[:-1], "", "*", "nothing", f"{id}%2F.."):
        answer = admin.call("GET", path.replace(id, other))
        assert answer.status == 404


def test_many_machines_come_in_pages() -> None:
    machines = ", ".join(f"{{name: m-{n}}}" for n in range(1_201))
    with Service(
        f"groups: [{{name: all, kind: availability-set, machines: [{machines}]}}]"
    ) as service:
        arm, names, path = Arm(service), [], MACHINES
        while path:
            page = arm.get(path)
            assert len(page["value"]) <= 500
            names += [item["name"] for item in page["value"]]
            path = page.get("nextLink", "").partition("8171")[2]
        assert sorted(names) == sorted(f"m-{n}" for n in range(1_201))
        assert len(set(names)) == len(names)


def test_the_restart_of_a_machine_that_is_deleted_meanwhile_has_failed(
    service: Service, arm: Arm
) -> None:
    service["web-0"].get()
    answer = arm.call("POST", f"{MACHINES}/web-0/restart")
    arm.call("DELETE", f"{MACHINES}/web-0")
    service.clock.advance("30m")
    status = arm.operation(answer)
    assert (status["status"], status["error"]["code"]) == ("Failed", "OperationFailed")
    assert "being deleted" in status["error"]["message"]
