"""An HTTP request parser that never reads ahead: it stops after each head and each message.

llhttp parses the head. The body, by its length or in chunks, is read here, because llhttp would
continue with the next request and call back for every chunk. Any request method is parsed, whether
or not llhttp knows it, and an offer to upgrade the connection is ignored. Does no I/O.
"""

from __future__ import annotations

import re
import urllib.parse

import httptools

from forewarn.metadata.endpoint.limits import Limits

SLICE = 16 * 1024  # bytes that one call consumes at most, so that others get their turn
END = b"\r\n\r\n"  # of a head

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_METHOD = re.compile(_TOKEN + rb"{1,64}(?= [!-~]+ HTTP/1\.[01]\r\n)")
_PART_OF_REQUEST_LINE = re.compile(_TOKEN + rb"{1,64}( [!-~]*( [!-~]*\r?)?)?")
_PROTOCOLS = (b" HTTP/1.1", b" HTTP/1.0")
_LLHTTP_METHODS = (b"GET", b"POST")  # given to llhttp as they are
_SUBSTITUTE_METHOD = (
    b"OPTIONS"  # given to llhttp in place of all others, not all of which it accepts
)
_MAX_LENGTH_DIGITS = 20  # decimal digits of a body's length: llhttp accepts any number of zeros
_MAX_SIZE_DIGITS = 16  # hexadecimal digits of a chunk's size
# What takes long to read in a target. The longest that guests have a use for has a few of each.
_MAX_PARAMETERS = 64
_MAX_ESCAPES = 256
# Possessive: there is one way to read an extension, and thousands of ways to try others take long.
_EXTENSION = rb";" + _TOKEN + rb"++(?:=(?:" + _TOKEN + rb'++|"[\t !#-~\x80-\xff]*+"))?+'
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,%d})(?:%b)*+" % (_MAX_SIZE_DIGITS, _EXTENSION))
_SMALL_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,3})\r\n")  # of a chunk smaller than SLICE
_PART_OF_CHUNK_LINE = re.compile(rb"[0-9A-Fa-f]{0,%d}(?:;[\t -~\x80-\xff]*)?\r?" % _MAX_SIZE_DIGITS)
_TRAILER = re.compile(_TOKEN + rb"+:[\t -~\x80-\xff]*")
_PART_OF_TRAILER = re.compile(rb"(?:" + _TOKEN + rb"+(?::[\t -~\x80-\xff]*)?)?\r?")
# They would change the framing of the message.
_NOT_IN_TRAILERS = (
    b"content-length",
    b"transfer-encoding",
)


class Malformed(Exception):
    """The request is not valid HTTP, or exceeds `limit` if that is given."""

    def __init__(self, limit: str = "") -> None:
        super().__init__(limit)
        self.limit = limit


class Request:
    """The head of a request."""

    __slots__ = (
        "expects_continue",
        "headers",
        "keep_alive",
        "method",
        "path",
        "query",
        "raw_path",
        "version",
    )

    def __init__(
        self,
        method: str,
        version: str,
        raw_path: bytes,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        keep_alive: bool,
    ) -> None:
        self.method = method
        self.version = version
        self.raw_path = raw_path  # as it was sent
        path = raw_path.decode("ascii")
        self.path = urllib.parse.unquote(path) if "%" in path else path
        self.query = query
        self.headers = headers  # names in lower case
        self.keep_alive = keep_alive
        self.expects_continue = version != "1.0" and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in headers
        )


class RequestParser:
    """Feed it with `consume`, and look at `in_head`, `in_body` and `request` after each call.

    A body is collected in `body` unless `discard_body` was called for it.
    """

    def __init__(self) -> None:
        self.in_head = False  # some of a head was consumed, but not all of it
        self.in_body = False  # a head was consumed whole, but not all of its body
        self.request: Request | None = None  # the last one whose head was consumed
        self.body = bytearray()
        self.body_size = 0  # bytes of the body so far, discarded or not
        self.chunks = 0  # of the body so far
        self._discard = False
        self._head = _Head()
        self._tail = b""  # the last bytes of the head so far: END may be split between two reads
        self._overhead = 0  # bytes of the head so far, or of chunk lines and trailers
        self._remaining = 0  # bytes of the body, or of the chunk, that are still to come
        self._chunked = False
        self._after_chunk = False  # the line end after a chunk's data is still to come
        self._in_trailers = False
        self._trailers = 0  # lines so far

    @property
    def length_left(self) -> int:
        """The number of bytes of the body, or of the current chunk, that are still to come."""
        return self._remaining if self.in_body else 0

    def discard_body(self) -> None:
        """Drop what there is of this body, and do not keep what follows."""
        self._discard = True
        self.body.clear()

    def consume(self, data: bytes, limits: Limits) -> int:
        """Parse the beginning of `data`, at most to the end of a head or of a message.

        Returns how many bytes were consumed; 0 if more are needed to go on. Raises Malformed.
        """
        if self.in_body:
            return self._chunked_body(data, limits) if self._chunked else self._sized_body(data)
        return self._parse_head(data, limits)

    # The head.

    def _parse_head(self, data: bytes, limits: Limits) -> int:
        at = 0
        if not self._head.started:
            at = len(data) - len(data.lstrip(b"\r\n"))
            self.in_head = True
            if at == len(data):
                return at
            consumed = self._begin_head(data[at:] if at else data, limits)
            if consumed < 0:
                return at
            at += consumed
        # END may be split between two reads.
        split = (self._tail + data[at : at + len(END)]).find(END)
        if split >= 0:
            end = at + split + len(END) - len(self._tail)
        else:
            position = data.find(END, at)
            end = position + len(END) if position >= 0 else len(data)
        end = min(end, at + SLICE)
        self._overhead += end - at
        if self._overhead > limits.max_head:
            raise Malformed("max_head")
        self._tail = (self._tail + data[max(at, end - len(END)) : end])[1 - len(END) :]
        self._head.feed(data[at:end], limits)
        if self._head.complete:
            self._begin_body()
        return end

    def _begin_head(self, data: bytes, limits: Limits) -> int:
        """Begin a head. Returns how many bytes were consumed, or -1 if more are needed."""
        newline = data.find(b"\r\n")
        if newline < 0 and _PART_OF_REQUEST_LINE.fullmatch(data):
            if len(data) > limits.max_head:
                raise Malformed("max_head")
            return -1
        if newline >= 0 and not data[:newline].endswith(_PROTOCOLS):
            raise Malformed
        self._tail, self._overhead = b"", 0
        self._head.begin()
        method = _METHOD.match(data)
        if method is None or method[0] in _LLHTTP_METHODS:
            return 0
        self._head.begin(method[0].decode())
        self._overhead = method.end()
        return method.end()

    def _begin_body(self) -> None:
        head, self._head = self._head, _Head()
        self.request = head.request()
        self.in_head = False
        self.body, self.body_size, self.chunks = bytearray(), 0, 0
        self._overhead, self._discard = 0, False
        self._after_chunk = self._in_trailers = False
        self._trailers = 0
        codings = [value for name, value in head.headers if name == b"transfer-encoding"]
        self._chunked = bool(codings)
        if codings and codings[-1].rpartition(b",")[2].strip().lower() != b"chunked":
            raise Malformed  # llhttp does not check this if an upgrade is offered
        lengths = [value for name, value in head.headers if name == b"content-length"]
        if lengths and len(lengths[0]) > _MAX_LENGTH_DIGITS:
            raise Malformed
        self._remaining = int(lengths[0]) if lengths else 0
        self.in_body = self._chunked or self._remaining > 0

    # The body.

    def _sized_body(self, data: bytes) -> int:
        size = self._take_body(data, 0)
        self.in_body = self._remaining > 0
        return size

    def _take_body(self, data: bytes, at: int) -> int:
        """Take data of the body or the chunk, from `at` on. Returns how many bytes were taken."""
        size = min(self._remaining, len(data) - at, SLICE)
        if not self._discard:
            self.body += data[at : at + size]
        self._remaining -= size
        self.body_size += size
        return size

    def _chunked_body(self, data: bytes, limits: Limits) -> int:
        at = 0
        while self.in_body and at < min(len(data), SLICE) and self.body_size <= limits.max_body:
            if self._remaining:
                at += self._take_body(data, at)
                self._after_chunk = not self._remaining
                continue
            if not self._after_chunk and (end := self._whole_chunk(data, at, limits)):
                at = end
                continue
            newline = data.find(b"\r\n", at)
            line = data[at:newline] if newline >= 0 else data[at:]
            self._check_line(line, limits, whole=newline >= 0)
            if newline < 0:
                break
            self._overhead += len(line) + 2
            at = newline + 2
            self._process_line(line, limits)
        return at

    def _whole_chunk(self, data: bytes, at: int, limits: Limits) -> int:
        """Take a small chunk that is complete. Returns its end, or 0 if there is none."""
        match = None if self._in_trailers else _SMALL_CHUNK_LINE.match(data, at)
        if match is None:
            return 0
        begin, size = match.end(), int(match[1], 16)
        end = begin + size + 2
        if not size or not data.startswith(b"\r\n", begin + size):
            return 0
        self._overhead += end - at - size
        self._count_chunk(limits)
        if self._overhead > limits.max_head:
            raise Malformed("max_head")
        self._remaining = size
        self._take_body(data, begin)
        return end

    def _count_chunk(self, limits: Limits) -> None:
        self.chunks += 1
        if self.chunks > limits.max_chunks:
            raise Malformed("max_chunks")

    def _check_line(self, line: bytes, limits: Limits, whole: bool) -> None:
        """Refuse a line that is too long, or not valid, or not the beginning of a valid one."""
        if self._overhead + len(line) > limits.max_head:
            raise Malformed("max_head")
        if self._after_chunk:
            valid = not line if whole else line in (b"", b"\r")
        elif self._in_trailers:
            pattern = _TRAILER if whole else _PART_OF_TRAILER
            valid = not line or pattern.fullmatch(line) is not None
        else:
            pattern = _CHUNK_LINE if whole else _PART_OF_CHUNK_LINE
            valid = pattern.fullmatch(line) is not None
        if not valid:
            raise Malformed

    def _process_line(self, line: bytes, limits: Limits) -> None:
        """Process a complete and checked line: a chunk size, a chunk's end, or a trailer."""
        if self._after_chunk:
            self._after_chunk = False
        elif self._in_trailers:
            if line.partition(b":")[0].lower() in _NOT_IN_TRAILERS:
                raise Malformed
            self.in_body = bool(line)
            self._trailers += 1
            if self._trailers > limits.max_head_lines:
                raise Malformed("max_head_lines")
        else:
            self._remaining = int(line.partition(b";")[0], 16)
            self._in_trailers = not self._remaining
            if self._remaining:
                self._count_chunk(limits)


class _Head:
    """Collects what llhttp reports about one head."""

    def __init__(self) -> None:
        self.started = False
        self.complete = False
        self.headers: list[tuple[bytes, bytes]] = []
        self._url = b""
        self._method = ""
        self._version = ""
        self._keep_alive = False
        self._exceeded = ""  # the limit that was exceeded
        self._limits = Limits()

    def begin(self, method: str = "") -> None:
        """Start a parser. `method` is one that is not given to llhttp, if there is one."""
        self.started = True
        self._method = method
        self._parser = httptools.HttpRequestParser(self)
        if method:
            self._parser.feed_data(_SUBSTITUTE_METHOD)

    def feed(self, data: bytes, limits: Limits) -> None:
        self._limits = limits
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # an upgrade, or CONNECT: the head is complete
            pass
        except httptools.HttpParserError:
            raise Malformed(self._exceeded) from None
        finally:
            if self.complete or self._exceeded:
                del self._parser  # breaks a reference cycle

    def request(self) -> Request:
        if self._url.count(b"&") >= _MAX_PARAMETERS or self._url.count(b"%") > _MAX_ESCAPES:
            raise Malformed
        try:
            url = httptools.parse_url(self._url)
            return Request(
                self._method,
                self._version,
                url.path,
                url.query or b"",
                self.headers,
                self._keep_alive,
            )
        except (httptools.HttpParserError, UnicodeDecodeError, AttributeError):
            raise Malformed from None

    # Called by llhttp.

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))
        if len(self.headers) > self._limits.max_head_lines:
            self._exceeded = "max_head_lines"
            raise ValueError("too many header lines")

    def on_headers_complete(self) -> None:
        self.complete = True
        self._method = self._method or self._parser.get_method().decode("ascii")
        self._version = self._parser.get_http_version()
        self._keep_alive = self._version != "1.0" and self._parser.should_keep_alive()
