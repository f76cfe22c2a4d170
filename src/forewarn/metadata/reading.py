"""uvicorn's HTTP protocol as far as it reads, made to keep our promises at its edges.

What is not HTTP is answered like everything else, and only after the answers that are owed for
good requests before it. A verb that the parser does not know is a verb all the same. An offer to
upgrade (Java's client makes one with every first request) is passed over, and the body behind it
is read. Whoever says too much is cut off. The parser is fed no further than to where a message
may end, so that it makes no difference how what was sent is cut into pieces on its way.
"""

from __future__ import annotations

import re

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forewarn.metadata.app import MetadataApp
from forewarn.service import guard
from forewarn.wire.errors import MALFORMED, Problem

# A request line whose verb is a token, as HTTP has it, and how much of one may have come so far.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_ODD_VERB = re.compile(_TOKEN + rb"{1,64}(?= [!-~]+ HTTP/1\.[01]\r\n)")
_PART_OF_A_LINE = re.compile(_TOKEN + rb"{1,64}( [!-~]*( [!-~]*\r?)?)?")
_PROTOCOLS = (b" HTTP/1.1", b" HTTP/1.0")
_STAND_IN = b"OPTIONS"  # a verb that the parser knows and the endpoint does not take
END = b"\r\n\r\n"  # of a head, and of a body in chunks
_FRAMING = (b"content-length", b"transfer-encoding")


class ReadingProtocol(HttpToolsProtocol):
    endpoint: MetadataApp

    _who = ""  # whose connection it is, once it is counted
    _malformed = False  # nothing after this is read
    _passing_over = False  # the head that is being parsed has been seen already
    _in_message = False  # its first byte has come, its last has not
    _fresh = False  # what is fed next is the beginning of a message
    _held = b""  # the beginning of a request line: an odd verb is known by the whole of it
    _tail = b""  # the last bytes of a message so far: its end may be cut in two
    _body_left = 0  # bytes of a body whose length was told
    _beside = 0  # bytes of a head so far, or of what is sent around a body
    _head_begun = False  # some of a head has come, but not all
    _waiting_since = 0.0  # when a head was first owed, or its first byte came; or a body

    def data_received(self, data: bytes) -> None:
        while data and not self._malformed and not self.transport.is_closing():
            if self._in_message:
                data = self._go_on(data)
            else:
                self._begin_head()
                data = self._begin((self._held + data).lstrip(b"\r\n"))

    def _begin(self, data: bytes) -> bytes:
        """A message begins here. Returns what lies behind it, if it is whole."""
        self._held = self._tail = b""
        self._beside = 0
        line, newline, _ = data.partition(b"\r\n")
        if not newline and _PART_OF_A_LINE.fullmatch(data):
            self._held, self._beside = data, len(data)
            self._check()
            return b""
        if newline and not line.endswith(_PROTOCOLS):
            self.send_400_response("")
            return b""
        self._fresh = True
        return self._go_on(data)

    def _go_on(self, data: bytes) -> bytes:
        at = (self._tail + data).find(END)
        end = len(data) if at < 0 else at + len(END) - len(self._tail)
        piece = data[: self._body_left or end]
        self._beside += len(piece)
        if self._head_begun and not self._check():
            return b""
        self._tail = (self._tail + piece)[1 - len(END) :]
        fresh, self._fresh = self._fresh, False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._pass_over()
        except httptools.HttpParserInvalidMethodError:
            verb = _ODD_VERB.match(piece) if fresh else None
            if verb is None:
                self.send_400_response("")
            else:
                self._new_parser()
                return self._begin(_STAND_IN + data[verb.end() :])
        except httptools.HttpParserError:
            self.send_400_response("")
        if self._in_message and not self._malformed:  # chunks and trailers have no end either
            self._check()
        return data[len(piece) :]

    def _check(self) -> bool:
        if self._beside <= self.endpoint.limits.max_head:
            return True
        self._too_much("max_head")
        self.send_400_response("")
        return False

    def _pass_over(self) -> None:
        """The parser gave up at the offer, behind the head; a new one goes on from there."""
        framing = [b": ".join(h) for h in self.headers if h[0] in _FRAMING]
        self._passing_over = True
        self._new_parser()
        self.parser.feed_data(b"\r\n".join([_STAND_IN + b" / HTTP/1.1", *framing, b"", b""]))

    def _begin_head(self) -> None:
        if not self._head_begun:
            self._head_begun, self._waiting_since = True, guard.monotonic()

    def _new_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def on_message_begin(self) -> None:
        self._in_message = True
        if not self._passing_over:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._passing_over:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_begun and not self._passing_over:  # behind the body it would be a trailer
            super().on_header(name, value)
            if len(self.headers) > self.endpoint.limits.max_head_lines:
                self._stop("max_head_lines")

    def on_headers_complete(self) -> None:
        self._head_begun, self._beside = False, 0
        self._waiting_since = guard.monotonic()
        self._body_left = next((int(v) for n, v in self.headers if n == b"content-length"), 0)
        limits = self.endpoint.limits
        if self._passing_over:
            self._passing_over = False
            return
        if self.parser.get_http_version() == "1.0":
            self.expect_100_continue = False
        if len(self.pipeline) >= limits.max_pipelined:
            self._stop("max_pipelined")
        super().on_headers_complete()

    def _stop(self, limit: str) -> None:
        self._too_much(limit)
        raise ValueError("more than is allowed")  # the parser stops: malformed

    def _too_much(self, limit: str) -> None:
        self.endpoint.counts.hit(limit, self._who)

    def on_chunk_complete(self) -> None:
        self._beside = 0

    def on_body(self, body: bytes) -> None:
        self._beside -= len(body)
        self._body_left = max(0, self._body_left - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        # At an offer to upgrade the parser ends the message before its body.
        if not self.parser.should_upgrade():
            self._in_message = False
            super().on_message_complete()

    # What cannot be read.

    def send_400_response(self, msg: str) -> None:
        del msg
        self._malformed = True
        if self._in_flight() and self.cycle.more_body:  # its own body is what is malformed
            if self.pipeline and self.pipeline[0][0] is self.cycle:
                self.pipeline.popleft()
            else:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
                self._give_up(MALFORMED)
        elif not self._in_flight():
            self._give_up(MALFORMED)

    def _in_flight(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _give_up(self, problem: Problem) -> None:
        if not self.transport.is_closing():
            self.transport.write(self.endpoint.refusal(problem))
            self.transport.close()
