"""A client whose requests are refused is told why, instead of being called absent."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.testing import RefusedError, Service
from forewarn.testing.kit.machines import Group, Machine
from forewarn.testing.refused_requests import refused_requests

EVENTS = "/metadata/scheduledevents"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture
def machines(service: Service) -> Group:
    return service.scale_set("web", 2)


@pytest.fixture
def web(machines: Group) -> Machine:
    return machines[0]


def ask(machine: Machine, target: str, headers: dict[str, str], times: int = 1) -> None:
    """Send requests from another thread, and over sockets, as a client would."""

    def send() -> None:
        for _ in range(times):
            request = urllib.request.Request(f"{machine.url}{target}", headers=headers)
            try:
                urllib.request.urlopen(request).close()
            except urllib.error.HTTPError as refusal:
                refusal.close()

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()


def test_requests_without_the_header_are_reported(web: Machine) -> None:
    ask(web, f"{EVENTS}?api-version=2020-07-01", {}, 30)
    with pytest.raises(RefusedError) as refused:
        web.wait_for_poll(timeout=0)
    assert str(refused.value) == (
        "no client polled as 'web_0' within 0 s: web_0 sent 30 requests, all refused (400 ×30):"
        " GET /metadata/scheduledevents came with no Metadata header and was refused;"
        " send Metadata: true"
    )


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (f"{EVENTS}?api-version=2020-07-09", r"\(400\): .*api-version=2020-07-09.*2020-07-01"),
        (EVENTS, r"\(400\): .*api-version.*2020-07-01"),
        ("/metadata/scheduledevent?api-version=2020-07-01", r"\(404\): .*does not exist"),
    ],
)
def test_a_wrong_version_or_path_is_named(web: Machine, target: str, why: str) -> None:
    ask(web, target, {"Metadata": "true"})
    with pytest.raises(RefusedError, match=f"web_0 sent 1 request.* {why}"):
        web.wait_for_poll(timeout=0)


def test_of_several_mistakes_the_most_frequent_is_described_and_the_others_counted(
    service: Service, web: Machine
) -> None:
    ask(web, f"{EVENTS}?api-version=2020-07-01", {})
    ask(web, "/metadata/scheduledevent?api-version=2020-07-01", {"Metadata": "true"}, 2)
    ask(web, "/metadata/instance?api-version=2021-02-01", {"Metadata": "true"})
    text = refused_requests(service._session.verdict(), "web_0")
    assert re.match(r"web_0 sent 4 requests, 3 .*\(400, 404 ×2\): GET /metadata/", text)
    assert "1 other mistake" in text


def test_requests_for_other_paths_are_reported(web: Machine) -> None:
    ask(web, "/latest/meta-data/spot/instance-action", {}, 2)
    why = r"all refused \(404 ×2\): none of them was GET /metadata/scheduledevents$"
    with pytest.raises(RefusedError, match=why):
        web.wait_for_poll(timeout=0)


def test_a_fault_that_answered_is_named(service: Service, web: Machine) -> None:
    service.faults.add("gone", times=2)
    ask(web, f"{EVENTS}?api-version=2020-07-01", {"Metadata": "true"}, 2)
    with pytest.raises(RefusedError, match=r"\(410 ×2\).*gone ×2$"):
        web.wait_for_poll(timeout=0)


def test_polls_as_another_machine_are_reported(machines: Group, web: Machine) -> None:
    ask(machines[1], f"{EVENTS}?api-version=2020-07-01", {"Metadata": "true"})
    with pytest.raises(RefusedError, match=r"http://.*came from web_1"):
        web.wait_for_poll(timeout=0)


def test_without_requests_no_refusals_are_reported(service: Service, web: Machine) -> None:
    assert refused_requests(service._session.verdict(), "web_0") == ""
    with pytest.raises(RefusedError, match=r"use http://.*\?$"):
        web.wait_for_poll(timeout=0)


# Outside asyncio.


def driven(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine without asyncio, as trio does, up to what it awaits first."""
    try:
        work.send(None)
    finally:
        work.close()


def test_async_verbs_are_refused_under_trio(service: Service, web: Machine) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    for work in (
        Service().__aenter__(),
        service.to_thread(service.clock.play, "1m"),
        service.during(web.restart()).__aenter__(),
        web.asgi({"type": "http"}, receive, receive),
    ):
        with pytest.raises(RefusedError, match=r"needs asyncio.*trio\.to_thread\.run_sync"):
            driven(work)
    asyncio.run(service.to_thread(service.clock.play, "1m"))


def test_a_synchronous_play_under_trio_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = SimpleNamespace(lowlevel=SimpleNamespace(in_trio_run=lambda: True))
    monkeypatch.setitem(sys.modules, "trio", inside)
    with pytest.raises(RefusedError, match=r"event loop.*trio\.to_thread\.run_sync"):
        service.clock.play("1m")
