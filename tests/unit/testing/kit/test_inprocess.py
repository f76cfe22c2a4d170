"""A machine's endpoint without sockets, for HTTP libraries that take an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from forewarn.testing import Group, Service

URL = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture
def web(service: Service) -> Group:
    return service.scale_set("web", 2)


def test_an_async_client_polls_and_approves_as_the_machine(web: Group) -> None:
    event = web[0].restart()

    async def client() -> tuple[Any, int]:
        transport = httpx.ASGITransport(web[1].asgi)
        async with httpx.AsyncClient(transport=transport, headers={"Metadata": "true"}) as client:
            document = (await client.get(URL)).json()
            ids = [{"EventId": found["EventId"]} for found in document["Events"]]
            approved = await client.post(URL, json={"StartRequests": ids})
            return (await client.get(URL)).json(), approved.status_code

    document, status = asyncio.run(client())
    assert status == 200
    assert document["Events"][0]["EventStatus"] == "Started"
    assert event.approved_by == "web_1"


def test_an_answer_in_process_is_byte_for_byte_that_of_a_socket(web: Group) -> None:
    async def ask(transport: httpx.ASGITransport | None, url: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            return await client.get(url, headers=[("metadata", "true"), ("If-None-Match", "0")])

    target = "/metadata/scheduledevents?api-version=2020-07-01"
    one = asyncio.run(ask(httpx.ASGITransport(web[0].asgi), f"http://machine{target}"))
    two = asyncio.run(ask(None, web[0].url + target))
    assert (one.status_code, one.content) == (two.status_code, two.content)
    fresh = {"x-ms-request-id", "date", "connection"}
    assert {k: v for k, v in one.headers.items() if k not in fresh} == {
        k: v for k, v in two.headers.items() if k not in fresh
    }


def test_a_client_in_the_test_s_own_loop_sees_the_whole_life_while_the_clock_plays(
    service: Service, web: Group
) -> None:
    """The client and the test share one loop: what waits for the client is awaited."""
    seen: list[list[str]] = []

    async def poll(once: asyncio.Event) -> None:
        transport = httpx.ASGITransport(web[0].asgi)
        async with httpx.AsyncClient(transport=transport, headers={"Metadata": "true"}) as client:
            while True:
                events = (await client.get(URL)).json()["Events"]
                statuses = [event["EventStatus"] for event in events]
                if seen[-1:] != [statuses]:
                    seen.append(statuses)
                once.set()
                await asyncio.sleep(0.005)  # noqa: TID251 - the application's own pace

    async def story() -> None:
        once = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            application = tasks.create_task(poll(once))
            await once.wait()
            async with service.during(web[0].restart(), play=True) as event:
                assert event.status == "Started"
            application.cancel()

    asyncio.run(story())
    assert seen == [[], ["Scheduled"], ["Started"], []]


def test_lifespan_messages_are_answered_and_websockets_refused(web: Group) -> None:
    output: list[str] = []

    async def live() -> None:
        to_say = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> dict[str, str]:
            return {"type": next(to_say)}

        async def send(message: dict[str, str]) -> None:
            output.append(message["type"])

        await web[0].asgi({"type": "lifespan"}, receive, send)
        with pytest.raises(ValueError, match="not websocket"):
            await web[0].asgi({"type": "websocket"}, receive, send)

    asyncio.run(live())
    assert output == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_synchronous_play_in_an_event_loop_is_refused_with_the_alternative(
    service: Service, web: Group
) -> None:
    async def story() -> None:
        with pytest.raises(Exception, match="use 'async with'"):
            web[0].restart().until_started(play=True)

    asyncio.run(story())


def test_a_request_disconnected_before_its_end_has_no_effect(service: Service, web: Group) -> None:
    heard = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )
    output: list[Any] = []

    async def receive() -> Any:
        return next(heard)

    async def send(message: Any) -> None:
        output.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/metadata/scheduledevents",
        "query_string": b"api-version=2020-07-01",
        "headers": [(b"metadata", b"true")],
    }
    asyncio.run(web[0].asgi(scope, receive, send))
    assert output == []
    assert service.verdict().conducts == ()
