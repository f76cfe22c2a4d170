"""Answers that go wrong on purpose, byte by byte over a socket, and the same in process."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from forewarn.metadata.faults import delay
from forewarn.support import guard
from forewarn.testing import FaultKind, Service
from forewarn.testing.kit.events import Event
from forewarn.testing.kit.inprocess import Response
from forewarn.wire.requests import write_approval
from helpers.raw_http import Place, RawConnection, RawResponse, exchange, request
from helpers.waiting import LIMIT

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
POLL = request("GET", TARGET, "Metadata: true")
JSON = "application/json; charset=utf-8"


@pytest.fixture(scope="module", params=["sockets", "front"])
def shared(request: pytest.FixtureRequest) -> Iterator[Service]:
    """With every request on the slow path, and with Front, which has to let go of some."""
    with Service(sockets=True, front=request.param == "front") as service:
        service.scale_set("web", 3)
        service.machine("jump")
        yield service


@pytest.fixture
def service(shared: Service) -> Iterator[Service]:
    yield shared
    shared.faults.clear()
    for event in shared.events:
        if event.status == "Scheduled":
            event.cancel()
        else:
            event.until_over(play=False)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def place(service: Service, machine: str = "web_0") -> Place:
    return service[machine].address, int(service.url().rpartition(":")[2])


def polled(service: Service, machine: str = "web_0") -> RawResponse:
    return exchange(place(service, machine), POLL)


def approving(event: Event) -> bytes:
    return request("POST", TARGET, "Metadata: true", body=write_approval([event.id]))


def held(service: Service, count: int = 1) -> None:
    """Until so many answers are held back."""

    async def there() -> None:
        while len(service._session.node.delayed_answers) != count:
            await guard.pause(0.001)

    service._session.run(there())


def in_order(answer: RawResponse) -> None:
    """What every answer has, spoiled or not."""
    assert answer.header("server").startswith("IMDS/")
    assert answer.header("date").endswith("GMT")
    assert len(answer.header("x-ms-request-id")) == 36


@pytest.mark.parametrize(
    ("kind", "words", "status", "body"),
    [
        ("throttled", {}, 429, b"Throttle Result: Too Many Requests"),
        ("gone", {}, 410, b'{ "error": "Gone. The service is being updated. Try again" }'),
        ("error", {}, 500, b'{ "error": "Internal server error" }'),
        ("error", {"status": 503, "body": "<h1>busy</h1>"}, 503, b"<h1>busy</h1>"),
        ("empty", {}, 200, b""),
    ],
)
def test_a_fault_answers_without_a_document(
    service: Service, kind: FaultKind, words: dict[str, object], status: int, body: bytes
) -> None:
    service.faults.add(kind, machine="web_0", times=1, **words)  # type: ignore[arg-type]
    with RawConnection(place(service)) as line:
        line.send(POLL)
        answer = line.answer()
        assert (answer.status, answer.body) == (status, body)
        assert answer.header("content-type") == JSON
        in_order(answer)
        line.send(POLL)
        assert line.answer().json()["Events"] == [], "on the same connection, all is well again"


def test_a_fault_removes_the_events_of_a_document(service: Service) -> None:
    number = polled(service).json()["DocumentIncarnation"]
    service.faults.add("no-events", times=1)
    answer = polled(service)
    assert (answer.status, answer.text) == (200, f'{{"DocumentIncarnation":{number}}}')
    in_order(answer)


def test_a_fault_calls_a_document_plain_text(service: Service) -> None:
    before = polled(service)
    service.faults.add("plain", times=1)
    answer = polled(service)
    assert answer.header("content-type") == "text/plain; charset=utf-8"
    assert answer.body == before.body
    service.faults.add("plain", body="moved house", times=1)
    assert polled(service).text == "moved house"


@pytest.mark.parametrize("version", ["2020-07-01", "2017-08-01"])
def test_a_fault_puts_control_characters_into_the_first_document_with_an_event(
    service: Service, version: str
) -> None:
    poll = POLL.replace(b"2020-07-01", version.encode())
    fault = service.faults.add("control-characters", times=1)
    assert exchange(place(service), poll).json()["Events"] == []
    assert fault.matches == 0
    service.schedule("Reboot", "web_0", description="soon")
    answer = exchange(place(service), poll)
    assert b'"\x01\t\n\x1f' in answer.body
    with pytest.raises(json.JSONDecodeError, match="control character"):
        answer.json()
    (event,) = json.loads(answer.body, strict=False)["Events"]
    assert event["EventType"] == "Reboot", "who is lenient can read it"
    assert fault.consumed == 1
    assert exchange(place(service), poll).json()["Events"][0]["Resources"] == ["web_0"]


def test_a_fault_sends_half_a_document_and_closes(service: Service) -> None:
    whole = polled(service).body
    service.faults.add("truncated", times=1)
    with RawConnection(place(service)) as line:
        line.send(POLL)
        head = line.head()
        assert (head.status, int(head.header("content-length"))) == (200, len(whole))
        assert line.over() == whole[: len(whole) // 2]


def test_a_fault_stalls_an_answer_until_the_client_gives_up(service: Service) -> None:
    whole = polled(service).body
    service.faults.add("stalled", times=1)
    with RawConnection(place(service)) as line:
        line.send(POLL)
        head = line.head()
        assert int(head.header("content-length")) == len(whole)
        held(service)
    held(service, 0)
    assert polled(service).status == 200


def test_a_stalled_answer_is_cut_when_its_time_is_over(service: Service) -> None:
    whole = polled(service).body
    service.faults.add("stalled", seconds=30, times=1)
    with RawConnection(place(service)) as line:
        line.send(POLL)
        line.head()
        held(service)
        service.clock.advance("30s")
        assert line.over() == whole[: len(whole) // 2]


def test_a_fault_resets_a_connection_without_an_answer(service: Service) -> None:
    service.faults.add("reset", times=1)
    with RawConnection(place(service)) as line:
        line.send(POLL)
        with pytest.raises(ConnectionResetError):
            line._socket.recv(1)
    assert polled(service).status == 200


def test_the_slowest_first_answer_takes_no_time_on_a_virtual_clock(
    service: Service, threads: ThreadPoolExecutor
) -> None:
    fault = service.faults.add("slow", machine="web_0", times=1)
    before = service.clock.now
    asking = threads.submit(polled, service)
    held(service)
    assert polled(service, "web_1").status == 200, "nobody else waits"
    service.clock.advance("119s")
    assert not asking.done()
    service.schedule("Freeze", "web_0")
    service.clock.advance("1s")
    events = asking.result().json()["Events"]
    assert [event["EventType"] for event in events] == ["Freeze"], "the document as it is now"
    assert (service.clock.now - before).total_seconds() == 120
    assert fault.consumed == 1


def test_a_caller_that_gives_up_on_a_slow_answer_has_seen_nothing(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    service.faults.add("slow", machine="web_0", times=1)
    with RawConnection(place(service)) as line:
        line.send(POLL)
        held(service)
    held(service, 0)
    assert event.seen_by == {}


def test_a_slow_answer_of_some_milliseconds_needs_no_virtual_time(service: Service) -> None:
    service.faults.add("slow", seconds=0.02, times=1)
    before = service.clock.now
    assert polled(service).status == 200
    assert service.clock.now == before


def test_a_slow_approval_counts_at_once(service: Service, threads: ThreadPoolExecutor) -> None:
    event = service.restart("web_0")
    service.faults.add("slow", method="POST", seconds=60, times=1)
    asking: Future[RawResponse] = threads.submit(exchange, place(service), approving(event))
    held(service)
    assert event.status == "Started"
    service.clock.advance("1m")
    assert (asking.result().status, asking.result().body) == (200, b"")


@pytest.mark.parametrize("kind", ["throttled", "gone", "error"])
@pytest.mark.parametrize("takes_effect", [None, False, True])
def test_a_failed_approval_takes_effect_if_the_fault_says_so(
    service: Service, kind: FaultKind, takes_effect: bool | None
) -> None:
    event = service.restart("web_0")
    fault = service.faults.add(kind, method="POST", times=1, takes_effect=takes_effect)
    assert exchange(place(service), approving(event)).status in (429, 410, 500)
    assert event.status == ("Started" if takes_effect else "Scheduled")
    assert (event.approved_by or "").endswith("web_0" if takes_effect else "")
    assert fault.consumed == 1
    assert exchange(place(service), approving(event)).status == 200, "it may be sent again"
    assert event.status == "Started"


@pytest.mark.parametrize("kind", ["stalled", "reset"])
@pytest.mark.parametrize("takes_effect", [None, False, True])
def test_an_unanswered_approval_takes_effect_unless_the_fault_says_otherwise(
    service: Service, kind: FaultKind, takes_effect: bool | None
) -> None:
    event = service.restart("web_0")
    service.faults.add(kind, method="POST", times=1, takes_effect=takes_effect)
    with RawConnection(place(service)) as line:
        line.send(approving(event))
        if kind == "stalled":
            held(service)
            assert line.silent()
            service.clock.advance("2m")
        assert line.over() == b""
    assert event.status == ("Scheduled" if takes_effect is False else "Started")


def test_the_incarnation_starts_over(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    before = polled(service).json()
    assert before["DocumentIncarnation"] > 1
    fault = service.faults.add("incarnation", times=1)
    after = polled(service).json()
    assert (after["DocumentIncarnation"], after["Events"]) == (1, before["Events"])
    assert fault.consumed == 1
    assert polled(service, "web_1").json()["DocumentIncarnation"] == 1
    assert event.status == "Scheduled"


def test_an_incarnation_of_a_disabled_group_does_not_start_over(service: Service) -> None:
    service.disable("web")
    fault = service.faults.add("incarnation", times=1)
    assert polled(service).json()["DocumentIncarnation"] == 1
    assert fault.matches == 0


SPOILED = ["throttled", "gone", "error", "empty", "no-events", "plain", "control-characters"]
SPOILED += ["truncated", "stalled", "reset"]


@pytest.mark.parametrize("kind", SPOILED)
def test_a_caller_that_got_a_spoiled_document_has_not_seen_it(
    service: Service, kind: FaultKind
) -> None:
    event = service.schedule("Reboot", "web_0")
    service.faults.add(kind, machine="web_0", times=1)
    with RawConnection(place(service)) as line:
        line.send(POLL)
        if kind == "stalled":
            line.head()
            held(service)
        else:
            line.over() if kind in ("truncated", "reset") else line.answer()
    assert event.seen_by == {}
    polled(service)
    assert list(event.seen_by) == ["web_0"]


@pytest.mark.parametrize("kind", SPOILED)
def test_only_what_is_answered_200_enables_a_group(service: Service, kind: FaultKind) -> None:
    if kind == "control-characters":
        service.schedule("Reboot", "jump")
        polled(service, "jump")
    service.disable("jump")
    service.faults.add(kind, machine="jump", times=1)
    with RawConnection(place(service, "jump")) as line:
        line.send(POLL)
        if kind == "stalled":
            line.head()
        else:
            line.over() if kind in ("truncated", "reset") else line.answer()
    group = service._session.node.machine_index.group("jump")
    assert group is not None
    assert group.enabled is (kind not in ("throttled", "gone", "error", "reset"))


def test_machines_without_a_fault_are_answered_by_front(service: Service) -> None:
    front = service._session.node.front
    service.faults.add("gone", machine="web_0")
    assert [polled(service, name).status for name in ("web_1", "jump")] == [200, 200]
    before = front.answered if front else 0
    assert [polled(service, name).status for name in ("web_0", "web_1", "jump")] == [410, 200, 200]
    assert (front.answered if front else 2) - before == 2
    service.faults.clear()
    assert polled(service).status == 200
    assert (front.answered if front else 3) - before == 3


def test_no_answer_is_held_when_the_service_stops(threads: ThreadPoolExecutor) -> None:
    with Service(sockets=True) as service:
        service.scale_set("web", 1)
        service.faults.add("slow", times=1)
        asking = threads.submit(polled, service)
        held(service)
    assert asking.result().status == 200, "not cut off after all patience was lost"


# In process.


@pytest.fixture(scope="module")
def inside() -> Iterator[Service]:
    with Service() as service:
        service.scale_set("web", 2)
        yield service


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("truncated", http.client.IncompleteRead),
        ("reset", ConnectionResetError),
        ("stalled", TimeoutError),
    ],
)
def test_in_process_a_fault_raises_what_an_http_library_would(
    inside: Service, kind: FaultKind, expected: type[Exception]
) -> None:
    inside.faults.add(kind, times=1)
    with pytest.raises(expected):
        inside.get("web_0")
    assert inside.get("web_0").status == 200


def test_in_process_half_a_document_is_handed_over(inside: Service) -> None:
    whole = inside.get("web_0").body
    inside.faults.add("truncated", times=1)
    with pytest.raises(http.client.IncompleteRead) as broken:
        inside.get("web_0")
    assert broken.value.partial == whole[: len(whole) // 2]
    assert broken.value.expected == len(whole) - len(broken.value.partial)


def test_in_process_a_slow_answer_arrives_when_the_clock_is_advanced(
    inside: Service, threads: ThreadPoolExecutor
) -> None:
    inside.faults.add("slow", times=1)
    asking = threads.submit(inside.get, "web_0")
    held(inside)
    inside.clock.advance("2m")
    assert len(inside._session.node.delayed_answers) == 0, "winding returns when it is answered"
    assert asking.result(LIMIT).status == 200


def test_in_process_a_slow_answer_while_the_clock_stands_still_is_a_timeout(
    inside: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay, "MAX_STOPPED_WAIT", 0.01)
    inside.faults.add("slow", times=1)
    with pytest.raises(TimeoutError, match="clock was not advanced"):
        inside.get("web_0")
    assert len(inside._session.node.delayed_answers) == 0
    assert inside.get("web_0").status == 200


def test_in_process_the_same_bytes_are_answered(inside: Service) -> None:
    statuses: dict[FaultKind, int] = {"gone": 410, "throttled": 429, "error": 500, "empty": 200}
    for kind, status in statuses.items():
        with inside.faults.during(kind):
            assert inside.get("web_0").status == status


# The long-poll.

WAIT = "/forewarn/v1/wait?timeout=300&etag="


def waited(service: Service) -> Response:
    tag = service.get("web_0").headers["etag"].strip('"')
    return service.request("web_0", "GET", WAIT + tag, {"Metadata": "true"})


@pytest.mark.parametrize(
    ("kind", "status", "body"),
    [
        ("gone", 410, None),
        ("throttled", 429, None),
        ("error", 500, None),
        ("empty", 200, b""),
        ("no-events", 200, b'{"DocumentIncarnation":1}'),
    ],
)
def test_a_long_poll_that_meets_a_fault_is_answered_at_once(
    kind: FaultKind, status: int, body: bytes | None
) -> None:
    with Service() as service:
        service.scale_set("web", 1)
        fault = service.faults.add(kind, times=1, skip=1)  # the first asks for the tag
        answer = waited(service)
        assert (answer.status, fault.consumed) == (status, 1)
        assert body is None or answer.body == body
        assert service.verdict().conduct("web_0").faults == {kind: 1}


def test_a_long_poll_is_slow_as_well(threads: ThreadPoolExecutor) -> None:
    with Service() as service:
        web = service.scale_set("web", 1)
        service.faults.add("slow", times=1, skip=1)
        asking = threads.submit(waited, service)
        service._session.run(asked(service))
        web[0].restart()
        held(service)
        service.clock.advance("2m")
        assert asking.result(LIMIT).json()["Events"][0]["EventStatus"] == "Scheduled"


async def asked(service: Service) -> None:
    """Until somebody waits for another document."""
    (fault,) = service._session.node.faults.all()
    async with asyncio.timeout(LIMIT):
        while fault.consumed == 0:
            await guard.pause(0.001)
            (fault,) = service._session.node.faults.all()
