"""az, unmodified, with forewarn for its cloud: it waits while guests are asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.azure_tools import Announcements, Az
from helpers.event_grid_receiver import EventGridReceiver
from helpers.paths import ROOT
from helpers.token_api import token

FLEET = """
hosts: [h1, h2]
groups:
  - name: jump
    kind: standalone
    machines: [{name: jumpbox, host: h1}]
  - name: web
    kind: scale-set
    policy: {terminate_notice: 5m}
    machines:
      - {name: web_0, host: h1}
      - {name: web_1, host: h2, update_domain: 1}
      - {name: web_2, host: h1, spot: true}
      - {name: web_3, host: h2, update_domain: 1}
"""
PUBLISHED = (
    "scheduledEventsPolicy.scheduledEventsAdditionalPublishingTargets"
    ".eventGridAndResourceGraph.enable=true"
)
QUEUE = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/queueServices"
    "/default/queues/q"
)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET, arm=True) as service:
        for machine in service.machines:
            machine.get()
        yield service


@pytest.fixture(scope="module")
def az(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Az:
    secret = token(service, "ops", Role.ADMIN).secret.text
    return Az(tmp_path_factory.mktemp("azure"), service.arm.url, service.arm.ca, secret)


@pytest.fixture(scope="module")
def announcements(service: Service) -> Announcements:
    return Announcements(service)


def test_az_restart_waits_for_the_approval_of_the_guest(
    service: Service, az: Az, announcements: Announcements
) -> None:
    guest = service["jumpbox"]
    announcements.forget()
    restart = az.start("vm", "restart", "-g", "FOREWARN", "-n", "JumpBox")
    announcements.wait()
    [event] = guest.document()["Events"]
    assert (event["EventType"], event["EventSource"]) == ("Reboot", "User")
    assert restart.process.poll() is None
    guest.approve(event["EventId"])
    service.clock.advance("1h")
    assert guest.document()["Events"] == []
    assert restart.wait() == 0, "".join(restart.stderr)


def test_a_spot_machine_is_evicted(service: Service, az: Az) -> None:
    az.run("vmss", "simulate-eviction", "-g", "forewarn", "-n", "web", "--instance-id", "2")
    [event] = service["web_2"].document()["Events"]
    assert (event["EventType"], event["Resources"]) == ("Preempt", ["web_2"])
    service.clock.advance("5m")
    assert not service["web_2"].alive


def test_a_member_is_deleted_after_its_notice(
    service: Service, az: Az, announcements: Announcements
) -> None:
    announcements.forget()
    deletion = az.start(
        *("vmss", "delete-instances", "-g", "forewarn", "-n", "web", "--instance-ids", "1")
    )
    announcements.wait()
    [event] = service["web_1"].document()["Events"]
    assert (event["EventType"], event["Resources"]) == ("Terminate", ["web_1"])
    service.clock.advance("10m")
    assert deletion.wait() == 0, "".join(deletion.stderr)
    assert not service["web_1"].alive


def test_instances_are_reimaged(service: Service, az: Az, announcements: Announcements) -> None:
    named = ("-g", "forewarn", "-n", "web")
    profile = "virtualMachineProfile.scheduledEventsProfile.osImageNotificationProfile"
    refused = az.start("vmss", "reimage", *named, "--instance-ids", "0")
    assert refused.wait() == 1
    assert "osImageNotificationProfile" in "".join(refused.stderr)
    az.run("vmss", "update", *named, "--set", f"{profile}.enable=true", "--no-wait")
    for words in (("reimage", "--instance-ids", "0"), ("rolling-upgrade", "start")):
        announcements.forget()
        reimage = az.start("vmss", *words, *named)
        announcements.wait()
        [event] = service["web_0"].document()["Events"]
        assert (event["EventType"], event["Resources"]) == ("Redeploy", ["web_0"])
        assert reimage.process.poll() is None
        service.clock.advance("3h")
        assert reimage.wait() == 0, "".join(reimage.stderr)
    latest = az.run("vmss", "rolling-upgrade", "get-latest", *named)
    assert latest["runningStatus"]["code"] == "Completed"


def test_a_scale_set_is_made_smaller(
    service: Service, az: Az, announcements: Announcements
) -> None:
    announcements.forget()
    scaling = az.start("vmss", "scale", "-g", "forewarn", "-n", "web", "--new-capacity", "1")
    announcements.wait()
    [event] = service["web_3"].document()["Events"]
    assert event["EventType"] == "Terminate"
    service.clock.advance("10m")
    assert scaling.wait() == 0, "".join(scaling.stderr)
    assert [machine.name for machine in service.machines if machine.alive] == ["jumpbox", "web_0"]


def test_a_webhook_is_subscribed_to_events(service: Service, az: Az) -> None:
    topics = ("eventgrid", "system-topic")
    names = ("-g", "forewarn", "--system-topic-name", "events")
    az.run("vm", "update", "-g", "forewarn", "-n", "jumpbox", "--set", PUBLISHED)
    topic = az.run(
        *(*topics, "create", "-g", "forewarn", "-n", "events", "--location", "global"),
        *("--topic-type", "Microsoft.ResourceNotifications.MaintenanceResources"),
        *("--source", f"/subscriptions/{service.arm.subscription}"),
    )
    assert (topic["name"], topic["provisioningState"]) == ("events", "Succeeded")
    subscriptions = (*topics, "event-subscription")
    with EventGridReceiver() as receiver:
        create = (*subscriptions, "create", *names, "-n", "plane", "--endpoint")
        made = az.run(*create, receiver.url, "--event-delivery-schema", "cloudeventschemav1_0")
        assert made["provisioningState"] == "Succeeded"
        assert receiver.validations == 1
        [listed] = az.run(*subscriptions, "list", *names)
        assert listed["destination"]["endpointBaseUrl"] == receiver.url.partition("?")[0]
        shown = (*subscriptions, "show", *names, "-n", "plane", "--include-full-endpoint-url")
        assert az.run(*shown, "true")["destination"]["endpointUrl"] == receiver.url
        event = service["jumpbox"].restart()
        service.clock.advance("1h")
        receiver.wait(3)
        assert receiver.statuses_of(event.id) == ["Scheduled", "Started", "Completed"]
        refused = az.start(*create, QUEUE, "--endpoint-type", "storagequeue")
        assert refused.wait() == 1
        assert "events are sent to webhooks only" in "".join(refused.stderr)
    az.run(*subscriptions, "delete", *names, "-n", "plane", "--yes")
    assert az.run(*subscriptions, "list", *names) == []
    az.run(*topics, "delete", "-g", "forewarn", "-n", "events", "--yes")
    assert az.run(*topics, "list", "-g", "forewarn") == []


def test_az_graph_finds_events_and_machines(service: Service, az: Az) -> None:
    az.run("vm", "update", "-g", "forewarn", "-n", "jumpbox", "--set", PUBLISHED)
    event = service["jumpbox"].restart()
    graph = ("graph", "query", "-q")
    events = "maintenanceresources | where type == 'microsoft.maintenance/scheduledevents'"
    named = f"{events} and name == '{event.id}' | project properties.EventStatus"
    assert az.run(*graph, named)["data"] == [{"properties_EventStatus": "Scheduled"}]
    event.cancel("not today")
    assert az.run(*graph, named)["data"] == [{"properties_EventStatus": "Canceled"}]
    found: list[str] = []
    token: tuple[str, ...] = ()
    while True:
        page = az.run(*graph, "Resources | project name | order by name", "--first", "2", *token)
        found += [row["name"] for row in page["data"]]
        if page["skip_token"] is None:
            break
        token = ("--skip-token", page["skip_token"])
    assert found == ["web", "jumpbox", "hosts", "h2", "h1"]
    refused = az.start(*graph, "Resources | join (Resources) on id")
    assert refused.wait() == 1
    assert "at character 13: unknown operator 'join'" in "".join(refused.stderr)


def test_az_shows_a_refusal_with_its_code(az: Az) -> None:
    refused = az.start("vm", "deallocate", "-g", "forewarn", "-n", "jumpbox")
    assert refused.wait() == 1
    assert re.search(r"\(OperationNotAllowed\) .*/deallocate'", "".join(refused.stderr))


@pytest.mark.parametrize("validate", [(), ("--validate",)])
def test_az_shows_why_a_deployment_fails(az: Az, validate: tuple[str, ...]) -> None:
    create = ("vm", "availability-set", "create", "-g", "forewarn", "-n", "new")
    refused = az.start(*create, *validate)
    assert refused.wait() == 1
    output = "".join(refused.stderr)
    assert "OperationNotAllowed" in output
    assert "Traceback" not in output


def test_the_logins_of_the_page_work_as_written(service: Service, az: Az) -> None:
    page = (ROOT / "docs/arm.md").read_text()
    lines = re.findall(r"`az (login --service-principal [^`]+)`", page)
    assert len(lines) == 2
    for role, line in zip((Role.VIEWER, Role.OPERATOR), lines, strict=True):
        made = token(service, f"new-{role.value}", role)
        names = {"NAME": made.token.name, "TOKEN": made.secret.text, "JWT": made.secret.text}
        users = az.run(*(names.get(word, word) for word in line.split()))
        assert users[0]["user"]["name"] == made.token.name
