"""Whoever keeps the service busy keeps nobody else waiting: requests are served in fair turns, one
at a time on a connection, and what is held for a machine is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from forewarn.metadata.endpoint.app import READ_SIZE, MetadataApp
from forewarn.metadata.endpoint.fair_queue import SHARE, TURN
from forewarn.metadata.endpoint.limits import Limits
from forewarn.metadata.http.exchange import REQUEST_COST
from forewarn.metadata.http.front import CHUNK
from forewarn.node.listening import serve
from forewarn.support import guard
from forewarn.testing import Service
from forewarn.wire import errors
from helpers.endpoint import METADATA, NEWEST, THROTTLED, Guest, approval, events, fleet_of
from helpers.polls import CHUNKED, GET, ODD, send_poll, until_closed
from helpers.raw_http import RawConnection, request
from helpers.waiting import LIMIT, until

LIMITS = Limits()
LARGE = request("POST", events(NEWEST), METADATA, body=b" " * LIMITS.max_body)


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """On the loop of the test kit, and on the one of `serve`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "uvloop":
            patch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)
        with Service(fleet_of(4), sockets=True, front=True) as service:
            for n in range(4):
                Guest(service, f"web{n}_0").get()
            yield service


@pytest.fixture
def busy(service: Service) -> Guest:
    until_closed(service)
    return Guest(service, "web0_0")


@pytest.fixture
def other(service: Service) -> Guest:
    return Guest(service, "web1_0")


def test_ids_that_no_event_can_have_are_refused_before_anybody_is_asked(
    busy: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def approve(*_: object) -> bool:
        raise AssertionError("asked")

    monkeypatch.setattr(busy.service._session.node.endpoint._upstream, "approve", approve)
    ids = [str(n) for n in range(200)]
    with busy.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, body=approval(*ids)))
        assert line.answer().status == 400


def test_an_approval_may_name_a_limited_number_of_unlisted_events(busy: Guest) -> None:
    def approved(*ids: str) -> bytes:
        return busy.post(approval(*ids)).body

    past = [str(uuid.UUID(int=n)) for n in range(errors.MAX_PAST_EVENTS + 1)]
    assert approved(*past) == errors.TOO_MANY_EVENTS.body
    assert approved(*past[1:]) == errors.UNKNOWN_EVENT.body
    event = busy.service.schedule("Freeze", busy.name)
    assert approved(event.id, *past[1:]) == errors.UNKNOWN_EVENT.body
    busy.service._session.run(busy.service._session.node.platform.cancel(event.id, "test"))


@contextlib.contextmanager
def on_the_long_way(guest: Guest, count: int) -> Iterator[list[RawConnection]]:
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(guest.line()) for _ in range(count)]
        for line in lines:
            assert send_poll(line, ODD).status == 200
        yield lines


def at_once(service: Service, *sends: tuple[RawConnection, bytes]) -> None:
    """Send all of these while the service's loop stands still."""

    async def send() -> None:
        for line, data in sends:
            line.send(data)

    service._session.run(send())


class Served:
    """Whose requests were begun in which turn of the loop."""

    def __init__(self, service: Service, patch: pytest.MonkeyPatch) -> None:
        self.turn = 0
        self.begun: list[tuple[int, str]] = []
        self._over = False
        reply = MetadataApp._reply
        addresses = {address: name for name, address in service.addresses.items()}

        async def noted(app: MetadataApp, scope: Any, receive: Any) -> Any:
            self.begun.append((self.turn, addresses[scope["server"][0]]))
            return await reply(app, scope, receive)

        async def count() -> None:
            loop = asyncio.get_running_loop()

            def tick() -> None:
                self.turn += 1
                if not self._over:
                    loop.call_soon(tick)

            tick()

        patch.setattr(MetadataApp, "_reply", noted)
        service._session.run(count())

    def end(self) -> None:
        self._over = True

    @property
    def most_in_a_turn(self) -> int:
        return max(Counter(turn for turn, _ in self.begun).values())


@pytest.fixture
def served(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(service, monkeypatch)
    yield served
    served.end()


# Turns.


def test_only_a_few_requests_are_begun_in_one_turn_of_the_loop(
    service: Service, busy: Guest, served: Served
) -> None:
    with on_the_long_way(busy, 30) as lines:
        served.begun.clear()
        at_once(service, *((line, GET * 20) for line in lines))
        for line in lines:
            assert {line.answer().status for _ in range(20)} == {200}
    assert len(served.begun) == 600
    assert served.most_in_a_turn <= TURN // REQUEST_COST + 1


def test_another_machine_is_served_next_however_much_one_has_sent_ahead(
    service: Service, busy: Guest, other: Guest, served: Served
) -> None:
    with on_the_long_way(busy, 30) as lines, on_the_long_way(other, 1) as (line,):
        served.begun.clear()
        at_once(service, *((each, GET * 20) for each in lines), (line, ODD))
        assert line.answer().status == 200
        order = [name for _, name in served.begun]
        assert order.index(other.name) <= 3
        for each in lines:
            assert {each.answer().status for _ in range(20)} == {200}


def test_requests_that_take_long_give_turns_to_the_others(
    service: Service,
    busy: Guest,
    other: Guest,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, reply = [0], MetadataApp._reply
    monkeypatch.setattr(guard, "processor_us", lambda: now[0])

    async def slow(app: MetadataApp, scope: Any, receive: Any) -> Any:
        now[0] += 20 * SHARE if scope["path"] == "/slow" else SHARE
        return await reply(app, scope, receive)

    monkeypatch.setattr(MetadataApp, "_reply", slow)
    with on_the_long_way(busy, 10) as lines, on_the_long_way(other, 1) as (line,):
        served.begun.clear()
        dear = request("GET", "/slow", METADATA)
        at_once(service, *((each, dear * 20) for each in lines), (line, GET * 20))
        assert {line.answer().status for _ in range(20)} == {200}
        for each in lines:
            assert {each.answer().status for _ in range(20)} == {404}
    order = [name for _, name in served.begun]
    last = len(order) - order[::-1].index(other.name)
    assert order[:last].count(busy.name) < 20, "one connection had more turns than ten"


def test_a_machine_s_connections_have_their_turns(
    service: Service, busy: Guest, served: Served
) -> None:
    with on_the_long_way(busy, 10) as lines:
        at_once(service, *((line, GET * 50) for line in lines[:9]), (lines[9], ODD))
        served.begun.clear()
        assert lines[9].answer().status == 200
        assert len(served.begun) < 9 * 50, "it does not wait for the others to come to their end"


def test_connections_that_are_handed_over_at_once_have_their_turns(
    service: Service, busy: Guest, other: Guest, served: Served
) -> None:
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(busy.line()) for _ in range(30)]
        line = stack.enter_context(other.line())
        for each in (*lines, line):
            assert send_poll(each).status == 200
        served.begun.clear()
        at_once(service, *((each, ODD) for each in lines), (line, ODD))
        assert line.answer().status == 200
        assert [name for _, name in served.begun].index(other.name) <= 3
        assert {each.answer().status for each in lines} == {200}
    assert served.most_in_a_turn <= TURN // REQUEST_COST + 1


@pytest.fixture
def answered(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose polls the fast path was asked for, in that order."""
    order: list[str] = []
    answer_poll = MetadataApp.answer_poll
    addresses = {address: name for name, address in service.addresses.items()}

    def noted(app: MetadataApp, known_poll: Any, address: str) -> bytes | None:
        order.append(addresses[address])
        return answer_poll(app, known_poll, address)

    monkeypatch.setattr(MetadataApp, "answer_poll", noted)
    return order


@contextlib.contextmanager
def crowd(service: Service) -> Iterator[list[RawConnection]]:
    """All connections that three machines may have, on the fast path."""
    with contextlib.ExitStack() as stack:
        guests = [Guest(service, f"web{n}_0") for n in (0, 2, 3)]
        most = LIMITS.max_connections_per_machine
        lines = [stack.enter_context(guest.line()) for guest in guests for _ in range(most)]
        for line in lines:
            assert send_poll(line).status == 200
        yield lines


@pytest.mark.usefixtures("busy")
def test_a_machine_waits_for_one_poll_of_each_other_machine(
    service: Service, other: Guest, answered: list[str]
) -> None:
    with crowd(service) as lines, other.line() as line:
        assert send_poll(line).status == 200
        answered.clear()
        at_once(service, *((each, GET) for each in lines), (line, GET))
        assert {each.answer().status for each in (line, *lines)} == {200}
        assert answered.index(other.name) <= 3
        assert len(answered) == len(lines) + 1


@pytest.mark.usefixtures("busy")
def test_callers_that_leave_while_they_are_put_off_are_forgotten(service: Service) -> None:
    with crowd(service) as lines:
        halves = lines[::2]

        async def send_and_leave() -> None:
            for line in lines:
                line.send(GET)
            for line in lines[1::2]:
                line.close()
            for line in halves:
                line.finish()

        service._session.run(send_and_leave())
        assert {line.answer().status for line in halves} == {200}
        assert {line.over() for line in halves} == {b""}
    until_closed(service)
    front = service._session.node.front
    assert front is not None
    assert not front._put_off_of, "nobody is put off for ever"


def test_requests_sent_ahead_are_answered_whole_and_in_order(busy: Guest) -> None:
    post = request("POST", events(NEWEST), METADATA, body=approval("A"))
    chunks = CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"
    with busy.line() as line:
        line.send((GET + post + chunks + request("GET", "/nothing", METADATA)) * 20)
        assert [line.answer().status for _ in range(80)] == [200, 400, 400, 404] * 20


# Memory.


def sent_without_reading(place: tuple[str, int], data: bytes) -> socket.socket:
    """A caller that has sent as much of this as the system and the service take."""
    caller = socket.create_connection(place)
    caller.setblocking(False)
    left = memoryview(data)
    while left and select.select([], [caller], [], 0.1)[1]:
        left = left[caller.send(left) :]
    return caller


def test_pipelined_bodies_of_a_machine_are_not_held_in_memory(
    service: Service, busy: Guest
) -> None:
    buffered = service._session.node.endpoint.buffered
    most: list[int] = []
    change = type(buffered).change

    def watched(self: Any, caller: str, by: int) -> None:
        change(self, caller, by)
        most.append(self.held(busy.name))

    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(type(buffered), "change", watched)
        for _ in range(8):
            caller = sent_without_reading(busy.place, LARGE * 16)
            stack.enter_context(caller)
        until(lambda: bool(most))
    assert max(most) <= 8 * (LIMITS.max_body + 2 * READ_SIZE)
    until(lambda: buffered.total == 0)


@pytest.fixture(scope="module")
def ahead() -> Iterator[list[float]]:
    """Seconds by which guard time is ahead, which a sweep notices soon."""
    ahead, monotonic = [0.0], guard.monotonic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "monotonic", lambda: monotonic() + ahead[0])
        patch.setattr(serve, "SWEEP_EVERY", 0.01)
        yield ahead


@pytest.fixture(scope="module", params=[True, False], ids=["front", "no-front"])
def little(request: pytest.FixtureRequest, ahead: list[float]) -> Iterator[Service]:
    """A service that holds two bodies for a machine, and four in all. What a caller that has gone
    has left unread is noticed when its time is over."""
    limits = Limits(
        max_buffered_per_machine=2 * 65_536, max_buffered=4 * 65_536, body_timeout=LIMIT
    )
    with Service(fleet_of(8), sockets=True, front=request.param, limits=limits) as service:
        for n in range(8):
            Guest(service, f"web{n}_0").get()
        yield service


def test_a_machine_that_holds_its_share_waits_and_every_request_comes_to_its_end(
    little: Service,
) -> None:
    guest, endpoint = Guest(little, "web0_0"), little._session.node.endpoint
    buffered, limits, hits = endpoint.buffered, endpoint.limits, endpoint.counts.hits
    most: list[int] = []
    full = type(buffered).full

    def watched(self: Any, caller: str, connection: object, holds: int) -> str:
        most.append(self.held(caller))
        return full(self, caller, connection, holds)

    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(type(buffered), "full", watched)
        lines = [stack.enter_context(guest.line()) for _ in range(16)]
        half = len(LARGE) // 2
        for line in lines:
            line.send(LARGE[:half])
        until(lambda: hits["max_buffered_per_machine"] > 0)
        late = [stack.enter_context(guest.line()) for _ in range(12)]
        for line in late:
            line.send(LARGE)
        for _ in range(20):
            assert Guest(little, "web1_0").get().status == 200, "time passes"
        for line in lines:
            line.send(LARGE[half:])
        assert {line.answer().status for line in lines + late} == {400}, "it is no approval"
    at_once = len(lines + late) * (CHUNK + READ_SIZE)  # of each connection before it waits
    assert max(most) <= limits.max_buffered_per_machine + at_once + len(LARGE)
    until(lambda: buffered.total == 0)


def test_a_machine_is_served_while_others_hold_all_the_memory(
    little: Service, ahead: list[float]
) -> None:
    buffered = little._session.node.endpoint.buffered
    until(lambda: buffered.total == 0)
    most = little._session.node.endpoint.limits.max_buffered
    with contextlib.ExitStack() as stack:
        for n in range(7):
            for _ in range(4):
                line = stack.enter_context(Guest(little, f"web{n}_0").line())
                line.send(LARGE[:40_000])
        until(lambda: buffered.total >= most)
        guest = Guest(little, "web7_0")
        assert guest.post(approval("A")).status == 400
        assert guest.get().status == 200
        assert buffered.total <= 2 * most + 7 * 4 * READ_SIZE
    ahead[0] += LIMIT + 1
    until(lambda: buffered.total == 0)


# Chunks.


def test_a_body_may_have_a_limited_number_of_chunks(service: Service, busy: Guest) -> None:
    hits, most = service._session.node.endpoint.counts.hits, LIMITS.max_chunks
    with busy.line() as line:
        line.send(CHUNKED + b"1\r\n \r\n" * most + b"0\r\n\r\n" + GET)
        assert [line.answer().status for _ in range(2)] == [400, 200], "it is no approval"
    before = hits["max_chunks"]
    with busy.line() as line:
        line.send(CHUNKED + b"1\r\n \r\n" * (most + 1) + b"0\r\n\r\n")
        answer = line.answer()
        assert (answer.status, answer.header("connection")) == (400, "close")
        assert line.over() == b""
    assert hits["max_chunks"] == before + 1


# Rate.


@pytest.fixture
def throttled(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Guest, Callable[[], None]]]:
    """A machine that may ask once a second, and what lets it ask again."""
    now = [1_000.0]
    monkeypatch.setattr(guard, "monotonic", lambda: now[0])
    with Service(fleet_of(1), sockets=True, front=True, limits=Limits(throttle=1)) as service:

        def later() -> None:
            now[0] += 1

        guest = Guest(service, "web0_0")
        guest.get()
        yield guest, later


def test_the_rate_is_checked_before_the_body_is_read(
    throttled: tuple[Guest, Callable[[], None]],
) -> None:
    guest, later = throttled
    with guest.line() as line:
        line.send(CHUNKED + b"zz\r\n" + b" " * 1_000)
        answer = line.answer()
        assert (answer.status, answer.body) == (429, THROTTLED), "not 400 for the body"
        assert line.over() == b"", "and nothing is said to a request twice"
    expects = request("POST", events(NEWEST), METADATA, "Expect: 100-continue", "Content-Length: 5")
    with guest.line() as line:
        line.send(expects)
        answer = line.answer()
        assert (answer.status, answer.interim) == (429, ()), "the body is not asked for"
    later()
    with guest.line() as line:
        line.send(CHUNKED + b"zz\r\n")
        assert line.answer().status == 400
