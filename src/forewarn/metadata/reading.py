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

from forewarn import guard
from forewarn.metadata.app import MetadataApp
from forewarn.wire.errors import MALFORMED, Problem

# A request line whose verb is a token, as HTTP has it, and how much of one may have come so far.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_ODD_VERB = re.compile(_TOKEN + rb"{1,64}(?= [!-~]+ HTTP/1\.[01]\r\n)")
_PART_OF_A_LINE = re.compile(_TOKEN + rb"{1,64}( [!-~]*( [!-~]*\r?)?)?")
_PROTOCOLS = (b" HTTP/1.1", b" HTTP/1.0")
_STAND_IN = b"OPTIONS"  # a verb that the parser knows and the endpoint does not take
END = b"\r\n\r\n"  # of a head, and of a body in chunks
SLICE = 16 * 1024  # bytes that are parsed before it is looked whether that was too much
_FRAMING = (b"content-length", b"transfer-encoding")


class ReadingProtocol(HttpToolsProtocol):
    endpoint: MetadataApp

    _who = ""  # whose connection it is, once it is counted
    _malformed = False  # what was sent is not HTTP, which will be said when its turn comes
    _deaf = False  # nothing more is read
    _passing_over = False  # the head that is being parsed has been seen already
    _in_message = False  # its first byte has come, its last has not
    _held = b""  # the beginning of a request line: an odd verb is known by the whole of it
    _tail = b""  # the last bytes of a message so far: its end may be cut in two
    _body_left = 0  # bytes of a body whose length was told
    _body_size = 0  # bytes of a body so far
    _beside = 0  # bytes of a head so far, or of what is sent around a body
    _head_begun = False  # some of a head has come, but not all
    _waiting_since = 0.0  # when a head was first owed, or its first byte came; or a body

    def data_received(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._deaf and not self.transport.is_closing():
            if self._in_message:
                at = self._go_on(data, at)
            else:
                self._begin_head()
                data, at = (self._held + data[at:]).lstrip(b"\r\n"), 0
                if data:
                    data, at = self._begin(data)

    def _begin(self, data: bytes) -> tuple[bytes, int]:
        """A message begins here. Returns the data, and up to where it was read."""
        self._held = self._tail = b""
        self._beside = 0
        newline = data.find(b"\r\n")
        if newline < 0 and _PART_OF_A_LINE.fullmatch(data):
            self._held, self._beside = data, len(data)
            self._check()
            return b"", 0
        if newline >= 0 and not data[:newline].endswith(_PROTOCOLS):
            self.send_400_response("")
            return b"", 0
        at = self._go_on(data, 0, fresh=True)
        if at >= 0:
            return data, at
        verb = _ODD_VERB.match(data)
        if verb is None:
            self.send_400_response("")
            return b"", 0
        self._new_parser()
        self._tail, self._beside = b"", 0
        data = _STAND_IN + data[verb.end() :]
        return data, self._go_on(data, 0)

    def _go_on(self, data: bytes, at: int, fresh: bool = False) -> int:
        """Up to where a message may end. Returns where that is, or -1 for a verb that is odd."""
        seam = (self._tail + data[at : at + len(END)]).find(END)  # the end may be cut in two
        if self._body_left:
            end = at + self._body_left
        elif seam >= 0:
            end = at + seam + len(END) - len(self._tail)
        else:
            found = data.find(END, at)
            end = found + len(END) if found >= 0 else len(data)
        end = min(end, len(data), at + SLICE)
        self._beside += end - at
        if self._head_begun and not self._check():
            return end
        self._tail = (self._tail + data[max(at, end - len(END)) : end])[1 - len(END) :]
        try:
            self.parser.feed_data(data[at:end])
        except httptools.HttpParserUpgrade:
            self._pass_over()
        except httptools.HttpParserInvalidMethodError:
            if fresh:
                return -1
            self.send_400_response("")
        except httptools.HttpParserError:
            self.send_400_response("")
        if self._in_message and not self._deaf:  # chunks and trailers have no end either
            self._check()
        return end

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
        self._head_begun, self._beside, self._body_size = False, 0, 0
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

    def on_body(self, body: bytes) -> None:
        self._beside -= len(body)
        self._body_left = max(0, self._body_left - len(body))
        self._body_size += len(body)
        super().on_body(body)
        if self._body_size > self.endpoint.limits.max_body:
            self._deaf = True  # the application says so, if it has not answered yet
            if not self._in_flight():
                self._too_much("max_body")
                self.transport.close()

    def on_message_complete(self) -> None:
        # At an offer to upgrade the parser ends the message before its body.
        if not self.parser.should_upgrade():
            self._in_message = False
            super().on_message_complete()

    # What cannot be read.

    def send_400_response(self, msg: str) -> None:
        del msg
        self._malformed = self._deaf = True
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
