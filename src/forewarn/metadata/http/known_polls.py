"""Known polls: requests for the document that were parsed before, by their exact bytes.

Machines send the same request, byte for byte, second after second. A known poll is a pure function
of a request's bytes, so it is never stale; what is answered is looked up anew every time. Only a
request whose end and meaning are unambiguous is remembered; all others take the slow path.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import httptools

from forewarn.metadata.endpoint.app import KnownPoll
from forewarn.wire import requests

MAX_POLL_BYTES = 2_048  # bytes of a request that is remembered
MAX_KNOWN_POLLS = 1_024  # requests that are remembered; the oldest goes first

# Headers that published clients send with a poll. None of them affects the framing of a request.
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
_CONNECTION_VALUES = (b"keep-alive", b"close")


_known_polls: OrderedDict[bytes, KnownPoll] = OrderedDict()
known = _known_polls.get


def learn(data: bytes) -> KnownPoll | None:
    """Parse and remember a poll. Returns None if the bytes are anything but one such poll."""
    known_poll = _read(data)
    if known_poll is not None:
        _known_polls[data] = known_poll
        while len(_known_polls) > MAX_KNOWN_POLLS:
            _known_polls.popitem(last=False)
    return known_poll


def _read(data: bytes) -> KnownPoll | None:
    if (
        len(data) > MAX_POLL_BYTES
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
        del poll.parser  # breaks a reference cycle
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
        if name == b"connection" and value.lower() not in _CONNECTION_VALUES:
            return None
    ask = requests.read_metadata_request("GET", path, url.query or b"", poll.headers)
    if not isinstance(ask, requests.GetDocument):
        return None
    return KnownPoll(ask.version, ask.if_none_match, poll.close)


class _Poll:
    """Collects what the parser reports about one request."""

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
