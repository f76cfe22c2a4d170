"""An exchange as bytes: however an answer is cut into pieces, it is the same answer."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.client.exchange import Exchange
from forewarn.client.steps import Location, Request, Response
from helpers.examples import examples

ASK = Request(location=Location("169.254.169.254"), target="/x", connect_timeout=1.0, timeout=1.0)
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nETag: a\r\nX-A: 1\r\nx-a: 2\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nETag: a\r\nX-A: 1\r\nx-a: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'{"Events":[]}'
ANSWERS = (
    PLAIN + BODY,
    CHUNKED + b"5\r\n" + BODY[:5] + b"\r\n8;x=y\r\n" + BODY[5:] + b"\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN + BODY,
)


def fed(pieces: list[bytes]) -> tuple[Response, Exchange]:
    exchange = Exchange(ASK)
    for piece in pieces:
        if exchange.feed(piece):
            break
    return exchange.response(0.0, 0.0, ""), exchange


@settings(max_examples=examples(50))
@given(st.sampled_from(ANSWERS), st.lists(st.integers(1, 150), max_size=8))
def test_an_answer_is_read_however_it_is_split(answer: bytes, places: list[int]) -> None:
    cuts = sorted({0, len(answer), *(place for place in places if place < len(answer))})
    pieces = [answer[a:b] for a, b in itertools.pairwise(cuts)]
    came, exchange = fed(pieces)
    assert (came.status, came.body, came.header("etag")) == (200, BODY, "a")
    assert [pair for pair in came.headers if pair[0].lower() == "x-a"] == [
        ("X-A", "1"),
        ("x-a", "2"),
    ], "in order, and as they were written"
    assert exchange.reusable_connection() is not None


@pytest.mark.parametrize("length", range(len(ANSWERS[0])))
def test_an_incomplete_answer_is_not_an_answer(length: int) -> None:
    came, exchange = fed([ANSWERS[0][:length], b""] if length else [b""])
    assert (came.status, came.failure) == (None, "cut" if length else "reset")
    assert exchange.reusable_connection() is None


@settings(max_examples=examples(50))
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
def test_any_bytes_are_read_as_an_answer_or_a_failure(pieces: list[bytes]) -> None:
    came, _ = fed([*pieces, b""])
    assert came.status is None
    assert came.failure
