"""What a caller may use up: every limit holds, is counted under its name, and hurts no other."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from forewarn.metadata.endpoint.limits import HELD_SHARE, OPEN_FILES, UNKNOWN_CALLERS_SHARE, Limits
from forewarn.metadata.endpoint.metrics import EndpointCounts
from forewarn.metadata.http.known_polls import learn
from forewarn.node import Node
from forewarn.node.listening import serve
from forewarn.node.listening.sockets import open_loopback
from forewarn.service.fleet.read import Fleet
from forewarn.support import guard
from forewarn.testing import Service
from forewarn.wire.requests import write_approval
from helpers.endpoint import (
    METADATA,
    NEWEST,
    THROTTLED,
    Guest,
    approval,
    events,
    fleet_of,
    known_by_source,
    port_of,
)
from helpers.polls import (
    CHUNKED,
    GET,
    LAST,
    ODD,
    limit_hits,
    send_poll,
    until_closed,
)
from helpers.raw_http import RawConnection, RawResponse, exchange, request
from helpers.waiting import LIMIT, until

POST = request("POST", events(NEWEST), METADATA, "Content-Length: 99")
LIMITS = Limits()
NAMES = [field.name for field in msgspec.structs.fields(Limits)]


def waken(service: Service, line: RawConnection) -> None:
    """Wind the clock until its group is enabled and the line answered."""
    for _ in range(10_000):
        if not line.silent():
            return
        service.clock.advance("1m")
    raise AssertionError("not answered")


class Guard:
    """Guard time in a test's hands, and a sweep that comes much oftener."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.sweeps = 0

    def __call__(self) -> float:
        return self.now

    def wind(self, seconds: float) -> None:
        """Let so much time pass, and the sweep see it."""
        self._swept(1)  # whatever was answered before has been answered to its end
        self.now += seconds
        self._swept(2)

    def _swept(self, times: int) -> None:
        seen = self.sweeps
        until(lambda: self.sweeps >= seen + times)


@pytest.fixture(scope="module")
def time() -> Iterator[Guard]:
    time, log_hits = Guard(), EndpointCounts.log_hits

    def reported(counts: EndpointCounts, now: float) -> None:
        log_hits(counts, now)
        time.sweeps += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "monotonic", time)
        patch.setattr(serve, "SWEEP_EVERY", 0.01)
        patch.setattr(EndpointCounts, "log_hits", reported)
        yield time


@pytest.fixture(scope="module", params=[True, False], ids=["front", "no front"])
def service(request: pytest.FixtureRequest, time: Guard) -> Iterator[Service]:
    with Service(
        fleet_of(3),
        sockets=True,
        enable_delay="1m",
        front=request.param,
    ) as service:
        for name in ("web0_0", "web1_0"):
            with Guest(service, name).line() as line:
                line.send(GET)
                waken(service, line)
                assert line.answer().status == 200
        yield service


@pytest.fixture
def guest(service: Service) -> Guest:
    until_closed(service)
    return Guest(service, "web0_0")


@pytest.fixture
def other(service: Service) -> Guest:
    return Guest(service, "web1_0")


@contextlib.contextmanager
def hit(service: Service, *limits: str) -> Iterator[None]:
    """These limits are reached meanwhile, once each, and no others."""
    hits = service._session.node.endpoint.counts.hits
    before = dict(hits)
    yield
    until(lambda: all(hits[name] > before[name] for name in limits))
    grown = {name: hits[name] - before[name] for name in hits if hits[name] != before[name]}
    assert grown == dict.fromkeys(limits, 1)


def accepted(service: Service, count: int = 1) -> None:
    until(lambda: service._session.node.endpoint.connections.total >= count)


# Time.


@pytest.mark.parametrize("data", [GET, ODD], ids=["short", "long"])
def test_an_idle_connection_is_kept_for_two_minutes(
    service: Service, guest: Guest, time: Guard, data: bytes
) -> None:
    with guest.line() as line:
        for _ in range(3):
            assert send_poll(line, data).status == 200
            time.wind(LIMITS.keep_alive - 1)
        assert send_poll(line, data).status == 200
        with hit(service, "keep_alive"):
            time.wind(LIMITS.keep_alive + 1)
            assert line.over() == b""


def test_a_silent_connection_is_idle(service: Service, guest: Guest, time: Guard) -> None:
    with guest.line() as line:
        accepted(service)
        time.wind(LIMITS.keep_alive - 1)
        assert line.silent()
        with hit(service, "keep_alive"):
            time.wind(2)
            assert line.over() == b""


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("sent", [GET[:1], GET[:-1], b"PROPF", b"\r\n"])
def test_a_head_is_waited_for_ten_seconds_from_its_first_byte(
    service: Service, guest: Guest, other: Guest, time: Guard, kept: bool, sent: bytes
) -> None:
    with guest.line() as line:
        if kept:
            send_poll(line)
            time.wind(60)
        line.send(sent)
        accepted(service)
        assert asked_long(other).status == 200  # by now it has been read
        time.wind(LIMITS.head_timeout - 1)
        assert line.silent()
        with hit(service, "head_timeout"):
            time.wind(2)
            assert line.over() == b""


def asked_long(guest: Guest) -> RawResponse:
    for _ in range(5):
        guest.get()
    return guest.say(ODD)


def test_a_head_that_trickles_in_is_cut_off_as_well(
    service: Service, guest: Guest, time: Guard
) -> None:
    with guest.line() as line, hit(service, "head_timeout"):
        for at in range(12):
            with contextlib.suppress(OSError):
                line.send(GET[at : at + 1])
            if at == 0:
                accepted(service)
            time.wind(1)
        assert line.over() == b""


def test_a_slow_head_behind_a_good_request_is_cut_off_as_well(
    service: Service, guest: Guest, time: Guard
) -> None:
    with guest.line() as line:
        assert send_poll(line, ODD + GET[:20]).status == 200
        time.wind(LIMITS.head_timeout - 1)
        assert line.silent()
        with hit(service, "head_timeout"):
            time.wind(2)
            assert line.over() == b""


@pytest.mark.parametrize("head", [POST, CHUNKED], ids=["length", "chunked"])
def test_a_body_is_waited_for_ten_seconds(
    service: Service, guest: Guest, other: Guest, time: Guard, head: bytes
) -> None:
    with guest.line() as line:
        line.send(head)
        accepted(service)
        assert asked_long(other).status == 200
        time.wind(LIMITS.body_timeout - 1)
        assert line.silent()
        with hit(service, "body_timeout"):
            time.wind(2)
            answer = line.answer()
        assert (answer.status, answer.header("connection")) == (408, "close")
        assert line.over() == b""


def test_a_body_that_trickles_in_is_refused_as_well(
    service: Service, guest: Guest, time: Guard
) -> None:
    with guest.line() as line, hit(service, "body_timeout"):
        line.send(POST)
        accepted(service)
        for _ in range(12):
            with contextlib.suppress(OSError):
                line.send(b"{")
            time.wind(1)
        assert line.answer().status == 408


def test_a_body_that_is_not_read_has_a_time_limit_too(
    service: Service, guest: Guest, time: Guard
) -> None:
    with guest.line() as line:
        line.send(request("GET", events(NEWEST), METADATA, "Content-Length: 9"))
        assert line.answer().status == 200
        time.wind(LIMITS.body_timeout - 1)
        assert line.silent()
        with hit(service, "body_timeout"):
            time.wind(2)
            assert line.over() == b""


def test_a_caller_that_waits_for_an_answer_is_not_cut_off_as_slow(
    service: Service, guest: Guest, time: Guard
) -> None:
    """The first answer of a group may take two minutes."""
    sleeper = Guest(service, "web2_0")
    with sleeper.line() as line, hit(service):
        line.send(GET)
        accepted(service)
        time.wind(10 * LIMITS.keep_alive)
        assert line.silent()
        waken(service, line)
        assert line.answer().status == 200
    service.disable("web2")


# Size.


HEADS = {
    "a long target": lambda n: request("GET", events(NEWEST) + "&x=" + "a" * n, METADATA),
    "a long header": lambda n: request("GET", events(NEWEST), METADATA, "X: " + "a" * n),
    "many headers": lambda n: request(
        "GET", events(NEWEST), METADATA, *(f"X{i}: {'a' * (n // 20)}" for i in range(20))
    ),
    "a long name": lambda n: request("GET", events(NEWEST), METADATA, "X" * n + ": a"),
}


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("what", HEADS)
def test_a_head_is_limited_to_16_kibibytes(
    service: Service, guest: Guest, other: Guest, what: str, pieces: int
) -> None:
    def send_in_pieces(line: RawConnection, data: bytes) -> None:
        step = -(-len(data) // pieces)
        for at in range(0, len(data), step):
            with contextlib.suppress(OSError):
                line.send(data[at : at + step])
            asked_long(other)

    with guest.line() as line, hit(service):
        send_in_pieces(line, HEADS[what](LIMITS.max_head - 1_000))
        assert line.answer().status == 200
    with guest.line() as line, hit(service, "max_head"):
        send_in_pieces(line, HEADS[what](LIMITS.max_head + 200))
        answer = line.answer()
        assert (answer.status, answer.header("connection")) == (400, "close")


def test_a_head_is_limited_to_64_lines(service: Service, guest: Guest) -> None:
    lines = [f"X{n}: y" for n in range(LIMITS.max_head_lines - 2)]  # beside Host and Metadata
    with guest.line() as line, hit(service):
        assert send_poll(line, request("GET", events(NEWEST), METADATA, *lines)).status == 200
        assert send_poll(line, request("GET", events(NEWEST), METADATA, *lines)).status == 200
    with guest.line() as line, hit(service, "max_head_lines"):
        answer = send_poll(line, request("GET", events(NEWEST), METADATA, "X: y", *lines))
        assert (answer.status, answer.header("connection")) == (400, "close")


def test_a_body_is_limited_to_64_kibibytes(service: Service, guest: Guest) -> None:
    size = LIMITS.max_body
    with hit(service):
        assert guest.post(b" " * size).status == 400, "it is no approval"
    with hit(service, "max_body"):
        assert guest.post(b" " * (size + 1)).status == 413
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (size + 1, b" " * (size + 1))
    with hit(service, "max_body"):
        assert guest.say(CHUNKED + body).status == 413


@pytest.mark.parametrize("behind", [b"0\r\nX: ", b"0\r\n"], ids=["its value", "its name"])
def test_a_trailer_is_limited_like_a_head(service: Service, guest: Guest, behind: bytes) -> None:
    """Sixteen megabytes of it: whoever still listens would keep them all."""
    with guest.line() as line:
        line.send(CHUNKED + behind)
        with contextlib.suppress(OSError):
            for _ in range(256):
                line.send(b"a" * 65_536)
            assert not line.silent(), "it takes whatever comes"


def test_trailers_change_nothing(service: Service, guest: Guest) -> None:
    trailers = b"".join(b"X%d: y\r\n" % n for n in range(1_000))
    with guest.line() as line:
        line.send(CHUNKED + b"2\r\n{}\r\n0\r\nX-Forwarded-For: z\r\n" + trailers + b"\r\n")
        assert line.answer().status == 400, "it is no approval"


def test_any_number_of_requests_may_be_sent_ahead(service: Service, guest: Guest) -> None:
    count = 300
    with guest.line() as line, hit(service):
        send_poll(line, ODD)
        line.send(GET * count)
        assert {line.answer().status for _ in range(count)} == {200}
        assert send_poll(line).status == 200


def test_a_poll_with_a_body_may_be_repeated_on_one_connection(
    service: Service, guest: Guest
) -> None:
    poll = request("GET", events(NEWEST), METADATA, body=b"{}")
    with guest.line() as line, hit(service):
        assert {send_poll(line, poll).status for _ in range(150)} == {200}


MANY = request("GET", events(NEWEST), METADATA, *(f"X{n}: y" for n in range(99)))


@pytest.mark.parametrize(
    ("wrong", "limits"),
    [(b"\x16\x03\x01\r\n\r\n", ()), (MANY, ("max_head_lines",)), (b"GET / HTTP/9.9\r\n\r\n", ())],
    ids=["no http", "too many lines", "another http"],
)
def test_a_parse_error_waits_for_the_answers_in_flight(
    service: Service, guest: Guest, wrong: bytes, limits: tuple[str, ...]
) -> None:
    for good in (GET, ODD, request("POST", events(NEWEST), METADATA, body=approval("A")), GET * 3):
        with guest.line() as line, hit(service, *limits):
            line.send(good + wrong)
            answers = [line.answer().status for _ in range(good.count(b"HTTP/1.1"))]
            assert set(answers) == ({400} if good.startswith(b"POST") else {200})
            answer = line.answer()
            assert (answer.status, answer.header("connection")) == (400, "close")
            assert line.over() == b""


# Connections.


@contextlib.contextmanager
def lines(guest: Guest, count: int, data: bytes = GET) -> Iterator[list[RawConnection]]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(guest.line()) for _ in range(count)]
        for line in made:
            assert send_poll(line, data).status in (200, 404)
        yield made


@pytest.mark.parametrize("data", [GET, ODD], ids=["short", "long"])
def test_a_machine_is_limited_to_32_connections(
    service: Service, guest: Guest, other: Guest, data: bytes
) -> None:
    with lines(guest, LIMITS.max_connections_per_machine, data) as held:
        for one_more in (GET, ODD):
            with hit(service, "max_connections_per_machine"), guest.line() as line:
                with contextlib.suppress(OSError):
                    line.send(one_more)
                answer = line.answer()
                assert (answer.status, answer.body) == (429, THROTTLED)
                assert answer.header("connection") == "close"
                assert answer.header("x-ms-request-id")
                assert line.over() == b""
        with hit(service):
            assert other.get().status == 200, "that is no concern of another's"
            assert {send_poll(line, data).status for line in held} == {200}
        held[0].close()
        connections = service._session.node.endpoint.connections
        until(lambda: connections.total < LIMITS.max_connections_per_machine)
        with hit(service), guest.line() as line:
            assert send_poll(line).status == 200, "there is room again"


def test_approvals_that_are_held_leave_connections_for_polls(
    service: Service, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = threading.Event()

    async def approve(*_: object) -> bool:
        while not decided.is_set():  # whoever decides is away
            await guard.pause(0.01)
        return True

    monkeypatch.setattr(service._session.node.endpoint._upstream, "approve", approve)
    body = write_approval(["00000000-0000-4000-8000-000000000000"])
    post = request("POST", events(NEWEST), METADATA, f"Content-Length: {len(body)}") + body
    share = LIMITS.max_connections_per_machine // HELD_SHARE
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(guest.line()) for _ in range(share)]
        for line in held:
            line.send(post)
        requests = service._session.node.endpoint._held_requests
        until(lambda: requests.full(guest.name))
        for _ in range(2 * LIMITS.max_connections_per_machine):
            with guest.line() as line:
                line.send(post)
                answer = line.answer()
                assert (answer.status, answer.header("connection")) == (429, "close")
            assert guest.get().status == 200
        assert all(line.silent() for line in held)
        decided.set()
        assert {line.answer().status for line in held} == {200}


def test_a_connection_that_closes_after_its_answer_does_not_count(
    service: Service, guest: Guest
) -> None:
    if service._session.node.front is None:  # which would have to hold it first
        with lines(guest, LIMITS.max_connections_per_machine):
            assert guest.say(LAST).status == 429
        return
    assert learn(LAST) is not None, "guard time stands still, so the machine may have no share left"
    with lines(guest, LIMITS.max_connections_per_machine), hit(service):
        for _ in range(20):
            assert guest.say(LAST).header("connection") == "close"
        assert (
            service._session.node.endpoint.connections.total == LIMITS.max_connections_per_machine
        )


def test_a_flood_of_connections_of_one_machine_does_not_affect_others(
    service: Service, guest: Guest, other: Guest
) -> None:
    with lines(guest, LIMITS.max_connections_per_machine), other.line() as calm:
        for _ in range(300):
            with guest.line() as line:
                with contextlib.suppress(OSError):
                    line.send(GET)
                assert line.answer().status == 429
            assert send_poll(calm).status == 200


@pytest.fixture(scope="module", params=[True, False], ids=["front", "no front"])
def by_source(request: pytest.FixtureRequest, time: Guard) -> Iterator[Service]:
    """As on a fleet, with room for 3 connections of a machine and 10 of all; the first machine
    has two addresses."""
    limits = Limits(max_connections_per_machine=3, max_connections=10)
    service = Service(fleet_of(2), sockets=True, limits=limits, front=request.param)
    known_by_source(service)
    config = service._session._node.config
    assert config.fleet is not None
    groups = dict(config.fleet.groups)
    first, *rest = groups["web0"].machines
    first = msgspec.structs.replace(first, addresses=(*first.addresses, "127.0.9.1"))
    groups["web0"] = msgspec.structs.replace(groups["web0"], machines=(first, *rest))
    fleet = Fleet(groups, config.fleet.hosts)
    service._session._node = Node(msgspec.structs.replace(config, fleet=fleet))
    with service:
        Guest(service, "web0_0").get()
        Guest(service, "web1_0").get()
        yield service


def held_by(service: Service, *sources: str) -> list[RawConnection]:
    made = []
    for source in sources:
        line = RawConnection(("127.0.0.1", port_of(service)), source=source)
        assert send_poll(line).status in (200, 404)
        made.append(line)
    return made


def test_a_machine_with_two_addresses_has_one_limit_of_connections(by_source: Service) -> None:
    first = by_source.addresses["web0_0"]
    until_closed(by_source)
    held = held_by(by_source, first, "127.0.9.1", first)
    place = "127.0.0.1", port_of(by_source)
    for source in ("127.0.9.1", first):
        with hit(by_source, "max_connections_per_machine"):
            assert exchange(place, GET, source=source).status == 429
    assert exchange(place, GET, source=by_source.addresses["web1_0"]).status == 200
    assert exchange(place, GET, source="127.0.9.8").status == 404
    for line in held:
        line.close()


@pytest.mark.parametrize("front", [True, False], ids=["front", "no front"])
def test_unknown_callers_share_a_limit_of_connections(front: bool) -> None:
    limits = Limits(max_connections_per_machine=3, max_connections=5 * UNKNOWN_CALLERS_SHARE)
    service = Service(fleet_of(1), sockets=True, limits=limits, front=front)
    known_by_source(service)
    with service:
        place = "127.0.0.1", port_of(service)
        held = held_by(service, *["127.0.9.9"] * 3)
        with hit(service, "max_connections_per_machine"):
            assert exchange(place, GET, source="127.0.9.9").status == 429
        held += held_by(service, *["127.0.9.8"] * 2)
        with hit(service, "max_connections"):
            assert exchange(place, GET, source="127.0.9.7").status == 503
        assert exchange(place, GET, source=service.addresses["web0_0"]).status == 200
        held.pop().close()
        until(lambda: service._session.node.endpoint.connections.total == 4)
        assert exchange(place, GET, source="127.0.9.7").status == 404
        for line in held:
            line.close()


def test_the_connections_of_all_machines_together_are_limited(by_source: Service) -> None:
    until_closed(by_source)
    machines = [by_source.addresses[f"web{n % 2}_{n // 2}"] for n in range(5)]
    held = held_by(by_source, *machines, *machines)
    place = "127.0.0.1", port_of(by_source)
    with hit(by_source, "max_connections"):
        answer = exchange(place, GET, source=by_source.addresses["web1_3"])
    assert (answer.status, answer.header("connection")) == (503, "close")
    assert {send_poll(line).status for line in held} == {200}
    held.pop().close()
    until(lambda: by_source._session.node.endpoint.connections.total == 9)
    assert exchange(place, GET, source=by_source.addresses["web1_3"]).status == 200
    for line in held:
        line.close()


# Callers that do not read.


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, time: Guard) -> Iterator[Guest]:
    """A machine with a document larger than what the system takes of it at once, and room for
    four connections."""

    def opened(*args: Any) -> list[socket.socket]:
        listeners = open_loopback(*args)
        for listener in listeners:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        return listeners

    monkeypatch.setattr("forewarn.node.wiring.open_loopback", opened)
    limits = Limits(max_connections_per_machine=4)
    with Service(fleet_of(1), sockets=True, front=True, limits=limits) as service:
        guest = Guest(service, "web0_0")
        guest.get()
        for _ in range(100):
            service.schedule("Freeze", guest.name, notice="1h", description="\U0001f600" * 1_000)
        yield guest


def unread(guest: Guest, data: bytes) -> socket.socket:
    """A caller that asks and does not read."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    caller.settimeout(LIMIT)
    caller.connect(guest.place)
    caller.sendall(data)
    return caller


def asked_so_often(guest: Guest) -> int:
    polls = guest.service._session.node.poll_index.polls(guest.name)
    return polls.count if polls else 0


@pytest.mark.parametrize("data", [GET, ODD, LAST], ids=["kept", "long", "last"])
def test_a_caller_that_does_not_read_its_answer_is_cut_off(
    large: Guest, time: Guard, data: bytes
) -> None:
    connections = large.service._session.node.endpoint.connections
    before = asked_so_often(large)
    with unread(large, data):
        until(lambda: asked_so_often(large) > before and connections.total == 1)
        with hit(large.service, "answer_timeout"):
            for _ in range(5):
                time.wind(LIMITS.answer_timeout + 1)
            until(lambda: connections.total == 0)


def test_a_connection_whose_last_answer_is_not_read_counts(large: Guest) -> None:
    connections = large.service._session.node.endpoint.connections
    before = asked_so_often(large)
    with contextlib.ExitStack() as stack:
        for n in range(20):
            stack.enter_context(unread(large, LAST))
            until(lambda n=n: asked_so_often(large) > before + n or connections.total >= 4)  # type: ignore[misc]
        assert connections.total <= 4


# Where they are told.


FLEET = "groups: [{name: one, kind: standalone, machines: [{name: one, addresses: [10.0.0.1]}]}]"


def test_every_limit_is_shown_by_its_name(service: Service, guest: Guest) -> None:
    guest.post(b" " * (LIMITS.max_body + 1))
    found = limit_hits(service.control_url)
    assert set(found) == {*NAMES, OPEN_FILES}
    assert found == dict(service._session.node.endpoint.counts.hits)
    assert found["max_body"] >= 1
