"""The feed from the other side: one stream of it, or all there is for as long as one likes.

Whoever goes on from the last number it has had misses nothing and sees nothing twice, whatever
breaks in between: a message counts when all of it has come.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlencode, urlsplit

import msgspec

from forewarn.control.client.connection import ControlError, Unreachable
from forewarn.control.schema import core as s
from forewarn.control.schema.feed import FeedCommit, FeedHello

SILENCE = 60.0  # seconds without a word after which a stream is taken for dead
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds before coming back; it doubles in between
MAX_LINE = 1024 * 1024 * 1024  # bytes; a fleet of a hundred thousand machines is one message


class Message(msgspec.Struct, frozen=True):
    """What one server-sent event says."""

    event: str
    id: str
    data: bytes


class FeedInterrupted(Unreachable):
    """A stream that had begun; where to go on is known."""


def stream(
    connection: http.client.HTTPConnection,
    path: str,
    asked: Mapping[str, str | None],
    after: int | None,
) -> Iterator[FeedHello | FeedCommit | int]:
    """One stream to its end: first where it begins, then commit after commit; a number alone says
    that nothing up to it is of interest. Ends when the service stops, or breaks off."""
    said = {key: value for key, value in asked.items() if value is not None}
    target = f"{path}/v1/feed" + (f"?{urlencode(said)}" if said else "")
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    with contextlib.closing(connection):
        try:
            connection.request("GET", target, headers=headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"no service answers: {error}") from error
        with contextlib.closing(response):
            try:
                if response.status >= 400:
                    kind = Unreachable if response.status >= 500 else ControlError
                    raise kind(_why(response))
                yield from _told(response)
            except (OSError, http.client.HTTPException) as error:
                raise FeedInterrupted(f"the feed broke off: {error}") from error


def follow(
    connect: Callable[[], http.client.HTTPConnection],
    url: str,
    asked: Mapping[str, str | None],
    after: int | None,
    away: Callable[[str], None] = lambda _: None,
) -> Iterator[FeedCommit]:
    """For ever, over every restart of the service; `away` is told why it has to be waited for.
    A service that was never there is not waited for."""
    path, pause = urlsplit(url).path, FIRST_PAUSE
    known = False
    while True:
        try:
            for said in stream(connect(), path, asked, after):
                known, pause = True, FIRST_PAUSE
                if isinstance(said, FeedHello):
                    after = said.after
                elif isinstance(said, int):
                    after = said
                else:
                    after = said.seq
                    yield said
        except Unreachable as error:
            if not known:
                raise Unreachable(f"no service answers at {url}: {error}") from error
            away(str(error))
        threading.Event().wait(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _told(response: http.client.HTTPResponse) -> Iterator[FeedHello | FeedCommit | int]:
    for message in messages(response):
        try:
            match message.event:
                case "hello":
                    yield msgspec.json.decode(message.data, type=FeedHello)
                case "change":
                    yield msgspec.json.decode(message.data, type=FeedCommit)
                case "gone":
                    raise FeedInterrupted("what comes next is no longer there")
                case "" if message.id.isdecimal():
                    yield int(message.id)
        except msgspec.MsgspecError as error:
            raise ControlError(f"this is not a forewarn of this version: {error}") from error


def messages(response: http.client.HTTPResponse) -> Iterator[Message]:
    """As the specification of server-sent events says; what is not whole is nothing."""
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


def _why(response: http.client.HTTPResponse) -> str:
    answer = response.read()
    try:
        return msgspec.json.decode(answer, type=s.Problem).detail
    except msgspec.MsgspecError:
        return f"it answered {response.status}"
