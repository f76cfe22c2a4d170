"""Requests within all limits, or just beyond one, with as much as possible of something that might
take long to read. `made_up` puts new ones together, of which nobody has thought."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Callable, Mapping
from random import Random

from forewarn.wire.errors import MAX_PAST_EVENTS

TARGET = b"/metadata/scheduledevents?api-version=2020-07-01"
HEAD = b" HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata: true\r\n"
TOKEN = (
    b"/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com"
)
INSTANCE = b"/metadata/instance?api-version=2025-04-07"
EXTENSIONS = b"/forewarn/v1/"
ROOM = 15_000  # bytes of a head
BODY = 64_000  # bytes of a body
HEADERS = 55
MADE_UP = 4


def post(body: bytes) -> bytes:
    return b"POST " + TARGET + HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def put(target: bytes, body: bytes) -> bytes:
    return b"PUT " + target + HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(chunks: bytes, trailers: bytes = b"") -> bytes:
    head = b"POST " + TARGET + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n" + trailers + b"\r\n"


def compressed(body: bytes) -> bytes:
    content = gzip.compress(body)
    head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(content)
    return b"POST " + TARGET + HEAD + head + content


def ask(target: bytes, headers: bytes = b"", method: bytes = b"GET") -> bytes:
    return method + b" " + target + HEAD + headers + b"\r\n"


def approval(id: Callable[[int], str], most: int = BODY) -> bytes:
    """Return as many ids as a body has room for, but no more than `most`."""
    size = len(json.dumps({"EventId": id(0)}, separators=(",", ":"))) + 1
    ids = [{"EventId": id(n)} for n in range(min(BODY // (size + 4), most))]
    return post(json.dumps({"StartRequests": ids}, separators=(",", ":")).encode())


def filled(piece: bytes, room: int) -> bytes:
    return piece * (room // len(piece))


SHAPES: Mapping[str, tuple[str, bytes]] = {
    "trailers": ("trailers of four bytes", chunked(b"", filled(b"a:\r\n", ROOM))),
    "few trailers": ("as many trailers as are taken", chunked(b"", b"a:\r\n" * 63)),
    "escapes": ("a path of %zz", ask(b"/" + filled(b"%zz", ROOM))),
    "few escapes": ("as many escapes as are taken", ask(b"/" + b"%zz" * 256)),
    "parameters": ("8,000 parameters", ask(TARGET + filled(b"&a", ROOM))),
    "few parameters": (
        "as many parameters as are taken",
        ask(TARGET + b"".join(b"&%d=" % n for n in range(62))),
    ),
    "ids": ("approvals of short ids", approval(str)),
    "guids": ("approvals of ids that no event has", approval(lambda n: str(uuid.UUID(int=n)))),
    "few guids": (
        "approvals of as many ids that no event has as are taken",
        approval(lambda n: str(uuid.UUID(int=n)), MAX_PAST_EVENTS),
    ),
    "numbers": (
        "numbers with a large exponent",
        post(b'{"a":[' + filled(b"1e308,", BODY - 10) + b"1]}"),
    ),
    "lists": ("empty lists", post(b"[" + filled(b"[],", BODY - 10) + b"1]")),
    "slashes": ("a path of slashes", ask(filled(b"/", ROOM))),
    "tags": ("entity tags", ask(TARGET, b"If-None-Match: " + filled(b'"a",', ROOM) + b"\r\n")),
    "extensions": ("extensions of a chunk", chunked(b"1" + filled(b";a", ROOM) + b"\r\n \r\n")),
    "wrong extension": (
        "extensions of a chunk, the last of which is wrong",
        chunked(b"1" + filled(b";a=b", ROOM) + b";=\r\n \r\n"),
    ),
    "sizes": ("chunks whose sizes begin with zeros", chunked((b"0" * 15 + b"1\r\n \r\n") * 128)),
    "headers": ("60 headers", ask(TARGET, b"".join(b"X-%d: y\r\n" % n for n in range(60)))),
    "header": ("a header of 15 KB", ask(TARGET, b"X: " + b"y" * ROOM + b"\r\n")),
    "method": ("an unknown method", ask(TARGET, method=b"A" * 64)),
    "upgrade": (
        "offers of another protocol",
        ask(TARGET, b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    ),
    "ahead": ("200 requests sent ahead", ask(b"/") * 200),
    "old": ("HTTP/1.0", ask(TARGET).replace(b"1.1", b"1.0")),
    "expect": (
        "bodies that are announced",
        b"POST " + TARGET + HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    ),
    "nested": ("nested objects", post(b'{"a":' * 10_000 + b"1" + b"}" * 10_000)),
    "digits": ("numbers of 1,000 digits", post(b'{"a":[' + b",".join([b"9" * 1000] * 60) + b"]}")),
    "keys": ("one key many times", post(b"{" + filled(b'"StartRequests":[],', BODY) + b'"a":1}')),
    "entries": ("wrong entries", post(b'{"StartRequests":[' + filled(b"1,", BODY - 30) + b"1]}")),
    "elements": ("a path of many elements", ask(b"/metadata/instance" + filled(b"/a", ROOM))),
    "waits": ("waits for a document", ask(b"/forewarn/v1/wait?timeout=1", b"If-None-Match: a\r\n")),
    "tokens": ("tokens", ask(TOKEN)),
    "instance": ("the whole instance metadata", ask(INSTANCE)),
    "ready": ("reports of readiness for no event", put(EXTENSIONS + b"ready/" + b"A" * 36, b"")),
    "postponements": (
        "postponements of no event",
        put(EXTENSIONS + b"postpone/" + b"A" * 36, b'{"until":"2050-01-31T18:00:00Z"}'),
    ),
    "names": (
        "headers with long names",
        ask(TARGET, b"".join(b"X-%d%s: y\r\n" % (n, b"n" * 200) for n in range(58))),
    ),
    "value": ("a parameter of escapes", ask(TARGET + b"&x=" + filled(b"%41", ROOM))),
    "compressed": ("compressed bodies", compressed(b"[" * 5_000_000)),
    "characters": ("ids of escaped characters", approval(lambda n: "\U0001f600" * 20 + str(n))),
    "quotes": ("a quoted extension of a chunk", chunked(b'1;a="' + b'\\"' * 8_000 + b'"\r\n \r\n')),
    "approvals ahead": (
        "200 approvals sent ahead",
        post(b'{"StartRequests":[{"EventId":"a"}]}') * 200,
    ),
}


def made_up(seed: int) -> bytes:
    """Return a request with much of some things; the same for the same seed."""
    chance = Random(seed)
    pieces = (b"/", b"%2f", b"%zz", b"&a", b"&a=%41", b"=", b"+", b";", b"?", b"a", b"..", b"//")
    values = (b"a", b",", b'"a",', b"W/", b" ", b"\t", b";q=0.1", b"gzip,", b"close,", b"=", b"*")
    target = TARGET + filled(chance.choice(pieces), chance.randrange(ROOM // 2))
    if chance.random() < 0.5:
        target = chance.choice((b"/metadata/instance", b"/forewarn/v1/wait", b"")) + target
    names = [b"If-None-Match", b"Connection", b"X", b"Accept", b"Expect", b"Cookie", b"TE", b"Via"]
    names += [b"Upgrade", b"Metadata", b"Host"]
    lines = [
        chance.choice(names)
        + b": "
        + filled(chance.choice(values), chance.randrange(2, ROOM // 2 // HEADERS))
        + b"\r\n"
        for _ in range(chance.randrange(HEADERS))
    ]
    if chance.random() < 0.5:
        return ask(target, b"".join(lines))
    digits = b"9" * 1_000 + b","
    tokens = (
        b"[",
        digits,
        b"null,",
        b'"StartRequests":[],',
        b"{}",
        b'{"EventId":""},',
        b'"\\u0041",',
        b"1e308,",
        b'{"a":',
        b'"a":1,',
        b" ",
    )
    filling = filled(chance.choice(tokens), chance.randrange(2, BODY - 100))
    body = chance.choice((b'{"StartRequests":[', b"", b'{"', b"["))
    body += filling + chance.choice((b"", b"]}", b"}"))
    head = chance.choice((b"POST ", b"PUT ", b"A" * 64 + b" ")) + target + HEAD + b"".join(lines)
    if chance.random() < 0.3:
        size = chance.choice((1, 500))
        parts = [body[at : at + size] for at in range(0, min(len(body), 120 * size), size)]
        end = chance.choice((b"\r\n", b";a=b\r\n"))
        chunks = b"".join(b"%x" % len(each) + end + each + b"\r\n" for each in parts)
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def shapes(seed: int) -> dict[str, tuple[str, bytes]]:
    """Return the requests by name, each with what it has many of."""
    new = {f"made up {seed + n}": ("requests of chance", made_up(seed + n)) for n in range(MADE_UP)}
    return {**SHAPES, **new}
