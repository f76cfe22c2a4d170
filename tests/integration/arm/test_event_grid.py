"""System topics of Event Grid, and webhooks that are subscribed to them with Azure's API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.testing import Service
from helpers.arm import RESOURCE_GROUP, SUBSCRIPTION, Arm, code, message
from helpers.event_grid_receiver import EventGridReceiver
from helpers.token_api import token
from helpers.waiting import until

TYPE = "Microsoft.ResourceNotifications.MaintenanceResources"
TOPIC = f"{RESOURCE_GROUP}/providers/Microsoft.EventGrid/systemTopics/events"
WEBHOOK = f"{TOPIC}/eventSubscriptions/plane"
FLEET = """
groups:
  - {name: web, kind: scale-set, policy: {event_grid: true}, machines: [{name: web_0}]}
  - {name: jump, kind: standalone, policy: {event_grid: true}, machines: [{name: jumpbox}]}
  - name: far
    kind: standalone
    subscription: 11111111-1111-1111-1111-111111111111
    policy: {event_grid: true}
    machines: [{name: far-0}]
"""


@pytest.fixture
def receiver() -> Iterator[EventGridReceiver]:
    with EventGridReceiver() as receiver:
        yield receiver


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def service(disk: Disk) -> Iterator[Service]:
    with Service(FLEET, store=MemoryStore(disk)) as service:
        for machine in service.machines:
            machine.get()
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    arm = Arm(service)
    assert arm.call("PUT", TOPIC, topic()).status == 201
    return arm


def topic(**properties: Any) -> dict[str, Any]:
    wanted = {"topicType": TYPE, "source": SUBSCRIPTION}
    return {"location": "global", "tags": {"a": "b"}, "properties": {**wanted, **properties}}


def webhook(receiver: EventGridReceiver, **properties: Any) -> dict[str, Any]:
    """What az sends."""
    found: dict[str, Any] = {
        "destination": {"endpointType": "WebHook", "properties": {"endpointUrl": receiver.url}},
        "filter": {"isSubjectCaseSensitive": False},
        "retryPolicy": {"maxDeliveryAttempts": 30, "eventTimeToLiveInMinutes": 1440},
    }
    return {"properties": {**found, **properties}}


def test_a_webhook_gets_events_until_it_is_deleted(
    service: Service, arm: Arm, receiver: EventGridReceiver
) -> None:
    assert arm.get(TOPIC) == {
        "id": TOPIC,
        "name": "events",
        "type": "Microsoft.EventGrid/systemTopics",
        "location": "global",
        "tags": {"a": "b"},
        "properties": {
            "source": SUBSCRIPTION,
            "topicType": TYPE,
            "provisioningState": "Succeeded",
        },
    }
    made = arm.call("PUT", WEBHOOK, webhook(receiver))
    assert made.status == 201
    assert receiver.validations == 1
    assert arm.get(WEBHOOK) == made.json()
    assert "s3cr3t" not in str(made.json())
    assert arm.call("POST", f"{WEBHOOK}/getFullUrl").json() == {"endpointUrl": receiver.url}
    assert [each["name"] for each in arm.get(f"{TOPIC}/eventSubscriptions")["value"]] == ["plane"]
    topics = "/providers/Microsoft.EventGrid/systemTopics"
    for place in (SUBSCRIPTION, RESOURCE_GROUP):
        assert [each["name"] for each in arm.get(place + topics)["value"]] == ["events"]
    assert arm.get(f"/subscriptions/other{topics}")["value"] == []

    event = service["web_0"].restart()
    service["far-0"].restart()  # of another subscription
    service.clock.advance("1h")
    receiver.wait(3)
    assert receiver.statuses_of(event.id) == ["Scheduled", "Started", "Completed"]
    assert receiver.events[0][1]["aeg-subscription-name"] == "PLANE"

    assert arm.call("DELETE", WEBHOOK).status == 200
    assert arm.call("DELETE", WEBHOOK).status == 204
    assert arm.call("GET", WEBHOOK).status == 404
    service["web_0"].restart()
    assert len(receiver.events) == 3
    assert arm.get(TOPIC)["name"] == "events"


def test_a_subscription_is_kept_when_settings_change_and_when_control_ends(
    disk: Disk, receiver: EventGridReceiver
) -> None:
    with Service(FLEET, store=MemoryStore(disk)) as service:
        arm = Arm(service)
        service["web_0"].get()
        assert arm.call("PUT", TOPIC, topic()).status == 201
        assert arm.call("PUT", WEBHOOK, webhook(receiver)).status == 201
        session = service._session
        session.run(session.node.configure_notifications(()))
        event = service["web_0"].restart()
        receiver.wait(1)
    with Service(store=MemoryStore(disk)) as service:
        service.events[0].cancel("not today")
        until(lambda: "Canceled" in receiver.statuses_of(event.id))
        assert len({found["id"] for found, _ in receiver.events}) == 2
        arm = Arm(service)
        assert arm.get(WEBHOOK)["name"] == "plane"
        assert arm.call("DELETE", TOPIC).status == 200
        assert arm.call("GET", TOPIC).status == arm.call("GET", WEBHOOK).status == 404
    assert disk.notify_positions == {}


def test_a_new_url_gets_what_the_old_one_has_not_received(
    service: Service, arm: Arm, receiver: EventGridReceiver
) -> None:
    with EventGridReceiver() as first:
        assert arm.call("PUT", WEBHOOK, webhook(first)).status == 201
        first.statuses = [500] * 100
        event = service["web_0"].restart()
        first.wait(1)
        assert arm.call("PUT", WEBHOOK, webhook(receiver)).status == 201
    receiver.wait(1)
    assert receiver.statuses_of(event.id) == ["Scheduled"]


def test_what_get_returns_can_be_sent_back_with_the_url(
    arm: Arm, receiver: EventGridReceiver
) -> None:
    body = webhook(
        receiver,
        eventDeliverySchema="cloudeventschemav1_0",
        labels=["a"],
        filter={"subjectBeginsWith": RESOURCE_GROUP, "includedEventTypes": None},
    )
    body = arm.call("PUT", WEBHOOK, body).json()
    assert body["properties"]["eventDeliverySchema"] == "CloudEventSchemaV1_0"
    destination = body["properties"]["destination"]["properties"]
    assert destination.pop("endpointBaseUrl") == receiver.url.partition("?")[0]
    destination["endpointUrl"] = receiver.url
    assert arm.call("PUT", WEBHOOK, body).json() == arm.get(WEBHOOK)
    assert receiver.validations == 2


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"destination": {"endpointType": "EventHub"}}, "destination.endpointType cannot be set"),
        ({"deadLetterDestination": {"endpointType": "StorageBlob"}}, "deadLetterDestination"),
        ({"filter": {"subjectEndsWith": "x"}}, "filter.subjectEndsWith cannot be set"),
        ({"filter": {"advancedFilters": [{"key": "x"}]}}, "filter.advancedFilters cannot be set"),
        ({"filter": {"includedEventTypes": ["Other"]}}, "must be 'Microsoft.ResourceNot"),
        ({"filter": {"subjectBeginsWith": "/subscriptions/1111"}}, "must begin with '/subscr"),
        ({"retryPolicy": {"eventTimeToLiveInMinutes": 1}}, "eventTimeToLiveInMinutes cannot be"),
        ({"eventDeliverySchema": "CustomInputSchema"}, "must be one of EventGridSchema"),
        ({"destination": {"properties": {"endpointUrl": "x"}}}, "is not a URL"),
        ({"destination": None}, "is not a URL"),
        ({"labels": "x"}, "labels must be a list"),
        (
            {"destination": {"properties": {"endpointUrl": "http://127.0.0.1:1/"}}},
            "could not be validated: http://127.0.0.1:1 cannot be reached",
        ),
    ],
)
def test_an_unsupported_subscription_is_refused_and_not_stored(
    arm: Arm, receiver: EventGridReceiver, properties: dict[str, Any], reason: str
) -> None:
    answer = arm.call("PUT", WEBHOOK, webhook(receiver, **properties))
    assert code(answer) == (400, "InvalidRequest")
    assert reason in message(answer)
    assert arm.get(f"{TOPIC}/eventSubscriptions")["value"] == []
    assert receiver.validations == 0


def test_a_receiver_that_does_not_validate_is_refused(
    arm: Arm, receiver: EventGridReceiver
) -> None:
    receiver.validates = False
    answer = arm.call("PUT", WEBHOOK, webhook(receiver))
    assert code(answer) == (400, "InvalidRequest")
    assert "validationCode" in message(answer)
    assert arm.call("GET", WEBHOOK).status == 404


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (TOPIC, topic(topicType="Microsoft.Storage.StorageAccounts"), (400, "InvalidRequest")),
        (TOPIC, topic(source="/subscriptions/other"), (400, "InvalidRequest")),
        (TOPIC, topic(inputSchema="CloudEventSchemaV1_0"), (400, "InvalidRequest")),
        (TOPIC, {**topic(), "properties": "x"}, (400, "InvalidRequest")),
        (TOPIC, {**topic(), "location": {"name": "x"}}, (400, "InvalidRequest")),
        (TOPIC, {**topic(), "tags": ["x"]}, (400, "InvalidRequest")),
        (TOPIC[:-6] + "a_b", topic(), (400, "InvalidRequest")),
        (TOPIC.replace("forewarn", "none"), topic(), (404, "ResourceGroupNotFound")),
        (WEBHOOK.replace("events", "none"), {}, (404, "ResourceNotFound")),
    ],
)
def test_other_topics_are_refused(
    arm: Arm, path: str, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert code(arm.call("PUT", path, body)) == expected


def test_a_tenant_sees_and_changes_no_subscription(
    service: Service, arm: Arm, receiver: EventGridReceiver
) -> None:
    assert arm.call("PUT", WEBHOOK, webhook(receiver)).status == 201
    token(service, "ops", Role.ADMIN)
    tenant = Arm(service, token(service, "t", Role.TENANT, groups=("web",)).secret.text)
    for method, path in (("GET", TOPIC), ("PUT", WEBHOOK), ("DELETE", WEBHOOK), ("GET", WEBHOOK)):
        assert code(tenant.call(method, path, {})) == (403, "AuthorizationFailed")
    viewer = Arm(service, token(service, "v", Role.VIEWER).secret.text)
    assert viewer.get(WEBHOOK)["name"] == "plane"
    full = viewer.call("POST", f"{WEBHOOK}/getFullUrl")
    assert code(full) == (403, "AuthorizationFailed")
    assert receiver.validations == 1
