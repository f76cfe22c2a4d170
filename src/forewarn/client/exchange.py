"""One exchange on a connection, as bytes: no sockets here, so that the blocking and the
asynchronous client do the same. HTTP itself is h11's.

No redirect is followed, nothing is decoded, and nothing is read beyond `MAX_ANSWER`.
"""

from __future__ import annotations

import h11

from forewarn import __version__
from forewarn.client.steps import Request, Response

MAX_HEAD = 64 * 1024  # bytes of an answer's head
MAX_ANSWER = 4 * 1024 * 1024  # bytes of an answer's body
READ_AT_ONCE = 64 * 1024  # bytes

USER_AGENT = f"forewarn/{__version__}"


def headers_of(request: Request) -> list[tuple[str, str]]:
    """Return the headers of a request."""
    agent = f"{USER_AGENT} ({request.purpose})" if request.purpose else USER_AGENT
    headers = [
        ("Host", request.location.authority),
        ("Metadata", "true"),
        ("User-Agent", agent),
        ("Accept", "application/json"),
    ]
    if request.close:
        headers.append(("Connection", "close"))
    if request.etag:
        headers.append(("If-None-Match", request.etag))
    if request.body is not None:
        headers.append(("Content-Type", "application/json"))
        headers.append(("Content-Length", str(len(request.body))))
    return headers


class Exchange:
    """A request and its answer. `request` is sent, what is received is passed to `feed`, which
    returns whether that is the end of the answer."""

    def __init__(self, request: Request, connection: h11.Connection | None = None) -> None:
        self._connection = connection or h11.Connection(h11.CLIENT, MAX_HEAD)
        self._response: h11.Response | None = None
        self._body = bytearray()
        self.failure: str = ""
        self._received = 0  # bytes
        headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers_of(request)
        ]
        head = h11.Request(method=request.method, target=request.target, headers=headers)
        pieces = [self._connection.send(head)]
        if request.body:
            pieces.append(self._connection.send(h11.Data(data=request.body)))
        pieces.append(self._connection.send(h11.EndOfMessage()))
        self.request: bytes = b"".join(piece for piece in pieces if piece)

    @property
    def begun(self) -> bool:
        """Whether any byte was received."""
        return self._received > 0

    def feed(self, data: bytes) -> bool:
        """Take received bytes; none at all are the end of the connection. Returns True if nothing
        more is to be read: the answer is complete, or will not be."""
        self._received += len(data)
        try:
            self._connection.receive_data(data)
            while (event := self._connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    self._response = event
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > MAX_ANSWER:
                        self.failure = "too-long"
                        return True
                elif isinstance(event, h11.EndOfMessage):
                    return True
                elif isinstance(event, h11.ConnectionClosed):
                    self.failure = "reset"
                    return True
        except h11.RemoteProtocolError:
            self.failure = self._broken() if not data else "not-http"
            return True
        if self._received > MAX_HEAD + 2 * MAX_ANSWER:  # endless interim responses, say
            self.failure = "too-long"
        return bool(self.failure)

    def fail(self, *, late: bool) -> None:
        """Note that nothing more will come: the time is up, or the connection is gone."""
        if late:
            self.failure = "stalled" if self.begun else "late"
        else:
            self.failure = self._broken()

    def _broken(self) -> str:
        return "cut" if self.begun else "reset"

    def response(self, sent_at: float, received_at: float, source: str) -> Response:
        """Return what was received, also of an answer that is not complete."""
        response = self._response
        items = response.headers.raw_items() if response else []
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in items)
        failure = self.failure or ("" if response else "reset")
        return Response(
            status=response.status_code if response and not failure else None,
            headers=headers,
            body=bytes(self._body[:MAX_ANSWER]),
            failure=failure,
            sent_at=sent_at,
            received_at=received_at,
            source=source,
        )

    def reusable_connection(self) -> h11.Connection | None:
        """Return the connection for another exchange; None if this was the last on it. Bytes beyond
        the answer would be taken for the next one."""
        states = self._connection.our_state, self._connection.their_state
        if self.failure or states != (h11.DONE, h11.DONE) or self._connection.trailing_data[0]:
            return None
        self._connection.start_next_cycle()
        return self._connection
