"""Events on their way to a webhook of Event Grid: in both schemas, validated first, in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from forewarn.core import EventType
from forewarn.core.time import DAY, HOUR, MINUTE
from forewarn.notify import follower
from forewarn.notify.config import Notify
from forewarn.notify.targets import http
from forewarn.notify.targets.event_grid import EVENT_TYPE
from helpers.event_grid_receiver import EventGridReceiver
from helpers.notifying_service import World, table, world
from helpers.waiting import until_async

GROUP = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/forewarn"
MACHINES = f"{GROUP}/providers/Microsoft.Compute/virtualMachines"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(follower, "FIRST_PAUSE_REFUSED", 0.01)
    monkeypatch.setattr(follower, "LONGEST_PAUSE_REFUSED", 0.01)


@pytest.fixture
def receiver() -> Iterator[EventGridReceiver]:
    with EventGridReceiver() as receiver:
        yield receiver


def grid(receiver: EventGridReceiver, **options: Any) -> Notify:
    fields = {"url": receiver.url, **options}
    return table(**{"event-grid": fields, **fields.pop("table", {})})


async def publish(w: World, *names: str) -> None:
    for name in names:
        await w.node.platform.set_policy(
            name, lambda policy: msgspec.structs.replace(policy, event_grid=True), "ann"
        )


async def delivered(receiver: EventGridReceiver, count: int) -> list[tuple[dict[str, Any], Any]]:
    await until_async(lambda: len(receiver.events) >= count)
    return receiver.events


async def closed(writers: list[asyncio.StreamWriter]) -> None:
    """Close the connections of a server that accepts no more, also those it has just accepted."""
    receiving = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*receiving, return_exceptions=True)
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_each_status_is_sent_once_in_order(receiver: EventGridReceiver) -> None:
    async def play() -> None:
        async with world(grid(receiver)) as w:
            await publish(w, "web")
            event = await w.reboot("web-0", description="new kernel", duration=9)
            silent = await w.reboot("db-0")  # its group does not publish
            await w.advance(30 * MINUTE)
            other = await w.reboot("web-1")
            await w.node.platform.cancel(other, "ann", "not today")
            await delivered(receiver, 5)
            assert receiver.statuses_of(event) == ["Scheduled", "Started", "Completed"]
            assert receiver.statuses_of(other) == ["Scheduled", "Canceled"]
            assert receiver.statuses_of(silent) == []
            assert receiver.validations == 1
            assert len({found["id"] for found, _ in receiver.events}) == 5

            found, headers = receiver.events[0]
            id = f"{MACHINES}/web-0/providers/Microsoft.Maintenance/scheduledEvents/{event}"
            resource = found["data"].pop("resourceInfo")
            assert found.pop("id") != event
            assert found == {
                "topic": "/subscriptions/00000000-0000-0000-0000-000000000000",
                "subject": id,
                "eventType": EVENT_TYPE,
                "eventTime": "2027-01-15T08:00:00Z",
                "data": {"apiVersion": "2024-07-01"},
                "dataVersion": "3.0",
                "metadataVersion": "1",
            }
            assert resource == {
                "id": id,
                "name": event,
                "type": "Microsoft.Maintenance/scheduledEvents",
                "location": "local",
                "properties": {
                    "EventId": event,
                    "EventStatus": "Scheduled",
                    "EventType": "Reboot",
                    "ResourceType": "VirtualMachine",
                    "Resources": ["web-0"],
                    "NotBefore": "Fri, 15 Jan 2027 08:15:00 GMT",
                    "Description": "new kernel",
                    "EventSource": "Platform",
                    "DurationInSeconds": 9,
                    "ScheduledEventApiVersion": "2020-07-01",
                },
            }
            assert headers["aeg-subscription-name"] == "OPS"
            assert headers["aeg-delivery-count"] == "0"
            assert (headers["aeg-data-version"], headers["aeg-metadata-version"]) == ("3.0", "1")

    run(play())


def test_the_schema_of_cloudevents_is_validated_by_options(receiver: EventGridReceiver) -> None:
    async def play() -> None:
        async with world(grid(receiver, schema="CloudEventSchemaV1_0")) as w:
            await publish(w, "web")
            event = await w.reboot("web-0")
            [(found, headers)] = await delivered(receiver, 1)
            body = msgspec.json.encode(found)
            message = HTTPMessage({"content-type": headers["content-type"]}, body)
            parsed = from_http_event(message)
            assert parsed.get_type() == EVENT_TYPE
            assert parsed.get_source() == "/subscriptions/00000000-0000-0000-0000-000000000000"
            assert str(parsed.get_subject()).endswith(event)
            assert headers["aeg-subscription-name"] == "OPS"
            assert receiver.validations == 1

    run(play())


@pytest.mark.parametrize("schema", ["EventGridSchema", "CloudEventSchemaV1_0"])
def test_nothing_is_sent_to_a_receiver_that_does_not_validate(
    receiver: EventGridReceiver, schema: str
) -> None:
    async def play() -> None:
        receiver.validates = False
        async with world(grid(receiver, schema=schema)) as w:
            await publish(w, "web")
            event = await w.reboot("web-0")
            await until_async(lambda: w.state().state == "refused")
            assert "validat" in w.state().last_error or "allow" in w.state().last_error
            assert "s3cr3t" not in w.state().last_error
            assert receiver.events == []
            receiver.validates = True
            await delivered(receiver, 1)
            assert receiver.statuses_of(event) == ["Scheduled"]

    run(play())


def test_a_receiver_that_fails_for_a_day_gets_everything(receiver: EventGridReceiver) -> None:
    async def play() -> None:
        receiver.statuses = [500, 500, 307, 429, 400, 410]
        async with world(grid(receiver)) as w:
            await publish(w, "web")
            event = await w.reboot("web-0")
            await until_async(lambda: len(receiver.events) >= 2)
            await w.advance(DAY)
            await delivered(receiver, 9)
            assert receiver.statuses_of(event) == ["Scheduled"] * 7 + ["Started", "Completed"]
            assert len({found["id"] for found, _ in receiver.events}) == 3
            counts = [headers["aeg-delivery-count"] for _, headers in receiver.events]
            assert counts == ["0", "1", "2", "3", "4", "5", "6", "0", "0"]
            assert not any("cookie" in headers for _, headers in receiver.events)

    run(play())


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "closes", "times"),
    [
        (OK + b"never", False, 1),
        (OK + b"never", True, 1),
        (OK + b"0123456789 and another answer", False, 1),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000, False, 1),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip", True, 1),
        (b"", True, 2),
        (b"SSH-2.0-OpenSSH\r\n", True, 2),
        (b"HTTP/1.1 999 Other\r\nContent-Length: 0\r\n\r\n", True, 2),
        (b"HTTP/1.1 204 No Content\r\nLocation: http://127.0.0.1:1/\r\n\r\n", True, 1),
    ],
)
def test_what_a_receiver_answers_after_its_status_does_not_count(
    answer: bytes, closes: bool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no status is sent again, and is received then."""
    monkeypatch.setattr(http, "MAX_READING", 0.01)
    received: list[bytes] = []

    writers: list[asyncio.StreamWriter] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"OPTIONS"):
            writer.write(b"HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: *\r\n")
            writer.write(b"Content-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            received.append(head)
            writer.write(answer if len(received) == 1 else OK)
        await writer.drain()
        if closes or head.startswith(b"OPTIONS") or len(received) > 1:
            writer.close()

    async def play() -> None:
        server = await asyncio.start_server(receive, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        fields = {"url": url, "schema": "CloudEventSchemaV1_0"}
        async with server, world(table(**{"event-grid": fields})) as w:
            await publish(w, "web")
            await w.reboot("web-0")
            await until_async(lambda: w.state().messages == 1)
            assert len(received) == times
        await closed(writers)

    run(play())


CODE = b'{"validationResponse": "%s"}'


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1_000_000 + CODE,  # beyond what is read
        b'HTTP/1.1 200 OK\r\n\r\n["%s"]',
        b'HTTP/1.1 200 OK\r\n\r\n{"validationResponse": ["%s"]}',
        b'HTTP/1.1 200 OK\r\n\r\n{"validationResponse": "%s',
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + CODE + b"\xff",
        b"HTTP/1.1 302 Found\r\nLocation: /other\r\n\r\n" + CODE,
        b"HTTP/1.1 500 Internal Server Error\r\n\r\n" + CODE,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + CODE,
        b"\x16\x03\x01\x02\x00",
        b"",
        None,  # it says nothing, and keeps the connection
    ],
)
def test_a_receiver_that_validates_nonsense_gets_nothing_until_it_recovers(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_READING", 0.1)
    recovered, received, writers = False, [], []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        [event] = msgspec.json.decode(await reader.readexactly(length))
        if b"subscriptionvalidation" not in head:
            received.append(event["data"]["resourceInfo"]["properties"]["EventStatus"])
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        elif recovered:
            code = event["data"]["validationCode"].encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + CODE % code)
        elif answer is None:
            return
        else:
            code = event["data"]["validationCode"].encode()
            writer.write(answer.replace(b"%s", code))
        with contextlib.suppress(OSError):
            await writer.drain()
            writer.close()

    async def play() -> None:
        nonlocal recovered
        server = await asyncio.start_server(receive, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, world(table(**{"event-grid": {"url": url, "timeout": "1s"}})) as w:
            await publish(w, "web")
            await w.reboot("web-0")
            await until_async(lambda: w.state().failures >= 2)
            assert w.state().last_error
            assert received == []
            await w.advance(DAY)
            recovered = True
            await until_async(lambda: w.state().messages == 3)
            assert received == ["Scheduled", "Started", "Completed"]
            assert w.state().state == "ok"
        await closed(writers)

    run(play())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subject_begins_with": GROUP.upper()}, ["web-0", "db-0"]),
        ({"subject_begins_with": f"{MACHINES}/db"}, ["db-0"]),
        ({"subject_begins_with": "/subscriptions/1111"}, []),
        ({"table": {"groups": ["web"]}}, ["web-0"]),
        ({"table": {"owner": "team-db"}}, ["db-0"]),
        ({"table": {"kinds": ["started"]}}, []),
    ],
)
def test_events_are_filtered(
    receiver: EventGridReceiver, options: dict[str, Any], expected: list[str]
) -> None:
    async def play() -> None:
        async with world(grid(receiver, **options)) as w:
            await publish(w, "web", "db")
            await w.reboot("web-0")
            await w.reboot("db-0")
            await delivered(receiver, len(expected))
            await until_async(lambda: w.state().position == w.node.feed.seq)
            found = [event["data"]["resourceInfo"]["properties"] for event, _ in receiver.events]
            assert [properties["Resources"][0] for properties in found] == expected

    run(play())


def test_what_starts_at_once_is_sent_as_started(receiver: EventGridReceiver) -> None:
    async def play() -> None:
        async with world(grid(receiver)) as w:
            await publish(w, "web")
            await w.node.removals.fail("web-0", EventType.REDEPLOY, "ann")
            [(found, _)] = await delivered(receiver, 1)
            properties = found["data"]["resourceInfo"]["properties"]
            assert (properties["EventStatus"], properties["NotBefore"]) == ("Started", "")
            await w.advance(HOUR)
            await delivered(receiver, 2)
            assert receiver.statuses_of(properties["EventId"]) == ["Started", "Completed"]

    run(play())


def test_a_test_validates_the_subscription(receiver: EventGridReceiver) -> None:
    async def play() -> None:
        async with world(grid(receiver)) as w:
            answer = await w.notifications.test("ops")
            assert (answer.delivered, receiver.validations) == (True, 1)  # type: ignore[union-attr]
            receiver.validates = False
            answer = await w.notifications.test("ops")
            assert "validationCode" in answer.error  # type: ignore[union-attr]
            assert receiver.events == []

    run(play())
