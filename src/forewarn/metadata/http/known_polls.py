"""Plans: what a whole poll asks for, remembered by its bytes.

Machines ask for the same in the same words, second after second. A plan is a pure function of a
request's bytes, so it is never stale; what is answered is looked up anew every time. Admitted is
only what leaves no doubt where the request ends and what it means; all else takes the long way.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import httptools

from forewarn.metadata.endpoint.app import KnownPoll
from forewarn.wire import requests

MAX_PLAN = 2_048  # bytes of a request that is remembered
MAX_PLANS = 1_024  # requests that are remembered; the oldest goes first

# What published clients send with a poll. None of it changes how a request is framed.
ALLOWED = frozenset(
    {
        b"accept",
        b"accept-charset",
        b"accept-encoding",
        b"accept-language",
        b"cache-control",
        b"connection",
        b"content-type",
        b"host",
        b"if-none-match",
        b"metadata",
        b"pragma",
        b"user-agent",
    }
)
_TO_KEEP_OR_TO_CLOSE = (b"keep-alive", b"close")


_plans: OrderedDict[bytes, KnownPoll] = OrderedDict()
known = _plans.get


def learn(data: bytes) -> KnownPoll | None:
    """The plan of these bytes, or None if they are not exactly one poll that may have one."""
    plan = _read(data)
    if plan is not None:
        _plans[data] = plan
        while len(_plans) > MAX_PLANS:
            _plans.popitem(last=False)
    return plan


def _read(data: bytes) -> KnownPoll | None:
    if (
        len(data) > MAX_PLAN
        or not data.startswith(b"GET /")
        or data.find(b"\r\n\r\n") != len(data) - 4
        or not data.count(b"\r\n") == data.count(b"\r") == data.count(b"\n")
    ):
        return None
    poll = _Poll()
    parser = poll.parser = httptools.HttpRequestParser(poll)
    try:
        parser.feed_data(data)
        url = httptools.parse_url(poll.url)
        path = url.path.decode("ascii")
    except (httptools.HttpParserError, httptools.HttpParserUpgrade, UnicodeDecodeError):
        return None
    finally:
        del poll.parser  # each knows the other; nobody should have to find that out
    names = {name for name, _ in poll.headers}
    if (
        poll.complete != 1
        or poll.http != "1.1"
        or "%" in path
        or not names <= ALLOWED
        or len(names) != len(poll.headers)
    ):
        return None
    for name, value in poll.headers:
        if name == b"connection" and value.lower() not in _TO_KEEP_OR_TO_CLOSE:
            return None
    ask = requests.read_metadata_request("GET", path, url.query or b"", poll.headers)
    if not isinstance(ask, requests.GetDocument):
        return None
    return KnownPoll(ask.version, ask.if_none_match, poll.close)


class _Poll:
    """What the parser tells of one request."""

    def __init__(self) -> None:
        self.parser: Any = None
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.http = ""
        self.close = False
        self.complete = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.http = self.parser.get_http_version()
        self.close = not self.parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self.complete += 1
