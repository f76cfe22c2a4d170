"""Scale sets and their members in Azure Resource Manager's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from forewarn.arm import paging
from forewarn.arm.routes import virtual_machines
from forewarn.core import Policy
from forewarn.core.access import Role
from forewarn.core.time import MINUTE
from forewarn.testing import Service
from helpers.arm import COMPUTE, SUBSCRIPTION, Arm, code, message
from helpers.token_api import token

SETS = "/providers/Microsoft.Compute/virtualMachineScaleSets"
WEB = f"{COMPUTE}/virtualMachineScaleSets/web"
ALLOWED = {"automaticallyApprove": True}
FLEET = """
hosts: [north, south]
groups:
  - name: near
    kind: scale-set
    scale_set: web
    policy: {terminate_notice: 5m}
    machines:
      - {name: web_0, host: north, update_domain: 0}
      - {name: web_10, host: south, update_domain: 1, fault_domain: 1}
  - name: far
    kind: scale-set
    scale_set: web
    policy: {terminate_notice: 5m}
    machines:
      - {name: web_2, host: north, update_domain: 0}
      - {name: web_3, update_domain: 1, spot: true}
  - name: batch
    kind: scale-set
    resource_group: Night
    location: westeurope
    zone: "2"
    machines: [{name: batch_0, spot: true}]
  - name: sql
    kind: availability-set
    machines: [{name: sql-0}]
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        for machine in ("web_0", "web_2"):
            service.document(machine)  # which enables its group
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def active(service: Service) -> dict[str, str]:
    """Return the types of the events that are not over, by machine."""
    return {machine: event.type for event in service.events for machine in event.resources}


def state(resource: Any) -> str:
    return str(resource["properties"]["provisioningState"])


def seq(service: Service) -> int:
    """Return the number of the last commit."""
    return service._session.node.store.seq


def policies(service: Service) -> list[Policy]:
    groups = service._session.node.store.groups
    return [groups[name].policy for name in ("near", "far")]


# Reading.


def test_scale_sets_are_listed_by_subscription_and_by_resource_group(arm: Arm) -> None:
    def names(answer: Any) -> list[str]:
        return [item["name"] for item in answer["value"]]

    assert names(arm.get(SUBSCRIPTION + SETS)) == ["web", "batch"]
    assert names(arm.get(f"{SUBSCRIPTION}/RESOURCEGROUPS/night{SETS.upper()}")) == ["batch"]
    assert names(arm.get(f"{COMPUTE}/virtualMachineScaleSets")) == ["web"]


def test_the_placement_groups_of_a_scale_set_are_one(arm: Arm) -> None:
    found = arm.get(WEB.replace("web", "WEB").lower())
    assert found["id"] == WEB
    assert found["sku"]["capacity"] == 4
    assert found["properties"]["singlePlacementGroup"] is False
    profile = found["properties"]["virtualMachineProfile"]
    assert profile["scheduledEventsProfile"]["terminateNotificationProfile"] == {
        "enable": True,
        "notBeforeTimeout": "PT5M",
    }
    assert "priority" not in profile
    batch = arm.get(f"{SUBSCRIPTION}/resourceGroups/Night{SETS}/batch")
    assert (batch["location"], batch["zones"]) == ("westeurope", ["2"])
    assert batch["properties"]["virtualMachineProfile"]["priority"] == "Spot"
    for path in (f"{WEB}2", WEB.replace("web", "sql"), WEB.replace("web", "near")):
        assert code(arm.call("GET", path)) == (404, "ResourceNotFound")


def test_members_are_listed_in_pages_by_number(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE", 3)
    first = arm.get(f"{WEB}/virtualMachines?$expand=instanceView")
    assert [item["instanceId"] for item in first["value"]] == ["0", "2", "3"]
    last = arm.get(first["nextLink"].removeprefix("https://127.0.0.1:8171"))
    assert [item["name"] for item in last["value"]] == ["web_10"]
    assert "nextLink" not in last
    view = last["value"][0]["properties"]["instanceView"]
    assert (view["platformUpdateDomain"], view["platformFaultDomain"]) == (1, 1)


def test_a_member_is_shown_with_its_state(service: Service, arm: Arm) -> None:
    member = arm.get(f"{WEB}/VIRTUALMACHINES/10")
    assert member["id"] == f"{WEB}/virtualMachines/10"
    assert "instanceView" not in member["properties"]
    view = arm.get(f"{WEB}/virtualMachines/10/instanceView")
    expanded = arm.get(f"{WEB}/virtualMachines/10?$expand=instanceView")
    assert expanded["properties"]["instanceView"] == view
    assert view["statuses"][1]["code"] == "PowerState/running"
    assert "maintenanceRedeployStatus" not in view
    service.schedule("Reboot", "web_10", notice="15m")
    view = arm.get(f"{WEB}/virtualMachines/10/instanceView")
    assert view["maintenanceRedeployStatus"]["isCustomerInitiatedMaintenanceAllowed"] is True
    assert code(arm.call("GET", f"{WEB}/virtualMachines/11")) == (404, "ResourceNotFound")


def test_a_member_has_the_host_name_that_its_guest_sees(service: Service, arm: Arm) -> None:
    seen = service["web_10"].instance()["compute"]["osProfile"]["computerName"]
    member = arm.get(f"{WEB}/virtualMachines/10?$expand=instanceView")["properties"]
    assert member["osProfile"]["computerName"] == seen == "web00000a"
    assert member["instanceView"]["computerName"] == seen
    assert arm.get(f"{WEB}/virtualMachines/10/networkInterfaces")["value"] == []
    unknown = arm.call("GET", f"{WEB}/virtualMachines/11/networkInterfaces")
    assert code(unknown) == (404, "ResourceNotFound")


def test_the_states_of_members_are_summed_up(service: Service, arm: Arm) -> None:
    def summary() -> dict[str, int]:
        view = arm.get(f"{WEB}/instanceView")["virtualMachine"]
        return {item["code"]: item["count"] for item in view["statusesSummary"]}

    assert summary() == {"PowerState/running": 4, "ProvisioningState/succeeded": 4}
    event = service.restart("web_0")
    service.approve("web_0", event)
    assert summary() == {
        "PowerState/running": 3,
        "PowerState/starting": 1,
        "ProvisioningState/succeeded": 3,
        "ProvisioningState/updating": 1,
    }


# What is done to several members.


@pytest.mark.parametrize(("action", "type"), [("restart", "Reboot"), ("redeploy", "Redeploy")])
@pytest.mark.parametrize(
    ("body", "machines"),
    [
        ({"instanceIds": ["2", "10", "2"]}, {"web_2", "web_10"}),
        ({"instanceIds": ["*"]}, {"web_0", "web_2", "web_3", "web_10"}),
        ({"instanceIds": None}, {"web_0", "web_2", "web_3", "web_10"}),
        (None, {"web_0", "web_2", "web_3", "web_10"}),
    ],
)
def test_members_are_restarted_and_redeployed_in_one_commit(
    service: Service, arm: Arm, action: str, type: str, body: Any, machines: set[str]
) -> None:
    before = seq(service)
    answer = arm.call("POST", f"{WEB}/{action}", body)
    assert answer.status == 202
    assert active(service) == dict.fromkeys(machines, type)
    assert seq(service) == before + 1
    assert arm.status_of(answer) == "InProgress"
    assert state(arm.get(WEB)) == "Updating"
    rules = arm.call("PATCH", WEB, events_policy(allInstancesDown=False))
    assert state(rules.json()) == "Succeeded"  # a poller of this request has nothing to wait for
    service.clock.advance("30m")
    assert arm.status_of(answer) == "Succeeded"
    assert state(arm.get(WEB)) == "Succeeded"


def test_members_are_deleted_with_notice(service: Service, arm: Arm) -> None:
    answer = arm.call("POST", f"{WEB}/delete", {"instanceIds": ["0", "2"]})
    assert answer.status == 202
    assert active(service) == {"web_0": "Terminate", "web_2": "Terminate"}
    found = arm.get(WEB)
    assert found["sku"]["capacity"] == 2
    assert state(found) == "Updating"
    assert state(arm.get(f"{WEB}/virtualMachines/0")) == "Deleting"
    service.clock.advance("6m")
    assert arm.status_of(answer) == "Succeeded"
    assert state(arm.get(WEB)) == "Succeeded"
    assert len(arm.get(f"{WEB}/virtualMachines")["value"]) == 2


def test_numbers_are_read_by_a_parser_that_is_never_slow(arm: Arm) -> None:
    """One request must not stop everybody for seconds. The slow parser refuses this number."""
    body = b'{"instanceIds":["0"],"more":1e400}'
    assert arm.call("POST", f"{WEB}/restart", content=body).status == 202


@pytest.mark.parametrize("body", [None, {}, {"instanceIds": None}, {"instanceIds": []}])
def test_deleting_needs_the_names_of_members(service: Service, arm: Arm, body: Any) -> None:
    answer = arm.call("POST", f"{WEB}/delete", body)
    assert code(answer) == (400, "InvalidParameter")
    assert not service.events


def test_a_deletion_that_is_repeated_when_all_are_gone_gets_the_same_operation(
    service: Service, arm: Arm
) -> None:
    body = {"instanceIds": ["0", "2"]}
    first = arm.call("POST", f"{WEB}/delete", body, x_ms_client_request_id="c0ffee")
    assert first.status == 202
    service.clock.advance("8m")
    assert not service["web_0"].alive
    again = arm.call("POST", f"{WEB}/delete", body, x_ms_client_request_id="c0ffee")
    assert again.headers["location"] == first.headers["location"]
    assert arm.status_of(again) == "Succeeded"
    assert code(arm.call("POST", f"{WEB}/delete", body)) == (400, "InvalidParameter")


def test_an_update_that_announces_nothing_can_be_repeated(service: Service, arm: Arm) -> None:
    body = {"properties": {"scheduledEventsPolicy": {"allInstancesDown": ALLOWED}}}
    answers = [arm.call("PATCH", WEB, body, x_ms_client_request_id="c0ffee") for _ in range(2)]
    service.clock.advance("1h")
    answers += [arm.call("PATCH", WEB, body, x_ms_client_request_id="c0ffee")]
    assert [answer.status for answer in answers] == [200, 200, 200]


def test_planned_maintenance_is_done_now(service: Service, arm: Arm) -> None:
    for machine in ("web_0", "web_2"):
        service.schedule("Reboot", machine, notice="2h")
    named = arm.call("POST", f"{WEB}/performMaintenance", {"instanceIds": ["0", "3"]})
    assert code(named) == (409, "OperationNotAllowed")
    assert "web_3" in message(named)
    assert [event.status for event in service.events] == ["Scheduled"] * 2
    answer = arm.call("POST", f"{WEB}/performMaintenance", x_ms_client_request_id="now")
    again = arm.call("POST", f"{WEB}/performMaintenance", x_ms_client_request_id="now")
    assert [answer.status, again.status] == [202, 202]
    assert [event.status for event in service.events] == ["Started"] * 2
    service.clock.advance("10m")
    assert arm.status_of(answer) == arm.status_of(again) == "Succeeded"
    assert code(arm.call("POST", f"{WEB}/performMaintenance")) == (409, "OperationNotAllowed")


@pytest.mark.parametrize("action", ["restart", "redeploy", "performMaintenance", "delete"])
def test_nothing_is_done_if_an_id_is_wrong(service: Service, arm: Arm, action: str) -> None:
    wrong: list[Any] = [["0", "7"], ["web_0"], ["*", "0"], [0], "0", {"0": 1}, [["0"]], [], [None]]
    for ids in wrong:
        answer = arm.call("POST", f"{WEB}/{action}", {"instanceIds": ids})
        assert code(answer) == (400, "InvalidParameter"), ids
    assert not service.events


def test_a_request_is_not_about_too_many_machines(
    service: Service, arm: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_machines, "MAX_MACHINES", 3)
    answer = arm.call("POST", f"{WEB}/restart")
    assert code(answer) == (409, "OperationNotAllowed")
    assert "at most 3 machines" in message(answer)
    assert not service.events
    assert arm.call("POST", f"{WEB}/restart", {"instanceIds": ["0", "2", "3"]}).status == 202


def test_nothing_is_done_if_one_member_is_refused(service: Service, arm: Arm) -> None:
    change = service._session.node.platform.set_policy(
        "far", lambda _: Policy(user_event_limit=1), "test"
    )
    service._session.run(change)
    before = seq(service)
    answer = arm.call("POST", f"{WEB}/restart", {"instanceIds": ["0", "2", "3"]})
    assert code(answer) == (409, "OperationNotAllowed")
    [detail] = answer.json()["error"]["details"]
    assert detail["message"].startswith("web_3: group 'far' may have 1 user events")
    assert not service.events
    assert seq(service) == before


def test_a_repeated_request_raises_nothing_more(service: Service, arm: Arm) -> None:
    body = {"instanceIds": ["0"]}
    first = arm.call("POST", f"{WEB}/restart", body, x_ms_client_request_id="one")
    service.clock.advance("30m")
    second = arm.call("POST", f"{WEB}/restart", body, x_ms_client_request_id="one")
    assert first.headers["azure-asyncoperation"] == second.headers["azure-asyncoperation"]
    assert not service.events
    arm.call("POST", f"{WEB}/restart", {"instanceIds": ["2"]}, x_ms_client_request_id="one")
    assert active(service) == {"web_2": "Reboot"}


# What is done to one member.


@pytest.mark.parametrize(("action", "type"), [("restart", "Reboot"), ("redeploy", "Redeploy")])
def test_a_member_is_restarted_and_redeployed(
    service: Service, arm: Arm, action: str, type: str
) -> None:
    assert arm.call("POST", f"{WEB}/virtualMachines/0/{action}").status == 202
    assert active(service) == {"web_0": type}


def test_the_maintenance_of_a_member_is_done_now(service: Service, arm: Arm) -> None:
    path = f"{WEB}/virtualMachines/0/performMaintenance"
    assert code(arm.call("POST", path)) == (409, "OperationNotAllowed")
    service.schedule("Reboot", "web_0", notice="2h")
    assert arm.call("POST", path).status == 202
    assert [event.status for event in service.events] == ["Started"]


def test_a_spot_member_is_evicted(service: Service, arm: Arm) -> None:
    assert arm.call("POST", f"{WEB}/virtualMachines/3/simulateEviction").status == 204
    assert active(service) == {"web_3": "Preempt"}
    refused = arm.call("POST", f"{WEB}/virtualMachines/0/simulateEviction")
    assert code(refused) == (409, "OperationNotAllowed")
    assert "spot machines" in message(refused)


def test_a_member_is_deleted(service: Service, arm: Arm) -> None:
    assert arm.call("DELETE", f"{WEB}/virtualMachines/0?forceDeletion=true").status == 202
    assert active(service) == {"web_0": "Terminate"}
    service.clock.advance("6m")
    assert arm.call("DELETE", f"{WEB}/virtualMachines/0").status == 204


def test_power_operations_are_refused_as_not_offered(arm: Arm) -> None:
    for action in ("poweroff", "deallocate", "start", "approveRollingUpgrade"):
        for path in (WEB, f"{WEB}/virtualMachines/0"):
            answer = arm.call("POST", f"{path}/{action}", {"instanceIds": ["0"]})
            assert code(answer) == (409, "OperationNotAllowed")
            assert "does not offer" in message(answer)
            assert "retry-after" not in answer.headers


def test_a_scale_set_is_not_deleted(service: Service, arm: Arm) -> None:
    answer = arm.call("DELETE", WEB)
    assert code(answer) == (409, "OperationNotAllowed")
    assert "fleet file" in message(answer)
    assert not service.events


# Changing it.


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_the_answer_of_a_get_can_be_sent_back(service: Service, arm: Arm, method: str) -> None:
    before, given = seq(service), arm.get(WEB)
    for body in (
        given,
        {"location": given["location"], "sku": {"name": given["sku"]["name"], "capacity": 4}},
        {**given, "id": given["id"].upper(), "zones": None, "identity": {}, "plan": None},
        {"PROPERTIES": {"ProvisioningState": "Creating", "upgradePolicy": {"MODE": "manual"}}},
        {},
    ):
        answer = arm.call(method, WEB, body)
        assert answer.status == 200
        assert answer.json() == given
        assert "azure-asyncoperation" not in answer.headers
    assert seq(service) == before


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_less_capacity_scales_in(service: Service, arm: Arm, method: str) -> None:
    before, body = seq(service), arm.get(WEB)
    body["sku"]["capacity"] = 2
    answer = arm.call(method, WEB, body, x_ms_client_request_id="down")
    assert answer.status == 200
    assert answer.json()["sku"]["capacity"] == 2
    assert "location" not in answer.headers  # a client would take what is there for the scale set
    # A spot machine is deleted without notice.
    assert active(service) == {"web_10": "Terminate", "web_3": "Terminate"}
    assert seq(service) >= before + 1
    assert arm.status_of(answer) == "InProgress"
    again = arm.call(method, WEB, body, x_ms_client_request_id="down")
    assert again.headers["azure-asyncoperation"] == answer.headers["azure-asyncoperation"]
    service.clock.advance("6m")
    assert arm.status_of(answer) == "Succeeded"
    assert {m["name"] for m in arm.get(f"{WEB}/virtualMachines")["value"]} == {"web_0", "web_2"}
    arm.call(method, WEB, body, x_ms_client_request_id="down")
    assert arm.get(WEB)["sku"]["capacity"] == 2


def test_more_capacity_is_refused(service: Service, arm: Arm) -> None:
    answer = arm.call("PUT", WEB, {"location": "local", "sku": {"capacity": 5}})
    assert code(answer) == (409, "OperationNotAllowed")
    assert "fleet file" in message(answer)
    assert arm.get(WEB)["sku"]["capacity"] == 4


def events_policy(**approved: Any) -> dict[str, Any]:
    values = {name: {"automaticallyApprove": value} for name, value in approved.items()}
    return {"properties": {"scheduledEventsPolicy": values}}


def notification(**profile: Any) -> dict[str, Any]:
    events = {"scheduledEventsProfile": {"terminateNotificationProfile": profile}}
    return {"properties": {"virtualMachineProfile": events}}


def test_the_rules_for_events_change_in_all_groups(service: Service, arm: Arm) -> None:
    body = events_policy(
        userInitiatedReboot=True, userInitiatedRedeploy=True, allInstancesDown=True
    )
    before = seq(service)
    answer = arm.call("PATCH", WEB, body)
    assert answer.status == 200
    given = answer.json()["properties"]["scheduledEventsPolicy"]
    assert body["properties"]["scheduledEventsPolicy"].items() <= given.items()
    assert seq(service) == before + 1
    for policy in policies(service):
        assert [type.value for type in policy.auto_approve] == ["Reboot", "Redeploy"]
        assert policy.all_instances_down
        assert policy.terminate_notice == 5 * MINUTE
    assert arm.call("PATCH", WEB, events_policy(userInitiatedReboot=False)).status == 200
    for policy in policies(service):
        assert [type.value for type in policy.auto_approve] == ["Redeploy"]


@pytest.mark.parametrize(
    ("profile", "notice"),
    [
        ({"enable": True, "notBeforeTimeout": "PT15M"}, 15),
        ({"notBeforeTimeout": "PT600S"}, 10),
        ({"enable": False}, None),
        ({"enable": False, "notBeforeTimeout": "PT6M"}, None),
    ],
)
def test_the_notice_of_deletions_changes(
    service: Service, arm: Arm, profile: Any, notice: int | None
) -> None:
    assert arm.call("PATCH", WEB, notification(**profile)).status == 200
    for policy in policies(service):
        assert policy.terminate_notice == (None if notice is None else notice * MINUTE)


def test_a_terminate_notice_that_is_switched_on_is_five_minutes(service: Service, arm: Arm) -> None:
    assert arm.call("PATCH", WEB, notification(enable=False)).status == 200
    refused = arm.call("PATCH", WEB, notification(notBeforeTimeout="PT10M"))
    assert code(refused) == (400, "InvalidParameter")
    assert arm.call("PATCH", WEB, notification(enable=True)).status == 200
    assert [policy.terminate_notice for policy in policies(service)] == [5 * MINUTE] * 2


def test_capacity_and_rules_change_in_one_commit(service: Service, arm: Arm) -> None:
    body = {**notification(enable=True, notBeforeTimeout="PT10M"), "sku": {"capacity": 3}}
    before = seq(service)
    answer = arm.call("PATCH", WEB, body)
    assert answer.status == 200
    assert seq(service) == before + 1
    assert active(service) == {"web_10": "Terminate"}
    service.clock.advance("9m")
    assert arm.status_of(answer) == "InProgress"  # the new notice counts for it
    body["sku"]["capacity"] = 4
    body |= notification(enable=False)
    assert code(arm.call("PATCH", WEB, body)) == (409, "OperationNotAllowed")
    assert [policy.terminate_notice for policy in policies(service)] == [10 * MINUTE] * 2


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_other_changes_are_refused_by_name(service: Service, arm: Arm, method: str) -> None:
    before = seq(service)
    changes: list[tuple[Any, str]] = [
        ({"name": "web2"}, "name"),
        ({"location": "mars"}, "location"),
        ({"tags": {"a": "b"}}, "tags.a"),
        ({"zones": ["1"]}, "zones"),
        ({"sku": {"name": "Standard_E2"}}, "sku.name"),
        ({"sku": "large"}, "sku"),
        ({"properties": {"overprovision": True}}, "properties.overprovision"),
        ({"properties": {"overprovision": 0}}, "properties.overprovision"),
        ({"properties": {"upgradePolicy": {"mode": "Rolling"}}}, "properties.upgradePolicy.mode"),
        ({"properties": {"new": {"a": 1}}, "sku": {"capacity": 1}}, "properties.new.a"),
        ({"properties": {"scheduledEventsPolicy": 1}}, "properties.scheduledEventsPolicy"),
    ]
    for body, path in changes:
        answer = arm.call(method, WEB, body)
        assert code(answer) == (409, "PropertyChangeNotAllowed")
        assert message(answer).startswith(f"Changing property '{path}' is not allowed")
    assert seq(service) == before


def test_wrong_values_are_refused(service: Service, arm: Arm) -> None:
    before = seq(service)
    bodies: list[dict[str, Any]] = [
        {"sku": {"capacity": -1}},
        {"sku": {"capacity": "2"}},
        {"sku": {"capacity": 2.5}},
        {"sku": {"capacity": True}},
        events_policy(userInitiatedReboot="yes"),
        events_policy(allInstancesDown=1),
        notification(enable="no"),
        notification(enable=True, notBeforeTimeout="PT4M59S"),
        notification(enable=True, notBeforeTimeout="PT16M"),
        notification(enable=True, notBeforeTimeout="five"),
        notification(enable=True, notBeforeTimeout=5),
    ]
    for body in bodies:
        answer = arm.call("PUT", WEB, {"location": "local", **body})
        assert code(answer) == (400, "InvalidParameter"), body
    assert seq(service) == before


def test_creating_a_scale_set_is_refused(service: Service, arm: Arm) -> None:
    answer = arm.call("PUT", f"{WEB}2", arm.get(WEB))
    assert code(answer) == (409, "OperationNotAllowed")
    assert "no scale set 'web2'" in message(answer)


# Roles and limits.


def test_roles_are_those_of_the_control_api(service: Service) -> None:
    token(service, "all", Role.ADMIN)
    viewer = Arm(service, token(service, "viewer", Role.VIEWER).secret.text)
    tenant = Arm(service, token(service, "tenant", Role.TENANT, groups=("near", "far")).secret.text)
    body = {"instanceIds": ["0"]}
    for method, path in (
        ("POST", "/restart"),
        ("POST", "/redeploy"),
        ("POST", "/virtualMachines/0/restart"),
    ):
        assert code(viewer.call(method, WEB + path, body)) == (403, "AuthorizationFailed")
        assert tenant.call(method, WEB + path, body).status == 202
    for method, path in (
        ("POST", "/delete"),
        ("PUT", ""),
        ("PATCH", ""),
        ("DELETE", "/virtualMachines/0"),
        ("POST", "/virtualMachines/3/simulateEviction"),
    ):
        assert code(tenant.call(method, WEB + path, body)) == (403, "AuthorizationFailed")


def test_a_limited_token_sees_only_its_groups(service: Service) -> None:
    token(service, "all", Role.ADMIN)
    limited = token(service, "far", Role.OPERATOR, groups=("far",)).secret.text
    arm = Arm(service, limited)
    assert [item["name"] for item in arm.get(SUBSCRIPTION + SETS)["value"]] == ["web"]
    assert [m["instanceId"] for m in arm.get(f"{WEB}/virtualMachines")["value"]] == ["2", "3"]
    assert code(arm.call("GET", f"{WEB}/virtualMachines/0")) == (404, "ResourceNotFound")
    refused = arm.call("POST", f"{WEB}/restart", {"instanceIds": ["0", "2"]})
    assert code(refused) == (400, "InvalidParameter")
    for body in ({"sku": {"capacity": 1}}, events_policy(allInstancesDown=True)):
        assert code(arm.call("PATCH", WEB, body)) == (403, "AuthorizationFailed")
    evicted = arm.call("POST", f"{WEB}/virtualMachines/3/simulateEviction")
    assert code(evicted) == (403, "AuthorizationFailed")
    assert not service.events
    assert arm.call("POST", f"{WEB}/restart").status == 202
    assert active(service) == {"web_2": "Reboot", "web_3": "Reboot"}
    whole = Arm(service, token(service, "both", Role.OPERATOR, groups=("near", "far")).secret.text)
    assert whole.call("PATCH", WEB, {"sku": {"capacity": 3}}).status == 200


def test_a_request_names_no_more_machines_than_one_commit_changes(arm: Arm) -> None:
    ids = [str(number) for number in range(1_001)]
    answer = arm.call("POST", f"{WEB}/restart", {"instanceIds": ids})
    assert code(answer) == (409, "OperationNotAllowed")
    assert "at most 1,000 machines" in message(answer)


def test_a_request_for_a_part_of_the_announced_events_waits_for_that_part(
    service: Service, arm: Arm
) -> None:
    for machine in ("web_0", "web_2"):
        service.document(machine)
    arm.call("POST", f"{WEB}/restart", {"instanceIds": ["0", "2"]})
    part = arm.call("POST", f"{WEB}/virtualMachines/0/restart")
    [other] = [event for event in service.events if event.resources == ("web_2",)]
    other.cancel("not today")
    service.clock.advance("1h")
    assert arm.status_of(part) == "Succeeded"


def test_an_operation_is_about_all_of_very_many_events() -> None:
    groups = [
        {
            "name": f"big-{part}",
            "kind": "scale-set",
            "scale_set": "big",
            "machines": [{"name": f"big_{60 * part + number}"} for number in range(60)],
        }
        for part in range(2)
    ]
    with Service(json.dumps({"groups": groups})) as service:
        for number in range(120):
            service.schedule("Freeze", f"big_{number}")
        arm = Arm(service)
        path = f"{COMPUTE}/virtualMachineScaleSets/big/performMaintenance"
        answer = arm.call("POST", path, x_ms_client_request_id="c0ffee")
        assert len(arm.operation(answer)["properties"]["events"]) == 120


FLEXIBLE = """
groups:
  - name: flex
    kind: scale-set
    flexible: true
    policy: {terminate_notice: 5m}
    machines:
      - {name: flex_1a2b3c4d, fault_domain: 0}
      - {name: flex_12345678, fault_domain: 1}
      - {name: Master, fault_domain: 2}
"""
FLEX = f"{COMPUTE}/virtualMachineScaleSets/flex"
NAMED = ["Master", "flex_12345678", "flex_1a2b3c4d"]


def test_members_with_names_of_their_own_make_a_flexible_scale_set() -> None:
    with Service(FLEXIBLE) as service:
        arm = Arm(service)
        shown = arm.get(FLEX)["properties"]
        assert (shown["orchestrationMode"], shown["singlePlacementGroup"]) == ("Flexible", False)
        assert shown["platformFaultDomainCount"] == 3
        only = f"'virtualMachineScaleSet/id' eq '{FLEX}'"
        machines = arm.get(f"{COMPUTE}/virtualMachines?$filter={quote(only)}")["value"]
        assert sorted(machine["name"] for machine in machines) == NAMED
        members = arm.get(f"{FLEX}/virtualMachines")["value"]
        assert sorted(member["instanceId"] for member in members) == NAMED
        assert {member["id"] for member in members} == {machine["id"] for machine in machines}
        for member in members:
            assert member["type"] == "Microsoft.Compute/virtualMachines"
            assert member["properties"]["virtualMachineScaleSet"]["id"] == FLEX
            assert member["properties"]["osProfile"]["computerName"] == member["name"]
            assert arm.get(f"{FLEX}/virtualMachines/{member['name'].upper()}") == member


def test_members_of_a_flexible_scale_set_are_named_in_requests() -> None:
    with Service(FLEXIBLE) as service:
        arm = Arm(service)
        service.document("Master")
        named = {"instanceIds": ["MASTER", "flex_12345678"]}
        assert arm.call("POST", f"{FLEX}/restart", named).status == 202
        alone = arm.call("POST", f"{COMPUTE}/virtualMachines/flex_1a2b3c4d/redeploy")
        assert alone.status == 202
        kinds = {"Master": "Reboot", "flex_12345678": "Reboot", "flex_1a2b3c4d": "Redeploy"}
        assert active(service) == kinds
        unknown = arm.call("POST", f"{FLEX}/restart", {"instanceIds": ["12345678"]})
        assert code(unknown) == (400, "InvalidParameter")


def test_a_flexible_scale_set_is_scaled_in_from_its_end() -> None:
    with Service(FLEXIBLE) as service:
        service.document("Master")
        assert Arm(service).call("PATCH", FLEX, {"sku": {"capacity": 1}}).status == 200
        assert active(service) == dict.fromkeys(["Master", "flex_12345678"], "Terminate")


def test_numbered_members_make_a_uniform_scale_set(arm: Arm) -> None:
    shown = arm.get(WEB)["properties"]
    assert shown["orchestrationMode"] == "Uniform"
