"""Plans: admitted is one whole poll that leaves no doubt, nothing else; the table is bounded."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.metadata.endpoint.app import KnownPoll
from forewarn.metadata.endpoint.documents import CLOSE
from forewarn.metadata.http import known_polls
from forewarn.metadata.http.known_polls import (
    ALLOWED,
    MAX_KNOWN_POLLS,
    MAX_POLL_BYTES,
    known,
    learn,
)
from forewarn.wire.versions import VERSIONS

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
POLL = f"GET {TARGET} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata: true\r\n\r\n".encode()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    before = dict(known_polls._known_polls)
    known_polls._known_polls.clear()
    yield
    known_polls._known_polls.clear()
    known_polls._known_polls.update(before)


def poll(*headers: str, target: str = TARGET, metadata: str = "Metadata: true") -> bytes:
    lines = [f"GET {target} HTTP/1.1", "Host: h", *([metadata] if metadata else []), *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def admitted(data: bytes) -> KnownPoll:
    plan = learn(data)
    assert plan is not None, data
    assert known(data) is plan
    return plan


@pytest.mark.parametrize("version", [version.name for version in VERSIONS])
def test_an_ordinary_poll_of_any_version_has_a_plan(version: str) -> None:
    plan = admitted(poll(target=f"/metadata/scheduledevents?api-version={version}"))
    assert (plan.version.name, plan.name) == (version, version)
    assert (plan.close, plan.which, plan.tags) == (False, 0, frozenset())


GOOD = {
    "a path in another case": poll(target=TARGET.replace("scheduledevents", "scheduledEvents")),
    "a slash behind the path": poll(target=TARGET.replace("?", "/?")),
    "other parameters": poll(target=TARGET + "&a=b&c"),
    "an escaped parameter": poll(target=TARGET.replace("2020", "%32020")),
    "the header in capitals": poll(metadata="METADATA: TRUE"),
    "no host": POLL.replace(b"Host: 169.254.169.254\r\n", b""),
    "what curl sends": poll("User-Agent: curl/8.5.0", "Accept: */*"),
    "what requests sends": poll(
        "User-Agent: python-requests/2.32.3",
        "Accept-Encoding: gzip, deflate",
        "Accept: */*",
        "Connection: keep-alive",
    ),
    "a content type": poll("Content-Type: application/json"),
    "all that is allowed": poll(
        *(f"{name.decode()}: x" for name in sorted(ALLOWED - {b"host", b"metadata", b"connection"}))
    ),
}


@pytest.mark.parametrize("what", GOOD)
def test_variants_of_a_poll_have_a_plan(what: str) -> None:
    admitted(GOOD[what])


def test_an_etag_is_part_of_the_plan() -> None:
    assert admitted(poll('If-None-Match: "a", W/"b"')).tags == {"a", "b"}


def test_learning_leaves_no_garbage() -> None:
    learn(poll("User-Agent: warm"))
    gc.freeze()  # what other tests have left is not looked at
    gc.disable()
    try:
        for n in range(100):
            learn(poll(f"User-Agent: {n}"))
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("value", ["close", "Close", "CLOSE"])
def test_a_poll_with_connection_close_has_a_plan(value: str) -> None:
    plan = admitted(poll(f"Connection: {value}"))
    assert (plan.close, plan.which) == (True, CLOSE)


BAD = {
    "nothing": b"",
    "half a poll": POLL[:-1],
    "a poll and the next": POLL + POLL,
    "a poll and a byte": POLL + b"G",
    "a poll and an empty line": POLL + b"\r\n",
    "an empty line and a poll": b"\r\n" + POLL,
    "a body": poll("Content-Length: 3") + b"abc",
    "a body of no bytes": poll("Content-Length: 0"),
    "a body in chunks": poll("Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks to come": poll("Transfer-Encoding: chunked"),
    "expect": poll("Expect: 100-continue"),
    "upgrade": poll("Upgrade: h2c", "Connection: Upgrade"),
    "an upgrade without its connection": poll("Upgrade: h2c"),
    "a connection that is neither kept nor closed": poll("Connection: upgrade"),
    "a connection of two minds": poll("Connection: keep-alive, close"),
    "connection twice": poll("Connection: close", "Connection: close"),
    "http/1.0": POLL.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "http/0.9": b"GET /metadata/scheduledevents?api-version=2020-07-01\r\n\r\n",
    "http/2": POLL.replace(b"HTTP/1.1", b"HTTP/2.0"),
    "head": POLL.replace(b"GET", b"HEAD"),
    "post": POLL.replace(b"GET", b"POST"),
    "a verb in small letters": POLL.replace(b"GET", b"get"),
    "an absolute target": POLL.replace(b"GET /", b"GET http://h/"),
    "another path": poll(target="/metadata/instance?api-version=2021-02-01"),
    "the versions": poll(target="/metadata/versions"),
    "a longer path": poll(target=TARGET.replace("?", "/x?")),
    "an escaped path": poll(target=TARGET.replace("metadata", "%6detadata")),
    "no version": poll(target="/metadata/scheduledevents"),
    "an unknown version": poll(target=TARGET.replace("2020", "2099")),
    "the version twice": poll(target=TARGET + "&api-version=2020-07-01"),
    "any parameter twice": poll(target=TARGET + "&a=1&a=1"),
    "no metadata header": poll(metadata=""),
    "another value": poll(metadata="Metadata: false"),
    "metadata twice": poll("Metadata: true"),
    "the same header twice": poll("Accept: a", "accept: b"),
    "forwarded": poll("X-Forwarded-For: 10.0.0.1"),
    "a cookie": poll("Cookie: a=b"),
    "a header of one's own": poll("X-Anything: 1"),
    "an origin": poll("Origin: http://h"),
    "a range": poll("Range: bytes=0-1"),
    "te": poll("TE: trailers"),
    "trailers": poll("Trailer: x"),
    "keep-alive as a header": poll("Keep-Alive: timeout=5"),
    "bare line feeds": POLL.replace(b"\r\n", b"\n"),
    "a bare line feed": POLL.replace(b"\r\nMetadata", b"\nMetadata"),
    "a bare carriage return": poll("Accept: a\rb"),
    "a space before the colon": poll(metadata="Metadata : true"),
    "nul": poll("Accept: a\x00b"),
    "no name": poll(": x"),
    "a path above ascii": poll(target=TARGET.replace("metadata", "metad\xe4ta")),
    "a tls hello": bytes.fromhex("16030100a5010000a1030300") + b"\x00" * 160,
}


@pytest.mark.parametrize("what", BAD)
def test_other_requests_have_no_plan(what: str) -> None:
    assert learn(BAD[what]) is None
    assert known(BAD[what]) is None, "and nothing of it is remembered"
    assert not known_polls._known_polls


def test_a_plan_is_for_two_kibibytes_at_most() -> None:
    room = MAX_POLL_BYTES - len(poll("Accept: "))
    assert MAX_POLL_BYTES == 2_048
    assert len(poll("Accept: " + "a" * room)) == 2_048
    admitted(poll("Accept: " + "a" * room))
    assert learn(poll("Accept: " + "a" * (room + 1))) is None


def test_the_oldest_plan_is_evicted() -> None:
    asked = [poll(target=f"{TARGET}&n={n}") for n in range(MAX_KNOWN_POLLS + 10)]
    for data in asked[:MAX_KNOWN_POLLS]:
        admitted(data)
    assert all(known(data) for data in asked[:MAX_KNOWN_POLLS])
    for data in asked[MAX_KNOWN_POLLS:]:
        admitted(data)
    assert len(known_polls._known_polls) == MAX_KNOWN_POLLS == 1_024
    assert not any(known(data) for data in asked[:10])
    assert all(known(data) for data in asked[10:])


def test_refused_requests_evict_no_plan() -> None:
    admitted(POLL)
    for n in range(2 * MAX_KNOWN_POLLS):
        learn(poll(f"X-Odd: {n}"))
    assert known(POLL)


def test_services_in_several_threads_share_the_table() -> None:
    """As the test kit has them: each service runs in a thread of its own."""
    surprises: list[BaseException] = []

    def ask(who: int) -> None:
        try:
            for n in range(3_000):
                admitted_or_gone = learn(poll(target=f"{TARGET}&who={who}&n={n}"))
                assert admitted_or_gone is not None
        except BaseException as surprise:
            surprises.append(surprise)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert surprises == []
    assert len(known_polls._known_polls) <= MAX_KNOWN_POLLS


@given(st.integers(0, len(POLL) - 1))
def test_no_part_of_a_poll_has_a_plan(end: int) -> None:
    assert learn(POLL[:end]) is None


@given(st.integers(0, len(POLL)), st.binary(min_size=1, max_size=4), st.integers(0, 3))
def test_a_damaged_poll_is_refused_or_still_exactly_one_poll(
    at: int, put: bytes, lost: int
) -> None:
    data = POLL[:at] + put + POLL[at + lost :]
    plan = learn(data)
    if plan is not None:
        assert data.startswith(b"GET /")
        assert data.endswith(b"\r\n\r\n")
        assert data.count(b"\r\n\r\n") == 1
        line, *lines = data[:-4].split(b"\r\n")
        assert line.endswith(b" HTTP/1.1")
        names = [entry.split(b":")[0].lower() for entry in lines if not entry.startswith(b" ")]
        assert set(names) <= ALLOWED
        assert len(names) == len(set(names))
        assert b"metadata" in names
