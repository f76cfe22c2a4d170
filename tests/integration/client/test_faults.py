"""Every fault that clients meet on the real service, against both clients: in the end exactly the
right changes are told, and our own judge of clients finds nothing wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from forewarn.client import ApprovalRefusedError, AsyncClient, pace
from forewarn.support import guard
from forewarn.testing import Event, FaultKind, Group, Service
from helpers.client_variants import FACES, ClientVariant, CuttingProxy
from helpers.waiting import LIMIT, until

ON_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("throttled", {}),
    ("gone", {}),
    ("error", {}),
    ("error", {"status": 503, "body": "<html>Bad gateway</html>"}),
    ("empty", {}),
    ("no-events", {}),
    ("plain", {}),
    ("plain", {"body": "It works!"}),
    ("control-characters", {}),
    ("truncated", {}),
    ("stalled", {}),
    ("reset", {}),
    ("incarnation", {}),
]
OF_APPROVALS = ("throttled", "gone", "error", "stalled", "reset")


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INTERVAL", "BACK_OFF_MOST"):
        monkeypatch.setattr(pace, name, 0.02)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as service:
        service.scale_set("web", 2)
        service["web_0"].url  # noqa: B018 - opens the sockets
        yield service


@pytest.fixture
def web(service: Service) -> Iterator[Group]:
    service.reset_verdict()
    yield service.scale_set("web", 2)
    service.faults.clear()
    for event in service["web_0"].events:
        event.finish() if event.status == "Started" else event.cancel()


@pytest.fixture(params=list(FACES))
def face(request: pytest.FixtureRequest, web: Group) -> Iterator[ClientVariant]:
    made = FACES[request.param](web[0].url)
    yield made
    made.close()


def lived(face: ClientVariant, service: Service, event: Event) -> list[str]:
    """What is told from its being approved to its end."""
    face.approve(event.id)
    kinds = [str(face.next().kind)]
    service.clock.advance("20m")
    kinds.append(str(face.next().kind))
    assert event.over
    return kinds


@pytest.mark.parametrize(("kind", "more"), ON_REQUESTS, ids=lambda value: str(value))
def test_a_client_outlasts_spoiled_answers(
    face: ClientVariant,
    service: Service,
    web: Group,
    kind: FaultKind,
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "stalled":  # nothing more ever comes
        monkeypatch.setattr(pace, "ANSWER", 0.3)
        monkeypatch.setattr(pace, "STALL", 0.05)
    event = web[0].restart()
    appeared = face.next()
    assert (appeared.kind, appeared.event.id) == ("appeared", event.id)
    fault = service.faults.add(kind, machine="web_0", method="GET", times=3, **more)
    if kind in OF_APPROVALS:
        service.faults.add(kind, machine="web_0", method="POST", times=2, **more)
    if kind == "control-characters":
        (listed,) = face.events()
        assert listed.resources == ("web_0",)
    assert lived(face, service, event) == ["started", "finished"]
    while fault.left and kind != "control-characters":
        assert face.events() == ()
    assert face.events() == ()
    assert face.status.problem == ""
    service.verdict().check()


def test_a_client_waits_two_minutes_for_a_first_answer(
    face: ClientVariant, service: Service, web: Group
) -> None:
    web[0].restart()
    slow = service.faults.add("slow", machine="web_0", times=1)
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(face.events)
        until(lambda: slow.consumed > 0)  # it has asked
        service.clock.advance("2m")
        assert [event.type for event in asking.result(LIMIT)] == ["Reboot"]
    assert face.status.failures == 0
    service.verdict().check()


def test_an_event_that_was_never_scheduled_is_reported_as_started(
    face: ClientVariant, service: Service, web: Group
) -> None:
    service.faults.add("sudden", machine="web_0", times=1)
    event = web[0].restart()
    reported = [face.next(), face.next()]
    assert [(one.kind, one.event.id) for one in reported] == [
        ("appeared", event.id),
        ("started", event.id),
    ]
    service.clock.advance("20m")
    assert face.next().kind == "finished"
    service.verdict().check()


def test_an_event_that_vanishes_is_reported_as_withdrawn(
    face: ClientVariant, service: Service, web: Group
) -> None:
    service.faults.add("vanish", machine="web_0", times=1)
    event = web[0].restart()
    reported = [face.next(), face.next()]
    assert [(one.kind, one.event.id, one.presumed) for one in reported] == [
        ("appeared", event.id, False),
        ("withdrawn", event.id, False),
    ]
    service.verdict().check()


def test_a_notice_that_is_too_short_is_reported_as_it_is(
    face: ClientVariant, service: Service, web: Group
) -> None:
    service.faults.add("short-notice", machine="web_0", times=1)
    event = web[0].restart()
    appeared = face.next()
    left = appeared.event.seconds_left(face.client.now())
    assert left is not None
    assert 3 <= left <= 6
    service.clock.advance("5s")
    assert (face.next().kind, event.status) == ("started", "Started")
    service.verdict().check()


def test_an_event_that_ended_unseen_is_presumed_to_be_finished(
    face: ClientVariant, service: Service, web: Group
) -> None:
    web[0].restart()
    assert face.next().kind == "appeared"
    service.clock.advance("5h")  # it jumps, and nobody has asked meanwhile
    gone = face.next()
    assert (gone.kind, gone.presumed) == ("finished", True)
    now = service.clock.now
    assert abs(gone.at - now) < timedelta(seconds=5)
    assert abs(face.client.now() - now) < timedelta(seconds=5)


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_step_of_this_machines_own_clock_does_not_matter(
    face: ClientVariant, service: Service, web: Group, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = web[0].restart()
    assert face.next().kind == "appeared"
    step, wall = hours * 3_600_000_000, guard.wall_us
    monkeypatch.setattr(guard, "wall_us", lambda: wall() + step)
    monkeypatch.setattr("time.time", lambda: wall() / 1e6 + step / 1e6)
    assert lived(face, service, event) == ["started", "finished"]
    assert abs(face.client.now() - service.clock.now) < timedelta(hours=1)


def test_an_unknown_event_is_not_approved(
    face: ClientVariant, service: Service, web: Group
) -> None:
    with pytest.raises(ApprovalRefusedError, match=r"400 .* nobody: .*error"):
        face.approve("nobody")
    face.approve()


def test_one_task_watches_while_another_approves(service: Service, web: Group) -> None:
    event = web[0].restart()

    async def both() -> list[str]:
        kinds: list[str] = []
        appeared = asyncio.Event()
        async with AsyncClient(web[0].url) as client:

            async def watched() -> None:
                async for change in client.watch():
                    kinds.append(str(change.kind))
                    appeared.set()
                    if change.kind == "started":
                        event.finish()
                    if change.kind == "finished":
                        return

            async def approved() -> None:
                await appeared.wait()
                assert await client.report_ready(event.id, "drained") is not None
                await client.approve(event.id)
                assert (await client.identity()).name == "web_0"

            await asyncio.gather(watched(), approved())
        return kinds

    assert asyncio.run(both()) == ["appeared", "started", "finished"]
    service.verdict().check()


# Somebody between


@pytest.fixture
def between(web: Group) -> Iterator[CuttingProxy]:
    host, _, port = web[0].url.removeprefix("http://").partition(":")
    with CuttingProxy((host, int(port))) as between:
        yield between


REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/evil\r\nContent-Length: 0\r\n\r\n"
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b" " * 5_000_000
GARBAGE = b"\x00\xff\x15\x03\x01garbage\r\n\r\n"


@pytest.mark.parametrize("kind", list(FACES))
def test_a_proxy_that_breaks_connections_is_outlasted(
    service: Service,
    web: Group,
    between: CuttingProxy,
    kind: FaultKind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "FIRST_ANSWER", 0.2)  # of one that never answers
    monkeypatch.setattr(pace, "ANSWER", 0.2)
    monkeypatch.setattr(pace, "STALL", 0.05)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    bad = [None, REDIRECT, b"", GARBAGE, LONG, b"HTTP/1.1 200 OK\r\n", None]
    face = FACES[kind](between.url)
    try:
        between.plays = list(bad)
        event = web[0].restart()
        assert face.next().event.id == event.id
        assert between.played == len(bad), "each was met"
        assert face.status.failures >= len(bad)
        between.plays = list(bad)
        between.cut()
        assert lived(face, service, event) == ["started", "finished"]
        between.plays = list(bad)
        between.cut()
        assert face.events() == ()
        assert face.status.problem == ""
    finally:
        face.close()
    service.verdict().check()
