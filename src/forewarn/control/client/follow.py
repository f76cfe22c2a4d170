"""Reading the feed: a single stream, or all changes across interruptions.

A reader that resumes after the last number it received misses nothing and sees nothing twice,
because a message counts only when it has been received completely.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlencode, urlsplit

import msgspec

from forewarn.control.client.connection import ControlError, Unreachable, error_text, unreachable
from forewarn.control.schema import core as s
from forewarn.control.schema.feed import FeedCommit, FeedHello

SILENCE = 60.0  # seconds without any message after which a stream counts as broken
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds before reconnecting; doubled each time
MAX_LINE = 1024 * 1024 * 1024  # bytes; a commit of a hundred thousand machines is one line


class Message(msgspec.Struct, frozen=True):
    """One server-sent event."""

    event: str
    id: str
    data: bytes


class FeedInterrupted(Unreachable):
    """A stream was interrupted after it had begun; it can be resumed."""


def stream(
    connection: http.client.HTTPConnection,
    path: str,
    query: Mapping[str, str | None],
    after: int | None,
) -> Iterator[FeedHello | FeedCommit | int]:
    """Yield the items of one stream until it ends: a hello, then commits, or numbers up to which
    nothing matches the filter. A stream ends when the service stops or interrupts it."""
    parameters = {key: value for key, value in query.items() if value is not None}
    target = f"{path}/v1/feed" + (f"?{urlencode(parameters)}" if parameters else "")
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    with contextlib.closing(connection):
        try:
            connection.request("GET", target, headers=headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"no service answers: {error_text(error)}") from error
        with contextlib.closing(response):
            try:
                if response.status >= 400:
                    kind = Unreachable if response.status >= 500 else ControlError
                    raise kind(_detail(response))
                yield from _items(response)
            except (OSError, http.client.HTTPException) as error:
                raise FeedInterrupted(f"the feed broke off: {error_text(error)}") from error


def follow(
    connect: Callable[[], http.client.HTTPConnection],
    url: str,
    query: Mapping[str, str | None],
    after: int | None,
    on_interruption: Callable[[str], None] = lambda _: None,
) -> Iterator[FeedCommit]:
    """Yield the commits of the feed for ever, across restarts of the service. `on_interruption` is
    called with the reason before each attempt to reconnect. Raises Unreachable if the service
    cannot be reached at first."""
    path, pause = urlsplit(url).path, FIRST_PAUSE
    reached = False
    while True:
        try:
            for item in stream(connect(), path, query, after):
                reached, pause = True, FIRST_PAUSE
                if isinstance(item, FeedHello):
                    after = item.after
                elif isinstance(item, int):
                    after = item
                else:
                    after = item.seq
                    yield item
        except Unreachable as error:
            if not reached:
                cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
                raise unreachable(url, cause) from cause
            on_interruption(str(error))
        threading.Event().wait(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _items(response: http.client.HTTPResponse) -> Iterator[FeedHello | FeedCommit | int]:
    for message in messages(response):
        try:
            match message.event:
                case "hello":
                    yield msgspec.json.decode(message.data, type=FeedHello)
                case "change":
                    yield msgspec.json.decode(message.data, type=FeedCommit)
                case "gone":
                    raise FeedInterrupted("the next changes have been deleted")
                case "" if message.id.isdecimal():
                    yield int(message.id)
        except msgspec.MsgspecError as error:
            raise ControlError(
                f"this is not a forewarn service of this version: {error}"
            ) from error


def messages(response: http.client.HTTPResponse) -> Iterator[Message]:
    """Parse server-sent events; an incomplete one at the end is dropped."""
    event, id, data = "", "", bytearray()
    while line := response.readline(MAX_LINE):
        if not line.endswith(b"\n"):
            return
        line = line.rstrip(b"\r\n")
        if not line:
            if data or id:
                yield Message(event, id, bytes(data))
            event, id, data = "", "", bytearray()
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"event":
                event = value.decode()
            case b"id":
                id = value.decode()
            case b"data":
                data += (b"\n" if data else b"") + value


def _detail(response: http.client.HTTPResponse) -> str:
    body = response.read()
    try:
        return msgspec.json.decode(body, type=s.Problem).detail
    except msgspec.MsgspecError:
        return f"it answered {response.status}"
