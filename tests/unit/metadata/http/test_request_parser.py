"""The request parser: one head or one piece of a body at a time, wherever its bytes are cut."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.metadata.endpoint.limits import Limits
from forewarn.metadata.http.request_parser import SLICE, Malformed, RequestParser

LIMITS = Limits()
POST = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
CHUNKED = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET /x?y HTTP/1.1\r\nHost: a\r\n\r\n"


def parsed(pieces: list[bytes], limits: Limits = LIMITS) -> tuple[list[tuple[str, bytes]], bytes]:
    """The methods and bodies of all whole requests in these bytes, and what is left of them."""
    parser, found, left = RequestParser(), list[tuple[str, bytes]](), b""
    for piece in pieces:
        left += piece
        while left:
            was_in_body = parser.in_body
            consumed = parser.consume(left, limits)
            left = left[consumed:]
            if not parser.in_head and not parser.in_body and (consumed or was_in_body):
                assert parser.request is not None
                found.append((parser.request.method, bytes(parser.body)))
            if not consumed:
                break
    return found, left


def test_the_parser_stops_after_a_head_and_after_a_message() -> None:
    parser = RequestParser()
    data = POST + b"hello" + GET
    assert parser.consume(data, LIMITS) == len(POST)
    assert parser.in_body
    assert parser.consume(data[len(POST) :], LIMITS) == 5
    assert not parser.in_body
    assert bytes(parser.body) == b"hello"
    assert parser.consume(GET, LIMITS) == len(GET)
    assert parser.request is not None
    assert (parser.request.path, parser.request.query) == ("/x", b"y")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_a_request_is_parsed_however_it_is_split(size: int) -> None:
    chunks = b"5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nX: y\r\n\r\n"
    data = GET + b"\r\n" + POST + b"\r\n\r\n!" + CHUNKED + chunks + b"BREW / HTTP/1.0\r\n\r\n" + GET
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert parsed(pieces) == (
        [("GET", b""), ("POST", b"\r\n\r\n!"), ("POST", b"hello!"), ("BREW", b""), ("GET", b"")],
        b"",
    )


def test_the_digits_of_a_length_are_limited() -> None:
    for zeros in (19, 20, 5_000):
        parser = RequestParser()
        data = POST.replace(b": 5", b": " + b"0" * zeros + b"5")
        if zeros < 20:
            assert parser.consume(data, LIMITS) == len(data)
            continue
        with pytest.raises(Malformed):
            parser.consume(data, LIMITS)


def test_one_call_consumes_a_bounded_amount() -> None:
    parser = RequestParser()
    head = POST.replace(b"5", b"65536")
    assert parser.consume(head, LIMITS) == len(head)
    assert parser.consume(b"x" * 65_536, LIMITS) == SLICE


def test_a_body_that_is_discarded_is_not_kept() -> None:
    parser = RequestParser()
    parser.consume(POST, LIMITS)
    parser.consume(b"he", LIMITS)
    parser.discard_body()
    parser.consume(b"llo", LIMITS)
    assert (bytes(parser.body), parser.body_size, parser.in_body) == (b"", 5, False)


@pytest.mark.parametrize("extension", [b"", b";a=b"])
def test_the_number_of_chunks_is_limited(extension: bytes) -> None:
    limits = Limits(max_chunks=3)
    chunk = b"1%b\r\n \r\n" % extension
    assert parsed([CHUNKED + chunk * 3 + b"0\r\n\r\n"], limits)[0] == [("POST", b"   ")]
    with pytest.raises(Malformed) as refused:
        parsed([CHUNKED + chunk * 4 + b"0\r\n\r\n"], limits)
    assert refused.value.limit == "max_chunks"


@pytest.mark.parametrize(
    "data",
    [
        CHUNKED + b"1;" + b"x" * 17_000,
        CHUNKED + b"1;" + b"x" * 17_000 + b"\r\n",
        CHUNKED + b"0\r\n" + b"X: " + b"y" * 17_000,
        GET[:-2] + b"X: " + b"y" * 17_000,
        b"GET /" + b"x" * 17_000,
    ],
)
def test_chunk_extensions_and_trailers_are_limited(data: bytes) -> None:
    for size in (len(data), 1_000):
        with pytest.raises(Malformed) as refused:
            parsed([data[at : at + size] for at in range(0, len(data), size)])
        assert refused.value.limit == "max_head"


def test_trailers_are_as_many_as_header_lines() -> None:
    lines = LIMITS.max_head_lines - 1
    parsed([CHUNKED + b"0\r\n" + b"X: y\r\n" * lines + b"\r\n"])
    with pytest.raises(Malformed) as refused:
        parsed([CHUNKED + b"0\r\n" + b"X: y\r\n" * (lines + 2)])
    assert refused.value.limit == "max_head_lines"


@pytest.mark.parametrize(("text", "most"), [(b"&a=1", 63), (b"%41", 256), (b"%zz", 256)])
def test_the_parameters_and_escapes_of_a_target_are_limited(text: bytes, most: int) -> None:
    for before in (b"/a", b"/?a"):
        parsed([b"GET " + before + text * most + b" HTTP/1.1\r\n\r\n"])
        with pytest.raises(Malformed):
            parsed([b"GET " + before + text * (most + 1) + b" HTTP/1.1\r\n\r\n"])


@pytest.mark.parametrize("offer", [b"Upgrade: h2c\r\nConnection: upgrade\r\n", b""])
@pytest.mark.parametrize("coding", [b"identity", b"gzip", b"chunked, gzip", b"x", b"chunked, x"])
def test_a_coding_that_has_no_end_is_refused_with_and_without_an_offer(
    coding: bytes, offer: bytes
) -> None:
    with pytest.raises(Malformed):
        parsed([b"POST / HTTP/1.1\r\n" + offer + b"Transfer-Encoding: " + coding + b"\r\n\r\n"])


PARTS = (
    *(b"1\r\na\r\n", b"2\r\nab\r\n", b"0\r\n", b"\r\n", b"A\r\n0123456789\r\n", b"a", b"1", b"X"),
    *(b"1;a=b\r\na\r\n", b"1;a\r\na\r\n", b"X: y\r\n", b"X:y\r\n", b"\r", b"\n", b" ", b";", b"zz"),
    *(b"0\r\n\r\n", b"0\r\n\r\n", b"01\r\na\r\n", b"-1\r\n", b"Content-Length: 3\r\n", b"\x00"),
)


class _Llhttp:
    """What llhttp makes of a body in chunks."""

    def __init__(self) -> None:
        self.body = b""
        self.complete = False
        self.behind: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True

    @classmethod
    def of(cls, data: bytes) -> tuple[bytes | None, bool]:
        """The body, or None if it is refused, and whether it is whole. Fed in single bytes, so
        that it does not go on with what is behind it."""
        found = cls()
        parser = httptools.HttpRequestParser(found)
        parser.feed_data(CHUNKED)
        try:
            for at in range(len(data)):
                parser.feed_data(data[at : at + 1])
                if found.complete:
                    break
        except httptools.HttpParserError:
            return None, False
        return found.body, found.complete


@given(st.lists(st.sampled_from(PARTS), max_size=6).map(b"".join))
def test_chunks_are_read_as_llhttp_reads_them(data: bytes) -> None:
    body, complete = _Llhttp.of(data)
    parser, left = RequestParser(), data
    parser.consume(CHUNKED, LIMITS)
    try:
        while parser.in_body and left and (consumed := parser.consume(left, LIMITS)):
            left = left[consumed:]
    except Malformed:
        assert body is None
        return
    if body is not None:  # of what is refused, a part of a line may be waited for
        assert (bytes(parser.body), not parser.in_body) == (body, complete)
    else:
        assert parser.in_body
