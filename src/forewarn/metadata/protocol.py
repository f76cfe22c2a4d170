"""uvicorn's HTTP protocol, made to keep our promises at its edges.

What is not HTTP is answered like everything else, and only after the answers that are owed for
good requests before it. A verb that the parser does not know is a verb all the same. An offer to
upgrade (Java's client makes one with every first request) is passed over, and the body behind it
is read. A head that is too long or too slow is cut off; whoever has something to sweep calls
`overdue` once a second, so that no timer is needed for each request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forewarn.metadata.app import standing_headers
from forewarn.metadata.limits import Limits
from forewarn.service import guard
from forewarn.wire.errors import JSON, MALFORMED

# A request line whose verb is a token, as HTTP has it, and how much of one may have come so far.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_ODD_VERB = re.compile(_TOKEN + rb"+(?= [^\s]+ HTTP/1\.[01]\r\n)")
_PART_OF_A_LINE = re.compile(_TOKEN + rb"{1,64}( [!-~]{0,8000}( [HTP/.0-9]{0,8}\r?)?)?")
_STAND_IN = b"OPTIONS"  # a verb that the parser knows and the endpoint does not take
_FRAMING = (b"content-length", b"transfer-encoding")


def protocol(date: Callable[[], str], limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol class; `date` is service time."""

    class MetadataProtocol(HttpToolsProtocol):
        _passing_over = False  # the head that is being parsed has been seen already
        _malformed = False  # nothing after this is read
        _in_message = False  # its first byte has come, its last has not
        _begun = 0  # messages in the data that is being parsed
        _held = b""  # the beginning of a request line: an odd verb is known by the whole of it
        _head_size = 0  # bytes of a head that is not whole yet
        _waiting_since = 0.0  # when a head was first owed, or its first byte came
        _head_begun = False  # some of a head has come, but not all
        _head_whole = False  # a head was completed by the data that is being parsed

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._waiting_since = guard.monotonic()

        def overdue(self, now: float) -> bool:
            """Has the caller kept us waiting for a head for too long?"""
            if self._in_flight():
                return False
            patience = limits.head_timeout if self._head_begun else limits.keep_alive
            return now - self._waiting_since > patience

        def data_received(self, data: bytes) -> None:
            if self._malformed:
                return
            self._head_whole = False
            self._take(data)
            if self._head_begun and not self._head_whole:  # nothing but a part of one head
                self._head_size += len(data)
                if self._head_size > limits.max_head:
                    self.send_400_response("")

        def _take(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            if not self._in_message:
                self._begin_head()
            at_a_start, self._begun = not self._in_message, 0
            if at_a_start:
                data, self._held = self._held + data, b""
                if _PART_OF_A_LINE.fullmatch(data):
                    self._held = data
                    return
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._pass_over(data[upgrade.args[0] :])
            except httptools.HttpParserInvalidMethodError:
                # Where the parser stopped it does not say; the first message is where data begins.
                first = at_a_start and self._begun <= 1
                verb = _ODD_VERB.match(data) if first else None
                if verb is None:
                    self.send_400_response("")
                else:
                    self._fresh_parser()
                    self._in_message = False
                    self._take(_STAND_IN + data[verb.end() :])
            except httptools.HttpParserError:
                self.send_400_response("")

        def _pass_over(self, rest: bytes) -> None:
            """The parser gave up at the offer; go on behind the head with a new one."""
            framing = [b": ".join(h) for h in self.headers if h[0] in _FRAMING]
            method = self.scope["method"].encode()
            self._passing_over = True
            self._in_message = False
            self._fresh_parser()
            self._take(b"\r\n".join([method + b" / HTTP/1.1", *framing, b"", b""]) + rest)

        def _begin_head(self) -> None:
            if not self._head_begun:
                self._head_begun, self._waiting_since = True, guard.monotonic()

        def _fresh_parser(self) -> None:
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

        def on_message_begin(self) -> None:
            self._in_message = True
            self._begun += 1
            self._begin_head()
            if not self._passing_over:
                super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            if not self._passing_over:
                super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            if not self._passing_over:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._head_begun, self._head_whole, self._head_size = False, True, 0
            if self._passing_over:
                self._passing_over = False
            elif sum(len(name) + len(value) for name, value in self.headers) > limits.max_head:
                raise ValueError("the head is too long")  # the parser stops: malformed
            else:
                super().on_headers_complete()

        def on_message_complete(self) -> None:
            # At an offer to upgrade the parser ends the message before its body.
            if not self.parser.should_upgrade():
                self._in_message = False
                super().on_message_complete()

        def eof_received(self) -> bool:  # type: ignore[override]
            """The caller says no more, but may still be listening for what it is owed."""
            owed = self._in_flight() and not self.cycle.more_body
            if owed:
                self.cycle.keep_alive = False
            return owed

        def send_400_response(self, msg: str) -> None:
            del msg
            self._malformed = True
            if self._in_flight() and self.cycle.more_body:  # its own body is what is malformed
                if self.pipeline and self.pipeline[0][0] is self.cycle:
                    self.pipeline.popleft()
                else:
                    self.cycle.disconnected = True
                    self.cycle.message_event.set()
                    self._give_up()
            elif not self._in_flight():
                self._give_up()

        def on_response_complete(self) -> None:
            last = not self.pipeline
            self._waiting_since = guard.monotonic()
            super().on_response_complete()
            if self._malformed and last:
                self._give_up()

        def _in_flight(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle
            return cycle is not None and not cycle.response_complete

        def _give_up(self) -> None:
            if self.transport.is_closing():
                return
            head = [
                *standing_headers(date()),
                ("Content-Type", JSON),
                ("Content-Length", str(len(MALFORMED.body))),
                ("Connection", "close"),
            ]
            lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in head)
            self.transport.write(
                f"HTTP/1.1 400 Bad Request\r\n{lines}\r\n".encode() + MALFORMED.body
            )
            self.transport.close()

    return MetadataProtocol


def sweep(connections: Iterable[object]) -> None:
    """Hang up on whoever has kept us waiting for too long."""
    now = guard.monotonic()
    for connection in list(connections):
        overdue = getattr(connection, "overdue", None)
        if overdue is not None and overdue(now):
            connection.transport.close()  # type: ignore[attr-defined]
