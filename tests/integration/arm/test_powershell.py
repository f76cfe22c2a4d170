"""What Az.Compute and Az.Maintenance of PowerShell send, replayed: the program itself cannot be run
here. Taken from its published source; answers are read as its client runtime reads them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from forewarn.testing import Service
from forewarn.testing.kit.inprocess import Response
from helpers.arm import COMPUTE, HOST, Arm, anonymous

FLEET = "groups: [{name: jump, kind: standalone, machines: [{name: jumpbox}]}]"
MACHINE = f"{COMPUTE}/virtualMachines/jumpbox"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        service["jumpbox"].get()
        yield service


def send(arm: Arm, method: str, path: str, command: str) -> Response:
    return arm.call(
        method,
        path,
        x_ms_client_request_id="7c5e3a52-8f0f-4a4e-9bd4-2a1f4ab7d9c1",
        accept_language="en-US",
        CommandName=command,
        ParameterSetName="RestartByName",
        User_Agent="AzurePowershell/v14.5.0 Az.Compute/10.4.0",
    )


def test_add_az_environment_finds_the_cloud(service: Service) -> None:
    """Add-AzEnvironment -ARMEndpoint"""
    found = anonymous(service, "GET", "/metadata/endpoints?api-version=2015-01-01").json()
    assert found["authentication"] == {
        "loginEndpoint": f"https://{HOST}/adfs",
        "audiences": [f"https://{HOST}"],
    }
    assert {"galleryEndpoint", "graphEndpoint", "portalEndpoint"} <= set(found)


@pytest.mark.parametrize(
    ("command", "action", "type"),
    [("Restart-AzVM", "restart", "Reboot"), ("Set-AzVM", "redeploy", "Redeploy")],
)
def test_a_machine_is_restarted_and_redeployed(
    service: Service, command: str, action: str, type: str
) -> None:
    """Restart-AzVM, and Set-AzVM -Redeploy"""
    arm = Arm(service)
    begun = send(arm, "POST", f"{MACHINE}/{action}?api-version=2024-11-01", command)
    assert begun.status == 202
    place = urlsplit(begun.headers["azure-asyncoperation"])
    target = f"{place.path}?{place.query}"
    polled = send(arm, "GET", target, command)
    assert (polled.status, polled.json()["status"]) == (200, "InProgress")
    assert polled.headers["retry-after"] == "1"
    [event] = service["jumpbox"].document()["Events"]
    assert event["EventType"] == type
    service.clock.advance("1h")
    ended = send(arm, "GET", target, command).json()
    # What it prints: OperationId, Status, StartTime, EndTime and Error.
    assert ended["status"] == "Succeeded"
    assert {"name", "startTime", "endTime"} <= set(ended)
    assert "error" not in ended


def test_maintenance_is_performed_and_an_eviction_refused(service: Service) -> None:
    """Restart-AzVM -PerformMaintenance, and Set-AzVM -SimulateEviction of a machine that is none"""
    arm = Arm(service)
    planned = service.schedule("Reboot", "jumpbox")
    answer = send(
        arm, "POST", f"{MACHINE}/performMaintenance?api-version=2024-11-01", "Restart-AzVM"
    )
    assert (answer.status, planned.status) == (202, "Started")
    eviction = f"{MACHINE}/simulateEviction?api-version=2024-11-01"
    assert send(arm, "POST", eviction, "Set-AzVM").json()["error"]["code"] == "OperationNotAllowed"


def test_an_event_is_acknowledged(service: Service) -> None:
    """Set-AzScheduledEvent"""
    arm = Arm(service)
    planned = service.schedule("Reboot", "jumpbox")
    path = f"{MACHINE}/providers/Microsoft.Maintenance/scheduledevents/{planned.id}/acknowledge"
    answer = send(arm, "POST", f"{path}?api-version=2025-10-01-preview", "Set-AzScheduledEvent")
    assert (answer.status, planned.status) == (200, "Started")
