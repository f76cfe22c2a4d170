"""Reimages of the members of a scale set: `az vmss reimage` and `az vmss rolling-upgrade`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.drivers.port import Checked, Ok, Task, Veto
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.testing import Service
from helpers.arm import COMPUTE, Arm, code, message
from helpers.token_api import token

WEB = f"{COMPUTE}/virtualMachineScaleSets/web"
FLEET = """
hosts: [h1, h2, h3]
groups:
  - name: web
    kind: scale-set
    policy: {image_notice: 15m}
    machines:
      - {name: web_0, host: h1}
      - {name: web_1, host: h1, update_domain: 1}
      - {name: web_2, host: h2, update_domain: 0}
  - {name: silent, kind: scale-set, machines: [{name: silent_0, host: h1}]}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        for machine in service.machines:
            machine.get()
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def profile(**values: Any) -> dict[str, Any]:
    events = {"osImageNotificationProfile": values}
    return {"properties": {"virtualMachineProfile": {"scheduledEventsProfile": events}}}


def shown(arm: Arm) -> Any:
    machines = arm.get(WEB)["properties"]["virtualMachineProfile"]
    return machines["scheduledEventsProfile"]["osImageNotificationProfile"]


def test_an_upgrade_goes_from_update_domain_to_update_domain_in_place(
    service: Service, arm: Arm
) -> None:
    answer = arm.call("POST", f"{WEB}/osRollingUpgrade")
    assert answer.status == 202
    service.clock.advance("1s")
    [event] = service["web_1"].document()["Events"]
    assert (event["EventType"], event["EventSource"]) == ("Redeploy", "Platform")
    assert sorted(event["Resources"]) == ["web_0", "web_2"]
    assert event["NotBefore"] == "Fri, 15 Jan 2027 08:15:00 GMT"
    assert arm.operation(answer)["status"] == "InProgress"
    upgrade = arm.get(f"{WEB}/rollingUpgrades/latest")["properties"]
    assert upgrade["runningStatus"]["code"] == "RollingForward"
    assert upgrade["progress"]["pendingInstanceCount"] == 3
    service.clock.advance("40m")
    [event] = service["web_1"].document()["Events"]
    assert event["Resources"] == ["web_1"]
    service.clock.advance("1h")
    assert arm.operation(answer)["status"] == "Succeeded"
    assert arm.result_of(answer).status == 200
    upgrade = arm.get(f"{WEB}/rollingUpgrades/latest")["properties"]
    assert upgrade["runningStatus"]["code"] == "Completed"
    assert upgrade["progress"]["successfulInstanceCount"] == 3
    assert [service[name].host for name in ("web_0", "web_1", "web_2")] == ["h1", "h1", "h2"]


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/reimage", {"instanceIds": ["1"]}, {"web_1"}),
        ("/reimageall", {"instanceIds": ["0", "2"]}, {"web_0", "web_2"}),
        ("/reimage", {}, {"web_0", "web_1", "web_2"}),
        ("/virtualMachines/2/reimage", {}, {"web_2"}),
    ],
)
def test_instances_are_reimaged(
    service: Service, arm: Arm, path: str, body: dict[str, Any], names: set[str]
) -> None:
    answer = arm.call("POST", WEB + path, body, x_ms_client_request_id="one")
    again = arm.call("POST", WEB + path, body, x_ms_client_request_id="one")
    assert again.headers["azure-asyncoperation"] == answer.headers["azure-asyncoperation"]
    service.clock.advance("2h")
    assert arm.operation(answer)["status"] == "Succeeded"
    session = service._session
    over = session.run(session.node.platform.past(None, 10))
    assert {name for event in over for name in event.resources} == names


def test_an_upgrade_is_cancelled(service: Service, arm: Arm) -> None:
    assert code(arm.call("POST", f"{WEB}/rollingUpgrades/cancel")) == (409, "OperationNotAllowed")
    assert code(arm.call("GET", f"{WEB}/rollingUpgrades/latest")) == (404, "NotFound")
    answer = arm.call("POST", f"{WEB}/osRollingUpgrade")
    service.clock.advance("1s")
    assert arm.call("POST", f"{WEB}/rollingUpgrades/cancel").status == 200
    service.clock.advance("1h")
    assert arm.operation(answer)["status"] == "Canceled"
    assert arm.get(f"{WEB}/rollingUpgrades/latest")["properties"]["runningStatus"]["code"] == (
        "Cancelled"
    )


def test_the_profile_is_read_and_written(service: Service, arm: Arm) -> None:
    assert shown(arm) == {"enable": True, "notBeforeTimeout": "PT15M"}
    assert arm.call("PATCH", WEB, profile(enable=True, notBeforeTimeout="PT5M")).status == 200
    assert shown(arm) == {"enable": True, "notBeforeTimeout": "PT5M"}
    assert arm.call("PATCH", WEB, profile(notBeforeTimeout="PT4M")).status == 400
    assert arm.call("PATCH", WEB, profile(enable=False)).status == 200
    assert shown(arm) == {"enable": False}
    answer = arm.call("POST", f"{WEB}/reimage")
    assert code(answer) == (409, "OperationNotAllowed")
    assert "osImageNotificationProfile" in message(answer)
    assert service.events == []


def test_only_operators_reimage(service: Service, arm: Arm) -> None:
    token(service, "ops", Role.ADMIN)
    tenant = Arm(service, token(service, "t", Role.TENANT, groups=("web",)).secret.text)
    for path in ("reimage", "osRollingUpgrade", "rollingUpgrades/cancel"):
        assert code(tenant.call("POST", f"{WEB}/{path}")) == (403, "AuthorizationFailed")


class MovesEverything(SimulatedDriver):
    """A driver that has to move a machine for a Redeploy."""

    async def check(self, task: Task) -> Checked:
        return Veto("it cannot start a machine where it is") if task.in_place else Ok()


def test_a_driver_that_cannot_is_asked_before_anything_is_announced() -> None:
    with Service(
        FLEET, driver=MovesEverything(ImpactJournal(), lambda duration: duration)
    ) as service:
        arm = Arm(service)
        answer = arm.call("POST", f"{WEB}/reimage")
        service.clock.advance("1h")
        assert service.events == []
        operation = arm.operation(answer)
        assert operation["status"] == "Failed"
        assert "it cannot start a machine where it is" in operation["error"]["message"]
        assert arm.call("POST", f"{WEB}/rollingUpgrades/cancel").status == 200
        service.clock.advance("1s")
        assert arm.operation(answer)["status"] == "Canceled"
