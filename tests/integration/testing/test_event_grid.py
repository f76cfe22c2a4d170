"""Webhooks of a test, which get events from the service inside the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from forewarn.testing import RefusedError, Service
from helpers.event_grid_receiver import EventGridReceiver


@pytest.fixture
def webhook() -> Iterator[EventGridReceiver]:
    with EventGridReceiver() as webhook:
        yield webhook


@pytest.mark.parametrize("schema", ["EventGridSchema", "CloudEventSchemaV1_0"])
def test_a_webhook_gets_every_status_on_the_clock_of_the_test(
    webhook: EventGridReceiver, schema: Literal["EventGridSchema", "CloudEventSchemaV1_0"]
) -> None:
    with Service(arm=True) as service:
        service.arm.send_events(webhook.url, schema=schema)
        web = service.scale_set("web", 2, event_grid=True)
        silent = service.scale_set("silent", 1)
        event = web[0].restart()
        silent[0].restart()
        service.clock.advance("1h")
        service.arm.wait_for_events()
    assert webhook.statuses_of(event.id) == ["Scheduled", "Started", "Completed"]
    assert len(webhook.events) == 3
    times = [found.get("eventTime") or found["time"] for found, _ in webhook.events]
    assert times[:2] == ["2027-01-15T08:00:00Z", "2027-01-15T08:15:00Z"]


def test_a_webhook_that_has_failed_is_tried_again(webhook: EventGridReceiver) -> None:
    with Service(arm=True) as service:
        service.arm.send_events(webhook.url)
        event = service.availability_set("sql", 1, event_grid=True)[0].restart()
        webhook.statuses = [500, 503]
        service.arm.wait_for_events()
        assert set(webhook.statuses_of(event.id)) == {"Scheduled"}
        assert len({found["id"] for found, _ in webhook.events}) == 1


def test_what_was_not_received_is_an_error(webhook: EventGridReceiver) -> None:
    with Service(arm=True) as service:
        service.arm.send_events(webhook.url)
        webhook.statuses = [500] * 1_000
        service.machine("jumpbox", event_grid=True).restart()
        webhook.wait(2)  # the first attempt has failed
        with pytest.raises(RefusedError, match="answered 500"):
            service.arm.wait_for_events(timeout=0.1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "http://127.0.0.1:1/events"}, "cannot be reached"),
        ({"url": "example.org"}, "is not a URL"),
        ({}, "did not validate the subscription"),
    ],
)
def test_a_webhook_that_gets_nothing_is_refused(
    webhook: EventGridReceiver, options: dict[str, Any], reason: str
) -> None:
    webhook.validates = False
    with Service(arm=True) as service:
        with pytest.raises(RefusedError, match=reason):
            service.arm.send_events(**{"url": webhook.url, **options})
        service.machine("jumpbox", event_grid=True).restart()
        service.arm.wait_for_events()
    assert webhook.events == []


def test_events_of_other_subjects_are_not_sent(webhook: EventGridReceiver) -> None:
    with Service(arm=True) as service:
        arm = service.arm
        group = f"/subscriptions/{arm.subscription}/resourceGroups/{arm.resource_group}"
        sets = f"{group}/providers/Microsoft.Compute/virtualMachineScaleSets"
        arm.send_events(webhook.url, subject_begins_with=f"{sets}/web")
        event = service.scale_set("web", 1, event_grid=True)[0].restart()
        service.scale_set("other", 1, event_grid=True)[0].restart()
        arm.wait_for_events()
    assert [found["subject"].rpartition("/")[2] for found, _ in webhook.events] == [event.id]
