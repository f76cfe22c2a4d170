"""Front: an ordinary poller meets nobody else, and cannot tell; all others are handed over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from forewarn.metadata.endpoint.limits import Limits, RateLimits
from forewarn.metadata.http.front import Front
from forewarn.metadata.http.known_polls import MAX_KNOWN_POLLS, MAX_POLL_BYTES
from forewarn.node.listening.server import GRACE
from forewarn.node.listening.sockets import open_loopback
from forewarn.support import guard
from forewarn.testing import Service
from helpers.endpoint import (
    METADATA,
    NEWEST,
    NOT_FOUND,
    THROTTLED,
    VERSIONS,
    Group,
    Groups,
    Guest,
    approval,
    events,
    fleet_of,
)
from helpers.forked_cli import Forked
from helpers.polls import GET, LAST, ODD, metrics, real_time, send_poll, until_closed
from helpers.process import Running
from helpers.raw_http import RawConnection, RawResponse, request
from helpers.waiting import LIMIT, until

COUNT = 60
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
WAYS = {"the fast path": GET, "the slow path": ODD}


def front_of(service: Service) -> Front:
    front = service._session.node.front
    assert front is not None
    return front


@contextlib.contextmanager
def counted(service: Service, answered: int, handed_over: int = 0) -> Iterator[None]:
    """So many polls are answered on the fast path meanwhile, and so many connections given away."""
    front = front_of(service)
    before = front.answered, front.handed_over
    yield
    found = front.answered - before[0], front.handed_over - before[1]
    assert found == (answered, handed_over)


def standing_aside(answer: RawResponse) -> tuple[str, list[str], bytes]:
    """An answer without what is its own: its date and id."""
    own = ("date", "x-ms-request-id")
    lines = [line for line in answer.lines if line.split(":")[0] not in own]
    return answer.line, sorted(lines), answer.body


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(fleet_of(COUNT), sockets=True, front=True) as service:
        yield service


@pytest.fixture(scope="module")
def groups(service: Service) -> Groups:
    return Groups(service, COUNT)


@pytest.fixture
def group(groups: Groups) -> Group:
    return groups.enabled()


@pytest.fixture(autouse=True)
def _nothing_broke(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    broken = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert [record for record in broken if "graceful shutdown exceeded" not in record.msg] == []


# Who answers.


def test_a_poll_is_answered_by_front_alone(service: Service, group: Group) -> None:
    with counted(service, answered=52), group[0].line() as line:
        assert {send_poll(line).status for _ in range(50)} == {200}
        assert group[1].get().status == 200
        assert group[2].say(LAST).status == 200


def test_the_same_request_gives_each_machine_its_own_document(
    service: Service, groups: Groups
) -> None:
    one, other = groups.enabled(), groups.enabled()
    event = service.schedule("Freeze", one[0].name)
    with counted(service, answered=4), one[0].line() as a, other[0].line() as b:
        for _ in range(2):
            assert [e["EventId"] for e in send_poll(a).json()["Events"]] == [event.id]
            assert send_poll(b).json() == {"DocumentIncarnation": 1, "Events": []}


OTHERS = {
    "two polls at once": (GET + GET, [200, 200]),
    "a poll and half of the next": (GET + GET[:9], [200]),
    "half a poll": (GET[:30], []),
    "another header": (ODD, [200]),
    "an approval": (request("POST", events(NEWEST), METADATA, body=approval("A")), [400]),
    "another path": (request("GET", "/metadata/versions", METADATA), [200]),
    "no version": (request("GET", "/metadata/scheduledevents", METADATA), [400]),
    "no metadata header": (request("GET", events(NEWEST)), [400]),
    "a body": (request("GET", events(NEWEST), METADATA, body=b"x"), [200]),
    "forwarded": (request("GET", events(NEWEST), METADATA, "X-Forwarded-For: 1.2.3.4"), [400]),
    "an old client": (GET.replace(b"HTTP/1.1", b"HTTP/1.0"), [200]),
    "no http": (b"\x16\x03\x01\r\n\r\n", [400]),
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("what", OTHERS)
def test_any_other_request_is_handed_over(
    service: Service, groups: Groups, what: str, kept: bool
) -> None:
    data, statuses = OTHERS[what]
    guest, front = Guest(service, "web0_0"), front_of(service)
    guest.get()
    with counted(service, answered=kept, handed_over=1), guest.line() as line:
        if kept:
            send_poll(line)
        before = front.handed_over
        line.send(data)
        assert [line.answer().status for _ in statuses] == statuses
        until(lambda: front.handed_over > before)
        if not statuses:
            line.send(GET[30:])
            assert line.answer().status == 200


def test_a_connection_is_handed_over_for_good(service: Service, group: Group) -> None:
    with counted(service, answered=1, handed_over=1), group[0].line() as line:
        assert send_poll(line).status == 200
        assert send_poll(line, ODD).status == 200
        assert [send_poll(line).status for _ in range(10)] == [200] * 10
    with counted(service, answered=1):
        group[0].get()


@pytest.mark.parametrize("at", [1, 4, len(GET) // 2, len(GET) - 1])
def test_a_poll_in_two_pieces_is_answered_once(service: Service, group: Group, at: int) -> None:
    front = front_of(service)
    with counted(service, answered=0, handed_over=1), group[0].line() as line:
        before = front.handed_over
        line.send(GET[:at])
        until(lambda: front.handed_over > before)
        line.send(GET[at:])
        assert line.answer().status == 200
        line.finish()
        assert line.over() == b""


@pytest.mark.parametrize(("size", "way"), [(MAX_POLL_BYTES, "short"), (MAX_POLL_BYTES + 1, "long")])
def test_a_long_poll_is_read_whole(service: Service, group: Group, size: int, way: str) -> None:
    room = size - len(request("GET", events(NEWEST), METADATA, "Accept: "))
    data = request("GET", events(NEWEST), METADATA, "Accept: " + "a" * room)
    short = way == "short"
    with counted(service, short, handed_over=not short), group[0].line() as line:
        assert send_poll(line, data).status == 200
    with counted(service, 1 + short, handed_over=not short), group[0].line() as line:
        assert send_poll(line).status == 200
        assert send_poll(line, data).status == 200


def test_a_flood_of_different_polls_is_answered(
    service: Service, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a machine could have as many of them remembered."""
    monkeypatch.setattr(front_of(service), "_learned", RateLimits(0))
    other = Guest(service, group.names(1)[0])
    with (
        counted(service, answered=MAX_KNOWN_POLLS + 102),
        group[0].line() as line,
        other.line() as calm,
    ):
        assert send_poll(calm).status == 200
        for n in range(MAX_KNOWN_POLLS + 100):
            answer = send_poll(line, request("GET", events(NEWEST) + f"&n={n}", METADATA))
            assert answer.status == 200
        assert send_poll(calm).status == 200


# What is answered, at this moment.


def test_a_kept_connection_sees_every_change_at_once(service: Service, group: Group) -> None:
    with counted(service, answered=6, handed_over=1), group[0].line() as line:

        def shown() -> list[tuple[str, str]]:
            found = send_poll(line).json()
            return [(event["EventId"], event["EventStatus"]) for event in found["Events"]]

        assert shown() == []
        event = service.schedule("Freeze", group[0].name)
        assert shown() == [(event.id, "Scheduled")]
        assert group[1].approve(event.id).status == 200
        assert shown() == [(event.id, "Started")]
        second = service.schedule("Reboot", group[1].name)
        assert shown() == [(event.id, "Started"), (second.id, "Scheduled")]
        service.cancel(second)
        assert shown() == [(event.id, "Started")]
        service.clock.advance("5m")
        assert shown() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_front_and_server_give_the_same_answer(
    service: Service, group: Group, version: str
) -> None:
    def both(*headers: str) -> list[tuple[str, list[str], bytes]]:
        output = []
        for more in ((), ("X-Odd: 1",)):
            data = request("GET", events(version), METADATA, *headers, *more)
            output.append(standing_aside(group[0].say(data)))
        return output

    for step in range(3):
        short, long = both()
        assert short == long
        tag = group[0].get(version).header("etag")
        for given in ("0", tag, tag.strip('"'), f"W/{tag}", "*", f'"x", {tag}'):
            short, long = both(f"If-None-Match: {given}")
            assert short == long
            assert short[0].split(" ")[1] == ("200" if given == "0" else "304")
        short, long = both("Connection: close")
        assert short == long
        if step == 0:
            service.schedule("Freeze", group[0].name, description="a")
        elif step == 1:
            service.schedule("Preempt", group[2].name)


def test_an_unchanged_document_is_answered_304_until_it_changes(
    service: Service, group: Group
) -> None:
    with counted(service, answered=4), group[0].line() as line:
        tag = send_poll(line).header("etag")
        data = request("GET", events(NEWEST), METADATA, f"If-None-Match: {tag}")
        answer = send_poll(line, data)
        assert (answer.status, answer.body, answer.header("etag")) == (304, b"", tag)
        service.schedule("Freeze", group[0].name)
        answer = send_poll(line, data)
        assert answer.status == 200
        assert answer.header("etag") != tag
        last = data[:-2] + b"Connection: close\r\n\r\n"
        assert send_poll(line, last).header("connection") == "close"
        assert line.over() == b""


def test_the_date_follows_the_clock_at_once(service: Service, group: Group) -> None:
    with group[0].line() as line, group[0].line() as long:
        send_poll(long, ODD)
        for step in ("1s", "59s", "1h", "1d"):
            service.clock.advance(step)
            now = service.clock.now.strftime("%a, %d %b %Y %H:%M:%S GMT")
            assert send_poll(line).header("date") == now
            assert send_poll(long).header("date") == now


def test_ten_thousand_answers_have_ten_thousand_ids(service: Service, group: Group) -> None:
    ids: list[str] = []
    batch = 50
    with group[0].line() as short, group[1].line() as long:
        send_poll(long, ODD)
        for _ in range(10_000 // (2 * batch)):
            long.send(GET * batch)
            ids += [long.answer().header("x-ms-request-id") for _ in range(batch)]
            ids += [send_poll(short).header("x-ms-request-id") for _ in range(batch)]
    assert len(set(ids)) == len(ids) == 10_000
    assert all(ID.fullmatch(id) for id in ids)


@pytest.mark.parametrize("way", WAYS)
def test_polls_are_recorded_the_same_with_and_without_front(
    service: Service, group: Group, way: str
) -> None:
    name, poll_index, counts = (
        group[1].name,
        service._session.node.poll_index,
        service._session.node.endpoint.counts,
    )
    event = service.schedule("Freeze", group[0].name)
    before = list(counts.polls)
    with group[1].line() as line:
        service.clock.advance("7s")
        first = send_poll(line, WAYS[way])
        seen = service._session.node.writer.now()
        for _ in range(4):
            service.clock.advance("7s")
            send_poll(line, WAYS[way])
        same = WAYS[way][:-2] + b"If-None-Match: %s\r\n\r\n" % first.header("etag").encode()
        assert send_poll(line, same).status == 304
    polls = poll_index.polls(name)
    assert polls is not None
    now = service._session.node.writer.now()
    assert (polls.count, polls.last, polls.version) == (6, now.at, NEWEST)
    assert polls.incarnation == 2
    assert poll_index.first_sights(event.id, [name]) == {name: seen.at}
    assert poll_index.seen(group.name) == now.served
    grown = [after - was for after, was in zip(counts.polls, before, strict=True)]
    assert grown == [0] * 12 + [5, 1]


def test_polling_on_a_kept_connection_keeps_a_group_enabled() -> None:
    with Service(fleet_of(1), sockets=True, front=True, silence="24h") as service:
        guest = Guest(service, "web0_0")
        guest.get()
        service.schedule("Reboot", guest.name, notice="30d")
        with guest.line() as line:
            with counted(service, answered=5):
                for _ in range(5):
                    service.clock.advance("23h")
                    assert send_poll(line).json()["DocumentIncarnation"] == 2
            service.clock.advance("25h")
            with counted(service, answered=0, handed_over=1):
                assert send_poll(line).json()["DocumentIncarnation"] == 1


def test_a_machine_that_is_gone_is_unknown_on_its_kept_connection(
    service: Service, group: Group
) -> None:
    with group[2].line() as line, group[0].line() as other:
        assert send_poll(line).status == 200
        event = service.schedule("Preempt", group[2].name)
        group[0].approve(event.id)
        service.clock.advance("1m")
        for _ in range(3):
            answer = send_poll(line)
            assert (answer.status, answer.body) == (404, NOT_FOUND)
        assert group[2].get().status == 404
        with counted(service, answered=1):
            assert send_poll(other).status == 200


def test_a_poll_on_a_kept_connection_enables_its_group_and_ends_it(
    service: Service, group: Group
) -> None:
    with group[0].line() as line:
        send_poll(line)
        service.disable(group.name)
        with counted(service, answered=0, handed_over=1):
            answer = send_poll(line)
            assert (answer.status, answer.header("connection")) == (200, "close")
            assert answer.json()["DocumentIncarnation"] == 1
            assert line.over() == b""
    with counted(service, answered=1):
        assert group[0].get().all("connection") == []


def test_a_machine_with_a_fault_bypasses_front(service: Service, group: Group) -> None:
    detours = service._session.node.endpoint.detours
    with group[0].line() as line, group[1].line() as other:
        before = send_poll(line)
        send_poll(other)
        detours.add(group[0].name)
        try:
            with counted(service, answered=3, handed_over=3):
                assert standing_aside(send_poll(line)) == standing_aside(before)
                assert group[0].get().status == 200
                assert group[0].say(LAST).header("connection") == "close"
                assert [send_poll(other).status for _ in range(3)] == [200] * 3
        finally:
            detours.discard(group[0].name)
        with counted(service, answered=1):
            assert send_poll(line).status == 200, "this one has been handed over"
            assert group[0].get().status == 200


class Stands:
    now = 1.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("front", [True, False])
def test_a_throttled_burst_is_answered_exactly_so_often(
    monkeypatch: pytest.MonkeyPatch, front: bool
) -> None:
    stands = Stands()
    monkeypatch.setattr(guard, "monotonic", stands)
    limits = Limits(throttle=7)
    with Service(fleet_of(1), sockets=True, limits=limits, front=front) as service:
        guest, hits = Guest(service, "web0_0"), service._session.node.endpoint.counts.hits
        guest.get()
        stands.now += 60
        with guest.line() as line:
            answers = [send_poll(line) for _ in range(10)]
            assert [answer.status for answer in answers] == [200] * 7 + [429] * 3
            assert answers[-1].body == THROTTLED
            stands.now += 1
            assert [send_poll(line).status for _ in range(9)] == [200] * 7 + [429] * 2
        stands.now += 1
        with guest.line() as line:
            line.send(GET * 9)
            assert [line.answer().status for _ in range(9)] == [200] * 7 + [429] * 2
        stands.now += 1
        assert [guest.get().status for _ in range(9)] == [200] * 7 + [429] * 2
        assert hits["throttle"] == 9
        polls = service._session.node.poll_index.polls(guest.name)
        assert polls is not None
        assert polls.count == 1 + 4 * 7
        if front:
            assert front_of(service).answered == 7 + 7


# Callers that do not read, or go.


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of the test kit, and the one of `serve`."""
    if request.param == "uvloop":
        monkeypatch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes only some 500 kB of answers that are not read."""

    def opened(*args: Any) -> list[socket.socket]:
        listeners = open_loopback(*args)
        for listener in listeners:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 250_000)
        return listeners

    monkeypatch.setattr("forewarn.node.wiring.open_loopback", opened)


def fill(service: Service, guest: Guest, size: int) -> int:
    """Give the machine a document of about this size; how long it is."""
    guest.get()
    each = min(size, 4_000)
    for _ in range(size // each):
        service.schedule("Freeze", guest.name, notice="1h", description="\U0001f600" * (each // 4))
    return len(guest.get().body)


def narrow_line(guest: Guest) -> RawConnection:
    """A caller that leaves little room for what it has not read."""
    line = guest.line()
    line._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 60_000)
    return line


def polled(service: Service, guest: Guest) -> int:
    polls = service._session.node.poll_index.polls(guest.name)
    return polls.count if polls else 0


def fence(guest: Guest) -> None:
    """When another has been answered so often, all that could be read has been."""
    for _ in range(20):
        assert guest.get().status == 200
        assert guest.say(ODD).status == 200


@pytest.mark.usefixtures("loop", "narrow")
@pytest.mark.parametrize(
    ("size", "count", "front"),
    [(4_000, 400, True), (1_000_000, 8, True), (1_000_000, 8, False)],
    ids=["small", "large", "large and no front"],
)
def test_polls_that_are_sent_one_by_one_and_not_read_are_all_answered_later(
    size: int, count: int, front: bool
) -> None:
    with Service(fleet_of(2), sockets=True, front=front) as service:
        guest, other = Guest(service, "web0_0"), Guest(service, "web1_0")
        length, before = fill(service, guest, size), polled(service, guest)
        with narrow_line(guest) as line:
            for n in range(count):
                line.send(request("GET", events(NEWEST) + f"&n={n}", METADATA))
                if n < 20:
                    fence(other) if n == 19 else other.get()
            fence(other)
            read = polled(service, guest) - before
            assert 1 <= read < count, "it does not go on reading"
            answers = [line.answer() for _ in range(count)]
            assert {len(answer.body) for answer in answers} == {length}
            assert {answer.status for answer in answers} == {200}
            assert len({answer.header("x-ms-request-id") for answer in answers}) == count
            assert polled(service, guest) - before == count
            fence(other)
            assert line.silent(), "and no answer twice"
            assert send_poll(line).status == 200, "the line is as good as before"


@pytest.mark.usefixtures("loop", "narrow")
def test_four_thousand_polls_that_are_not_read_wait_and_are_answered_in_order() -> None:
    with Service(fleet_of(2), sockets=True, front=True) as service:
        guest, other = Guest(service, "web0_0"), Guest(service, "web1_0")
        guest.get()
        service.schedule("Freeze", guest.name)
        bodies = [guest.get(version).body for version in VERSIONS]
        before = polled(service, guest)
        count = 4_000
        with narrow_line(guest) as line:
            output = b"".join(
                request("GET", events(VERSIONS[n % 7]), METADATA) for n in range(count)
            )
            sender = threading.Thread(target=line.send, args=(output,), daemon=True)
            sender.start()
            fence(other)
            assert polled(service, guest) - before < count // 2, "it does not go on reading"
            for n in range(count):
                answer = line.answer()
                assert (answer.status, answer.body) == (200, bodies[n % 7]), n
            sender.join()
            assert polled(service, guest) - before == count
            fence(other)
            assert line.silent()


@pytest.mark.usefixtures("loop", "narrow")
def test_a_client_that_has_closed_its_side_gets_a_large_document() -> None:
    with Service(fleet_of(1), sockets=True, front=True) as service:
        guest = Guest(service, "web0_0")
        length = fill(service, guest, 1_000_000)
        for data in (GET, LAST, ODD):
            with narrow_line(guest) as line:
                line.send(data)
                line.finish()
                answer = line.answer()
                assert (answer.status, len(answer.body)) == (200, length)
                assert line.over() == b""
        until_closed(service)


def test_a_client_that_has_closed_its_side_is_answered_and_closed(
    service: Service, group: Group
) -> None:
    with counted(service, answered=1), group[0].line() as line:
        line.send(GET)
        line.finish()
        assert line.answer().status == 200
        assert line.over() == b""


def reset(line: RawConnection) -> None:
    line._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


@pytest.mark.usefixtures("loop", "narrow")
def test_connections_closed_in_the_middle_leave_nothing_behind() -> None:
    with Service(fleet_of(2), sockets=True, front=True) as service:
        guest, other = Guest(service, "web0_0"), Guest(service, "web1_0")
        fill(service, guest, 1_000_000)
        other.get()
        for output in (b"", GET, LAST, ODD, GET[:20], request("POST", events(NEWEST))):
            for gone in (reset, RawConnection.close):
                for kept in (False, True):
                    line = narrow_line(guest)
                    if kept:
                        assert send_poll(line).status == 200
                    line.send(output)
                    gone(line)
                    assert other.get().status == 200
        until_closed(service)
        assert other.get().status == 200


@pytest.mark.usefixtures("loop", "narrow")
def test_a_reset_in_the_middle_of_answers_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Service(fleet_of(2), sockets=True, front=True) as service:
        guest, other = Guest(service, "web0_0"), Guest(service, "web1_0")
        fill(service, guest, 1_000_000)
        other.get()
        for data in (ODD, ODD * 3, GET * 9) * 10:
            before, line = polled(service, guest), narrow_line(guest)
            line.send(data)
            until(lambda before=before: polled(service, guest) > before)  # type: ignore[misc]
            reset(line)
        assert other.say(ODD).status == 200
        until_closed(service)
    surprises = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in surprises] == []


def test_a_silent_caller_is_kept_whatever_sockets_do_by_default() -> None:
    """A program under test may have set a timeout for all its sockets."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(2)
    try:
        with Service(fleet_of(1), sockets=True, front=True) as service:
            guest = Guest(service, "web0_0")
            guest.get()
            with guest.line() as line:
                until(lambda: service._session.node.endpoint.connections.total == 1)
                assert send_poll(line).status == 200
    finally:
        socket.setdefaulttimeout(before)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough


@pytest.mark.parametrize("front", [True, False])
def test_after_a_thousand_connections_nothing_is_left(front: bool) -> None:
    with Service(fleet_of(40), sockets=True, front=front) as service:
        guests = [Guest(service, f"web{n}_0") for n in range(40)]
        for guest in guests:
            guest.get()
        connections = service._session.node.endpoint.connections
        until_closed(service)
        before = descriptors()
        for output in (GET, ODD, LAST, b"", GET[:9]):
            with contextlib.ExitStack() as stack:
                for n in range(200):
                    line = stack.enter_context(guests[n % 40].line())
                    line.send(output)
                    if output in (GET, ODD, LAST):
                        assert line.answer().status == 200
                if output in (GET, ODD):
                    assert connections.total == 200
        until_closed(service)
        until(lambda: descriptors() <= before)
        assert connections._held == {}


CLIENT = """
import socket, sys
request, host, port = sys.argv[1:]
request = request.encode().decode("unicode_escape").encode()
connections = [socket.create_connection((host, int(port))) for _ in range(10)]
for connection in connections:
    connection.sendall(request)
    connection.recv(100)
print("connected", flush=True)
sys.stdin.read()
"""


def test_a_client_that_is_killed_leaves_nothing_behind(service: Service, group: Group) -> None:
    connections, own = service._session.node.endpoint.connections, group[0].name
    until(lambda: own not in connections._held)
    host, port = group[0].place
    for output in (GET, ODD):
        words = output.decode().encode("unicode_escape").decode()
        argv = [sys.executable, "-c", CLIENT, words, host, str(port)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        client = Running(process, argv)
        assert client.line() == "connected"
        assert connections._held[own] == 10
        process.kill()
        client.wait()
        assert process.stdin
        process.stdin.close()
        until(lambda: own not in connections._held)


# How it stops.


def stopped(service: Service) -> float:
    """How long it took to stop."""
    before = real_time()
    service.__exit__(None, None, None)
    return real_time() - before


def at_the_stop(monkeypatch: pytest.MonkeyPatch, happens: Callable[[Front], None]) -> None:
    """Let something happen in the very turn of the loop in which the service stops."""
    original = Front.shutdown

    def shutdown(front: Front) -> None:
        happens(front)
        original(front)

    monkeypatch.setattr(Front, "shutdown", shutdown)


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("data", [GET, ODD], ids=["short", "long"])
def test_requests_sent_before_a_stop_are_answered_with_connection_close(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    service = Service(fleet_of(1), sockets=True, front=True)
    service.__enter__()
    guest = Guest(service, "web0_0")
    guest.get()
    kept, handed, fresh = guest.line(), guest.line(), []
    send_poll(kept)
    send_poll(handed, ODD)
    place = guest.place

    def at_last(_: Front) -> None:
        kept.send(data)
        fresh.append(RawConnection(place))
        fresh[0].send(data)

    at_the_stop(monkeypatch, at_last)
    took = stopped(service)
    for line in (kept, *fresh):
        answer = line.answer()
        assert (answer.status, answer.all("connection")) == (200, ["close"])
        assert line.over() == b""
    assert handed.over() == b""
    for line in (kept, handed, *fresh):
        line.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, timeout=LIMIT)
    assert took < GRACE


def test_connections_handed_over_during_a_stop_are_answered_with_connection_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service(fleet_of(1), sockets=True, front=True)
    service.__enter__()
    guest = Guest(service, "web0_0")
    guest.get()
    line = guest.line()
    send_poll(line)

    def at_last(front: Front) -> None:
        line.send(ODD)
        front._ready()  # the loop had come to that before it came to the stop

    at_the_stop(monkeypatch, at_last)
    took = stopped(service)
    answer = line.answer()
    assert (answer.status, answer.all("connection")) == (200, ["close"])
    line.close()
    assert took < GRACE


@pytest.mark.usefixtures("loop")
def test_a_hundred_idle_connections_do_not_hold_up_the_stop() -> None:
    service = Service(fleet_of(10), sockets=True, front=True)
    service.__enter__()
    lines = []
    for n in range(10):
        guest = Guest(service, f"web{n}_0")
        guest.get()
        for data in (GET, ODD) * 5:
            line = guest.line()
            assert send_poll(line, data).status == 200
            lines.append(line)
    took = stopped(service)
    for line in lines:
        assert line.over() == b""
        line.close()
    assert took < GRACE


@pytest.mark.usefixtures("narrow")
def test_a_caller_that_never_reads_does_not_hold_up_the_stop_for_long() -> None:
    service = Service(fleet_of(1), sockets=True, front=True)
    service.__enter__()
    guest = Guest(service, "web0_0")
    fill(service, guest, 1_000_000)
    with narrow_line(guest) as line:
        before = polled(service, guest)
        line.send(GET)
        until(lambda: polled(service, guest) > before)
        assert stopped(service) < GRACE + 3
        line._socket.settimeout(2)
        line.over()  # it has been hung up on


# What it costs.


@pytest.mark.parametrize("way", WAYS)
def test_no_timer_is_set_for_a_request(service: Service, group: Group, way: str) -> None:
    timers: list[str] = []

    async def watch() -> Callable[[], None]:
        loop: Any = asyncio.get_running_loop()
        original = loop.call_at

        def call_at(when: float, callback: Any, *args: Any, **more: Any) -> Any:
            timers.append(getattr(callback, "__qualname__", repr(callback)))
            return original(when, callback, *args, **more)

        loop.call_at = call_at
        return lambda: delattr(loop, "call_at")

    unwatch = service._session.run(watch())
    try:
        with group[0].line() as line:
            for _ in range(300):
                assert send_poll(line, WAYS[way]).status == 200
        for _ in range(50):
            group[1].say(WAYS[way])
    finally:
        unwatch()
    sleeps = timers.count("_set_result_unless_cancelled")  # the ticks of servers and sweeper
    assert sleeps < 300
    assert len(timers) - sleeps < 25, timers  # by what else runs now and then; not one each of 50


def test_a_thousand_groups_that_are_idle_have_no_pages() -> None:
    with Service(fleet_of(1_000), sockets=True, front=True) as service:
        callers = service._session.node.endpoint.callers
        found = [callers.at(service.addresses[f"web{n}_0"]) for n in range(1_000)]
        assert all(caller and caller.document.rendered == {} for caller in found)
        assert Guest(service, "web7_0").get().status == 200
        assert sum(bool(caller and caller.document.rendered) for caller in found) == 1


# To do without it.


def test_without_front_all_requests_go_to_the_server() -> None:
    with Service(fleet_of(1), sockets=True, front=False) as service:
        guest = Guest(service, "web0_0")
        assert service._session.node.front is None
        with guest.line() as line:
            assert send_poll(line).header("connection") == "close"
        with guest.line() as line:
            assert [send_poll(line).status for _ in range(5)] == [200] * 5
            assert send_poll(line, LAST).header("connection") == "close"
        assert metrics(service.control_url)["forewarn_front_answers_total"] == 0
        assert metrics(service.control_url)[POLLS] == 7


POLLS = f'forewarn_polls_total{{api_version="{NEWEST}",status="200"}}'


def test_answers_of_front_are_counted(service: Service, group: Group) -> None:
    before = metrics(service.control_url)
    with group[0].line() as line:
        for _ in range(5):
            send_poll(line)
        found = metrics(service.control_url)
        assert found["forewarn_front_answers_total"] == before["forewarn_front_answers_total"] + 5
        assert found[POLLS] == before[POLLS] + 5
        send_poll(line, ODD)
        found = metrics(service.control_url)
        handed_over = "forewarn_front_handovers_total"
        assert found[handed_over] == before[handed_over] + 1
        assert found["forewarn_connections"] >= 1


def test_recorded_requests_bypass_front(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with Service(fleet_of(1), sockets=True, front=True, record=trace) as service:
        guest = Guest(service, "web0_0")
        guest.get()
        assert service._session.node.front is None
        with guest.line() as line:
            ids = [send_poll(line).header("x-ms-request-id") for _ in range(20)]
    entries = [json.loads(line) for line in trace.read_text().splitlines()]
    headers = [dict(entry["answer_headers"]) for entry in entries if "answer_headers" in entry]
    assert [found["x-ms-request-id"] for found in headers][1:] == ids


@contextlib.contextmanager
def forewarn(*words: str, cwd: Path) -> Iterator[dict[str, str]]:
    """A service in a process of its own: its addresses."""
    argv = [sys.executable, "-m", "forewarn", *words, "--metadata", "127.0.0.1:0"]
    argv += ["--control", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    process = Running(Forked(argv, stdout=pipe, stderr=pipe, text=True, cwd=cwd), argv)
    try:
        line = process.line()
        assert line.startswith("ready "), process.failure(line)
        yield json.loads(line.removeprefix("ready "))
    finally:
        process.stop()


FLEET = "groups: [{name: one, kind: standalone, machines: [{name: one, addresses: [127.0.0.1]}]}]"


def test_front_is_disabled_by_a_setting(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "forewarn.toml").write_text('fleet = "fleet.yaml"\nfront = false\n')
    with forewarn("serve", "--config", "forewarn.toml", cwd=tmp_path) as urls:
        host, _, port = urls["metadata"].removeprefix("http://").partition(":")
        with RawConnection((host, int(port))) as line:
            assert send_poll(line).header("connection") == "close", "this has enabled the group"
        with RawConnection((host, int(port))) as line:
            assert [send_poll(line).status for _ in range(3)] == [200] * 3
        found = metrics(urls["control"])
    assert found[POLLS] == 4
    assert found["forewarn_front_answers_total"] == 0
