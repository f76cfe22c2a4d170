"""Hosts in Azure Resource Manager's API."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.arm import COMPUTE, RESOURCE_GROUP, SUBSCRIPTION, Arm, code, message
from helpers.token_api import token

GROUPS = "/providers/Microsoft.Compute/hostGroups"
HOSTS = f"{RESOURCE_GROUP}{GROUPS}/hosts/hosts"
FLEET = """
hosts: [{name: north, labels: {rack: r1}}, south, spare]
groups:
  - name: web
    kind: scale-set
    machines: [{name: web_0, host: north}, {name: web_1, host: south, update_domain: 1}]
  - name: sql
    kind: availability-set
    resource_group: data
    machines: [{name: sql-0, host: north}]
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        for machine in ("web_0", "sql-0"):
            service.document(machine)  # which enables its group
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def active(service: Service) -> set[tuple[str, str, str]]:
    """Return the events that are not over: type, source and machine."""
    return {(e.type, e.source, machine) for e in service.events for machine in e.resources}


def test_all_hosts_are_in_one_group(arm: Arm) -> None:
    for path in (SUBSCRIPTION + GROUPS, RESOURCE_GROUP.upper() + GROUPS.lower()):
        [group] = arm.get(path)["value"]
        assert group["id"] == f"{RESOURCE_GROUP}{GROUPS}/hosts"
        assert [host["id"] for host in group["properties"]["hosts"]] == [
            f"{HOSTS}/{name}" for name in ("north", "south", "spare")
        ]
    assert arm.get(f"{SUBSCRIPTION}/resourceGroups/data{GROUPS}")["value"] == []
    group = arm.get(f"{RESOURCE_GROUP}{GROUPS}/HOSTS?$expand=instanceView")
    assert [host["name"] for host in group["properties"]["instanceView"]["hosts"]] == [
        *("north", "south", "spare")
    ]
    for path in (f"{RESOURCE_GROUP}{GROUPS}/other", HOSTS.replace("hosts/hosts", "other/hosts")):
        assert code(arm.call("GET", path)) == (404, "ResourceNotFound")


def test_a_host_has_its_machines_and_its_health(service: Service, arm: Arm) -> None:
    assert [host["name"] for host in arm.get(HOSTS)["value"]] == ["north", "south", "spare"]
    host = arm.get(f"{HOSTS}/NORTH")
    assert host["tags"] == {"rack": "r1"}
    machines = [machine["id"] for machine in host["properties"]["virtualMachines"]]
    assert sorted(machines) == [
        f"{COMPUTE.replace('forewarn', 'data')}/virtualMachines/sql-0",
        f"{COMPUTE}/virtualMachineScaleSets/web/virtualMachines/0",
    ]
    assert arm.get(machines[0])["properties"]["host"]["id"] == host["id"]
    assert "instanceView" not in host["properties"]
    service.host("north").degrade()
    for view in (
        arm.get(f"{HOSTS}/north?$expand=InstanceView")["properties"]["instanceView"],
        arm.get(f"{HOSTS}/north/instanceView"),
    ):
        assert view["statuses"][1]["code"] == "HealthState/degraded"
    assert code(arm.call("GET", f"{HOSTS}/nowhere")) == (404, "ResourceNotFound")


def test_a_restart_is_maintenance_of_the_host(service: Service, arm: Arm) -> None:
    answer = arm.call("POST", f"{HOSTS}/North/restart", x_ms_client_request_id="one")
    again = arm.call("POST", f"{HOSTS}/North/restart", x_ms_client_request_id="one")
    assert [answer.status, again.status] == [200, 200]  # nothing else is accepted by SDKs
    assert answer.headers["azure-asyncoperation"] == again.headers["azure-asyncoperation"]
    assert active(service) == {("Reboot", "Platform", "web_0"), ("Reboot", "Platform", "sql-0")}
    assert {event.not_before for event in service.events} == {service.events[0].not_before}
    assert arm.status_of(answer) == "InProgress"
    other = arm.call("POST", f"{HOSTS}/north/restart")
    assert code(other) == (409, "OperationNotAllowed")
    assert "already planned" in message(other)
    service.clock.advance("15m")
    assert arm.get(f"{HOSTS}/north")["properties"]["provisioningState"] == "Updating"
    service.clock.advance("30m")
    assert arm.status_of(answer) == "Succeeded"
    assert arm.get(f"{HOSTS}/north")["properties"]["provisioningState"] == "Succeeded"


def test_a_redeploy_redeploys_every_machine_on_the_host(service: Service, arm: Arm) -> None:
    before = service._session.node.store.seq
    answer = arm.call("POST", f"{HOSTS}/north/redeploy")
    assert answer.status == 202
    assert active(service) == {("Redeploy", "User", "web_0"), ("Redeploy", "User", "sql-0")}
    assert service._session.node.store.seq == before + 1
    service.clock.advance("30m")
    assert arm.status_of(answer) == "Succeeded"
    assert arm.get(f"{HOSTS}/north")["properties"]["virtualMachines"] == []


@pytest.mark.parametrize(("action", "status"), [("restart", 200), ("redeploy", 202)])
def test_a_host_without_machines_is_done_at_once(
    service: Service, arm: Arm, action: str, status: int
) -> None:
    answer = arm.call("POST", f"{HOSTS}/spare/{action}")
    assert answer.status == status
    assert "azure-asyncoperation" not in answer.headers
    assert not service.events


def test_a_tenant_waits_for_its_part_of_a_restart_of_the_host(service: Service) -> None:
    operator = Arm(service, token(service, "root", Role.ADMIN).secret.text)
    tenant = Arm(service, token(service, "team", Role.TENANT, groups=("web",)).secret.text)
    whole = operator.call("POST", f"{HOSTS}/north/restart")
    own = f"{COMPUTE}/virtualMachineScaleSets/web/virtualMachines/0/performMaintenance"
    [planned] = [event.id for event in service.events if event.resources == ("web_0",)]
    for client_id in ("", "c0ffee"):
        answer = tenant.call("POST", own, x_ms_client_request_id=client_id)
        assert tenant.operation(answer)["properties"]["events"] == [planned]
    others = urlsplit(whole.headers["azure-asyncoperation"])
    assert tenant.call("GET", f"{others.path}?{others.query}").status == 404


def test_only_operators_of_the_whole_fleet_maintain_hosts(service: Service) -> None:
    token(service, "all", Role.ADMIN)
    tenant = Arm(service, token(service, "tenant", Role.TENANT, groups=("web",)).secret.text)
    limited = Arm(service, token(service, "web", Role.OPERATOR, groups=("web",)).secret.text)
    viewer = Arm(service, token(service, "viewer", Role.VIEWER).secret.text)
    assert tenant.get(HOSTS)["value"] == []
    assert code(tenant.call("GET", f"{HOSTS}/north")) == (404, "ResourceNotFound")
    assert [host["name"] for host in limited.get(HOSTS)["value"]] == ["north", "south"]
    [machine] = limited.get(f"{HOSTS}/north")["properties"]["virtualMachines"]
    assert machine["id"].endswith("/web/virtualMachines/0")
    for arm in (tenant, limited, viewer):
        for action in ("restart", "redeploy"):
            answer = arm.call("POST", f"{HOSTS}/south/{action}")
            assert code(answer) == (403, "AuthorizationFailed")
    assert not service.events
