"""Whatever is thrown at it: no 5xx, no hang, and the next guest is served as if nothing were."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn.metadata.endpoint.limits import Limits
from forewarn.testing import Service
from helpers.endpoint import METADATA, NEWEST, Guest, approval, events, fleet_of
from helpers.examples import examples
from helpers.polls import until_closed
from helpers.raw_http import RawConnection, request

GET = request("GET", events(NEWEST), METADATA)
POST = request("POST", events(NEWEST), METADATA)
CHUNKED = request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked")
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(fleet_of(2), sockets=True, front=True, limits=Limits(body_timeout=1.0)) as service:
        yield service


@pytest.fixture(scope="module")
def hostile(service: Service) -> Guest:
    guest = Guest(service, "web0_0")
    guest.get()
    service.schedule("Reboot", guest.name, notice="1h")
    return guest


@pytest.fixture(scope="module")
def other(service: Service) -> Guest:
    guest = Guest(service, "web1_0")
    guest.get()
    service.schedule("Freeze", guest.name, notice="1h")
    return guest


@pytest.fixture(autouse=True)
def _undisturbed(hostile: Guest, other: Guest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither the other guest nor the document of the hostile one notices anything, and nothing
    broke inside."""
    before, own = other.get().body, hostile.get().body
    yield
    assert other.get().body == before
    # A machine may have 32 connections, and a busy server notices late that one is closed.
    until_closed(hostile.service)
    assert hostile.get().body == own
    broken = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert broken == []


def throw(line: RawConnection, guest: Guest, data: bytes) -> None:
    """Send this and then nothing more; read what comes back until the line closes."""
    with contextlib.suppress(OSError):  # it may hang up in the middle
        line.send(data)
    assert guest.instance().status == 200  # asked later: by now it has been dealt with
    with contextlib.suppress(OSError):
        line.finish()
    response = line.over()
    assert not response or response.startswith(b"HTTP/1.1 "), response
    assert all(int(status) < 500 for status in STATUS.findall(response)), response


def thrown(guest: Guest, data: bytes) -> None:
    with guest.line() as line:
        throw(line, guest, data)


GARBAGE = {
    "noise": bytes(range(256)) * 8,
    "nul": b"\x00" * 4_096,
    "a line without end": b"A" * 100_000,
    "crlf": b"\r\n" * 10,
    "a tls hello": bytes.fromhex("16030100a5010000a1030300") + b"\x00" * 160,
    "an ssh hello": b"SSH-2.0-OpenSSH_9.6\r\n",
    "an http/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "smtp": b"EHLO example.org\r\n",
    "a proxy line": b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + GET,
    "half a verb": b"GE",
    "half a head": GET[:-2],
    "half a target": GET[:30],
    "http/0.9": b"GET /metadata/scheduledevents\r\n\r\n",
    "http/3": GET.replace(b"HTTP/1.1", b"HTTP/3.0"),
    "rtsp": GET.replace(b"HTTP/1.1", b"RTSP/1.0"),
    "bare line feeds": GET.replace(b"\r\n", b"\n"),
    "bare carriage returns": GET.replace(b"\r\n", b"\r"),
    "a folded header": GET.replace(b"Metadata: true", b"Metadata:\r\n true"),
    "a header without a name": GET.replace(b"Metadata: true", b": true"),
    "nul in a header": GET.replace(b"true", b"tr\x00ue"),
    "nul in the target": GET.replace(b"/metadata", b"/meta\x00data"),
    "a space in the target": GET.replace(b"/metadata", b"/meta data"),
    "bytes above ascii in the path": GET.replace(b"/metadata", b"/\xff\xfe"),
    "bytes above ascii in the query": GET.replace(b"api-version=", b"\xff=\xfe&api-version="),
    "escapes above ascii": GET.replace(b"/metadata", b"/%ff%fe%00%zz%"),
    "dots": GET.replace(b"/metadata", b"/../../../../etc/passwd"),
    "connect": b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: 10.0.0.1:443\r\n\r\n",
    "trace": b"TRACE / HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n",
    "options of everything": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "an absolute target": GET.replace(b"GET /", b"GET http://10.0.0.1:99999/"),
    "an absolute target without end": GET.replace(b"GET /", b"GET http://"),
    "a fragment": GET.replace(b" HTTP", b"#top HTTP"),
    "a very long target": GET.replace(b" HTTP", b"&x=" + b"a" * 200_000 + b" HTTP"),
    "very many parameters": GET.replace(b" HTTP", b"&a" * 20_000 + b" HTTP"),
    "a websocket": GET[:-2]
    + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51",
    "no length": POST + b'{"StartRequests":[]}',
    "a negative length": POST[:-2] + b"Content-Length: -1\r\n\r\n{}",
    "a length that is none": POST[:-2] + b"Content-Length: ten\r\n\r\n{}",
    "a length beyond all": POST[:-2] + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n{}",
    "two lengths": POST[:-2] + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length and chunks": CHUNKED[:-2] + b"Content-Length: 2\r\n\r\n0\r\n\r\n",
    "an unknown coding": CHUNKED.replace(b"chunked", b"gzip, deflate"),
    "chunked twice": CHUNKED.replace(b"chunked", b"chunked, chunked") + b"0\r\n\r\n",
    "chunks without a size": CHUNKED + b"\r\n\r\n",
    "a chunk with a wrong size": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
    "a chunk larger than its size": CHUNKED + b"1\r\n{}\r\n0\r\n\r\n",
    "a chunk of a size beyond all": CHUNKED + b"f" * 40 + b"\r\n{}",
    "a chunk of negative size": CHUNKED + b"-1\r\n{}\r\n0\r\n\r\n",
    "a chunk with a very long extension": CHUNKED + b"1;" + b"x" * 200_000 + b"\r\n{\r\n",
    "trailers without end": CHUNKED + b"0\r\n" + b"X: y\r\n" * 5_000,
    "expecting something else": POST[:-2] + b"Expect: a miracle\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_unusual_requests_harm_nobody(hostile: Guest, what: str) -> None:
    thrown(hostile, GARBAGE[what])


@pytest.mark.parametrize("what", GARBAGE)
def test_unusual_requests_after_a_good_one_harm_nobody(hostile: Guest, what: str) -> None:
    with hostile.line() as line:
        line.send(GET)
        assert line.answer().status == 200
        throw(line, hostile, GARBAGE[what])


BODIES = {
    "deep lists": b"[" * 60_000,
    "deep objects": b'{"StartRequests":' * 3_000,
    "deep and closed": b"[" * 20_000 + b"]" * 20_000,
    "a huge integer": b'{"DocumentIncarnation":' + b"9" * 50_000 + b',"StartRequests":[]}',
    "a huge exponent": b'{"StartRequests":[{"EventId":1e999999999}]}',
    "a huge string": b'{"StartRequests":[{"EventId":"' + b"A" * 60_000 + b'"}]}',
    "very many ids": approval(*("A" * 1_000)),
    "not utf-8": b'{"StartRequests":[{"EventId":"\xff\xfe"}]}',
    "a lone surrogate": b'{"StartRequests":[{"EventId":"\\ud800"}]}',
    "an id that grows in upper case": '{"StartRequests":[{"EventId":"ﬃŉß"}]}'.encode(),
    "nul": b"\x00" * 1_000,
    "an escaped nul": b'{"StartRequests":[{"EventId":"\\u0000"}]}',
    "utf-16": '{"StartRequests":[]}'.encode("utf-16"),
    "the same key many times": b"{" + b'"StartRequests":[],' * 1_000 + b'"StartRequests":1}',
    "quotes for a query": b'{"StartRequests":[{"EventId":"\' OR 1=1; --"}]}',
    "a percent for a pattern": b'{"StartRequests":[{"EventId":"%"}]}',
    "gzip": bytes.fromhex("1f8b08000000000000ff") + b"\x00" * 50,
    "xml": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
}


@pytest.mark.parametrize("what", BODIES)
def test_invalid_approvals_are_refused(hostile: Guest, what: str) -> None:
    answer = hostile.post(BODIES[what])
    assert answer.status == 400
    assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_thousands_of_headers_are_answered(hostile: Guest, count: int) -> None:
    lines = b"".join(b"X%d: y\r\n" % n for n in range(count))
    with hostile.line() as line:
        with contextlib.suppress(OSError):
            line.send(GET[:-2] + lines + b"\r\n")
        assert line.answer().status in (200, 400, 431)


def test_many_incomplete_requests_harm_nobody(hostile: Guest, other: Guest) -> None:
    with contextlib.ExitStack() as stack:
        for at in range(1, len(GET)):
            stack.enter_context(hostile.line()).send(GET[:at])
        assert other.get().status == 200
    assert other.get().status == 200


def test_many_incomplete_bodies_harm_nobody(hostile: Guest, other: Guest) -> None:
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(hostile.line()) for _ in range(30)]
        for line in lines:
            line.send(request("POST", events(NEWEST), METADATA, "Content-Length: 9") + b"{")
        assert other.get().status == 200
        assert {line.answer().status for line in lines} == {408}


def test_silent_connections_harm_nobody(hostile: Guest, other: Guest) -> None:
    for _ in range(50):
        hostile.line().close()
    assert other.get().status == 200


def test_clients_that_disconnect_before_the_answer_harm_nobody(
    hostile: Guest, other: Guest
) -> None:
    for data in (GET, request("POST", events(NEWEST), METADATA, body=approval("A"))):
        for _ in range(20):
            with hostile.line() as line:
                line.send(data)
    assert other.get().status == 200


def test_many_requests_at_once_are_all_answered_in_order(hostile: Guest) -> None:
    good, bad = GET, request("GET", "/nothing", METADATA)
    approve = request("POST", events(NEWEST), METADATA, body=approval("A"))
    with hostile.line() as line:
        line.send((good + bad + approve) * 30)
        assert [line.answer().status for _ in range(90)] == [200, 404, 400] * 30


def test_a_request_inside_a_body_is_not_executed(hostile: Guest) -> None:
    inner = request("GET", "/nothing", METADATA)
    with hostile.line() as line:
        line.send(request("GET", events(NEWEST), METADATA, body=inner) + GET)
        assert [line.answer().status for _ in range(2)] == [200, 200]
        line.send(request("PUT", events(NEWEST), METADATA, body=inner) + GET)
        assert [line.answer().status for _ in range(2)] == [405, 200]


BOUNDED = settings(
    max_examples=examples(150),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@BOUNDED
@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_answered_or_refused(hostile: Guest, data: bytes) -> None:
    thrown(hostile, data)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request in which some bytes are changed, taken out or put in."""
    data = bytearray(draw(st.sampled_from([GET, POST, CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["change", "remove", "insert"])):
            case "change":
                data[at] = draw(st.integers(0, 255))
            case "remove":
                del data[at]
            case _:
                data[at:at] = draw(st.binary(min_size=1, max_size=4))
    return bytes(data)


@BOUNDED
@given(damaged())
def test_damaged_requests_harm_nobody(hostile: Guest, data: bytes) -> None:
    thrown(hostile, data)


tokens = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ-!#$%&'*+.^_`|~0123456789", min_size=1, max_size=12)
printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=20)


@BOUNDED
@given(
    tokens,
    st.one_of(st.just(events(NEWEST)), printable),
    st.lists(st.tuples(tokens, printable), max_size=6),
    st.binary(max_size=40),
)
def test_requests_with_odd_verbs_targets_and_headers_harm_nobody(
    hostile: Guest, verb: str, target: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    lines = [f"{name}: {value}" for name, value in headers]
    thrown(hostile, request(verb, target, *lines, body=body))


anything = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["StartRequests", "EventId", "x"]), inner)
    ),
    max_leaves=6,
)


@BOUNDED
@given(anything | st.fixed_dictionaries({"StartRequests": anything}))
def test_any_json_for_an_approval_is_answered_or_refused(hostile: Guest, response: object) -> None:
    assert hostile.post(json.dumps(response).encode()).status == 400
