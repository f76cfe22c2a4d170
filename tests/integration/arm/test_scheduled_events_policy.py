"""`scheduledEventsPolicy`, wherever Azure has it: scale sets, availability sets and machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.arm import COMPUTE, Arm, code, message
from helpers.token_api import token

FLEET = """
groups:
  - {name: web, kind: scale-set, machines: [{name: web_0}]}
  - {name: flex, kind: scale-set, flexible: true, machines: [{name: flex_1a}]}
  - {name: sql, kind: availability-set, machines: [{name: sql-0}]}
  - {name: zone, kind: availability-zone, machines: [{name: zone-0}]}
  - {name: jump, kind: standalone, machines: [{name: jumpbox}]}
"""
OWNERS = {
    "web": f"{COMPUTE}/virtualMachineScaleSets/web",
    "flex": f"{COMPUTE}/virtualMachineScaleSets/flex",
    "sql": f"{COMPUTE}/availabilitySets/sql",
    "jump": f"{COMPUTE}/virtualMachines/jumpbox",
}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


def policy(enable: Any = True, version: str = "2020-07-01", **approved: bool) -> dict[str, Any]:
    target = {"enable": enable, "scheduledEventsApiVersion": version}
    return {
        "properties": {
            "scheduledEventsPolicy": {
                "scheduledEventsAdditionalPublishingTargets": {"eventGridAndResourceGraph": target},
                **{name: {"automaticallyApprove": value} for name, value in approved.items()},
            }
        }
    }


@pytest.mark.parametrize("group", OWNERS)
def test_a_policy_is_read_and_written_as_a_whole_and_in_part(service: Service, group: str) -> None:
    arm, owner = Arm(service), OWNERS[group]
    assert "'enable': False" in str(arm.get(owner)["properties"]["scheduledEventsPolicy"])
    assert arm.call("PATCH", owner, policy(userInitiatedReboot=True)).status == 200
    stored = service._session.node.store.groups[group].policy
    assert stored.event_grid
    assert [type.value for type in stored.auto_approve] == ["Reboot"]
    whole = arm.get(owner)
    assert "'enable': True" in str(whole["properties"]["scheduledEventsPolicy"])
    rules = whole["properties"]["scheduledEventsPolicy"]
    rules["scheduledEventsAdditionalPublishingTargets"] = None  # it stays
    assert arm.call("PUT", owner, whole).json()["properties"]["scheduledEventsPolicy"] != rules
    assert arm.call("PUT", owner, policy(False)).status == 200
    stored = service._session.node.store.groups[group].policy
    assert not stored.event_grid
    assert [type.value for type in stored.auto_approve] == ["Reboot"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (policy("yes"), (400, "InvalidParameter")),
        (policy(1), (400, "InvalidParameter")),
        (policy(version="2019-08-01"), (409, "PropertyChangeNotAllowed")),
        ({"properties": {"hardwareProfile": {"vmSize": "x"}}}, (409, "PropertyChangeNotAllowed")),
        ({"properties": {"scheduledEventsPolicy": True}}, (409, "PropertyChangeNotAllowed")),
        ({**policy(), "location": "elsewhere"}, (409, "PropertyChangeNotAllowed")),
    ],
)
@pytest.mark.parametrize("group", OWNERS)
def test_an_invalid_policy_is_refused_and_changes_nothing(
    service: Service, group: str, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    arm, before = Arm(service), service._session.node.store.seq
    assert code(arm.call("PATCH", OWNERS[group], body)) == expected
    assert service._session.node.store.seq == before


@pytest.mark.parametrize(
    ("member", "group"), [("sql-0", "sql"), ("flex_1a", "flex"), ("zone-0", "zone")]
)
def test_a_member_has_the_policy_of_its_group(service: Service, member: str, group: str) -> None:
    arm, path = Arm(service), f"{COMPUTE}/virtualMachines/{member}"
    assert "scheduledEventsPolicy" not in arm.get(path)["properties"]
    answer = arm.call("PATCH", path, policy())
    assert code(answer) == (409, "PropertyChangeNotAllowed")
    assert f"group '{group}'" in message(answer)
    instance = f"{OWNERS['web']}/virtualMachines/0"
    assert code(arm.call("PUT", instance, policy())) == (409, "OperationNotAllowed")


def test_a_tenant_cannot_change_a_policy(service: Service) -> None:
    token(service, "ops", Role.ADMIN)
    arm = Arm(service, token(service, "t", Role.TENANT, groups=tuple(OWNERS)).secret.text)
    for owner in OWNERS.values():
        assert code(arm.call("PATCH", owner, policy())) == (403, "AuthorizationFailed")
