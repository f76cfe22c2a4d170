"""Event Grid: one POST for each change of an event's status, as Azure's system topic sends it.

Before the first one, a receiver has to show that it wants them: in Event Grid's schema by returning
a code, in that of CloudEvents by allowing the origin.
"""

from __future__ import annotations

import uuid
from datetime import UTC
from typing import Any

import msgspec

from forewarn.notify.config import EventGrid, origin
from forewarn.notify.notification import Message
from forewarn.notify.targets.http import HttpSender
from forewarn.notify.targets.port import DeliveryFailed
from forewarn.support import guard
from forewarn.support.instants import to_datetime

EVENT_TYPE = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"
ORIGIN = "eventgrid.azure.net"  # published receivers compare it
API_VERSION = "2024-07-01"  # of the data
PLACE = 3  # parts of an id up to that of the subscription

_encode = msgspec.json.Encoder().encode


class EventGridSender(HttpSender):
    def __init__(self, options: EventGrid, name: str) -> None:
        super().__init__(options, UTC)
        self._cloud_events = options.schema == "CloudEventSchemaV1_0"
        self._name = name.rpartition(":")[2]  # that of a topic is before it
        self._validated = ""  # the URL
        self._attempts = ("", 0)  # of the message with this id

    async def send(self, message: Message) -> None:
        if self._validated != (url := self._url()):
            await self._validate(url)
            self._validated = url
        if not message.notifications:  # about messages that were skipped, or a test
            return
        id, number = self._attempts
        self._attempts = message.id, number + 1 if id == message.id else 0
        await super().send(message)

    async def _validate(self, url: str) -> None:
        where, code = origin(url), str(uuid.uuid4())
        if self._cloud_events:
            headers, _ = await self._exchange(
                "OPTIONS", url, b"", {"WebHook-Request-Origin": ORIGIN}
            )
            if headers.get("webhook-allowed-origin", "").strip().lower() in ("*", ORIGIN):
                return
            raise DeliveryFailed(
                f"{where} did not allow the subscription: its answer to OPTIONS needs the header"
                f" WebHook-Allowed-Origin: {ORIGIN}",
                refused=True,
            )
        data: dict[str, Any] = {"id": code, "topic": "", "subject": "", "eventType": VALIDATION}
        data |= {"eventTime": to_datetime(guard.wall_us()), "data": {"validationCode": code}}
        body = _encode([data | {"metadataVersion": "1", "dataVersion": "2"}])
        _, content = await self._exchange("POST", url, body, self._headers(VALIDATION))
        try:
            answer = msgspec.json.decode(content)
        except msgspec.DecodeError:
            answer = None
        if not isinstance(answer, dict) or answer.get("validationResponse") != code:
            raise DeliveryFailed(
                f"{where} did not validate the subscription: its answer to the"
                f" {VALIDATION.rpartition('.')[2]} needs the validationCode as validationResponse",
                refused=True,
            )

    def _render(self, message: Message) -> tuple[bytes, dict[str, str]]:
        resource = message.notifications[0].resource
        assert resource is not None, "others are not sent"
        headers = self._headers(EVENT_TYPE)
        data = {"resourceInfo": resource, "apiVersion": API_VERSION}
        subscription = "/".join(resource["id"].split("/")[:PLACE])
        event: dict[str, Any] = {"id": message.id, "subject": resource["id"], "data": data}
        if not self._cloud_events:
            event |= {"topic": subscription, "eventType": EVENT_TYPE, "eventTime": message.at}
            return _encode([event | {"dataVersion": "3.0", "metadataVersion": "1"}]), headers
        event |= {"source": subscription, "type": EVENT_TYPE, "time": message.at}
        headers["content-type"] = "application/cloudevents+json; charset=utf-8"
        return _encode(event | {"specversion": "1.0"}), headers

    def _headers(self, event_type: str) -> dict[str, str]:
        validation = event_type == VALIDATION
        return {
            "content-type": "application/json; charset=utf-8",
            "aeg-event-type": "SubscriptionValidation" if validation else "Notification",
            "aeg-subscription-name": self._name.upper(),
            "aeg-delivery-count": "0" if validation else str(self._attempts[1]),
            "aeg-data-version": "2" if validation else "3.0",
            "aeg-metadata-version": "1",
        }
