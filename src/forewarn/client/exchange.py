"""One exchange on a connection, as bytes: no sockets here, so that blocking and asynchronous
clients speak the same. HTTP itself is h11's.

No redirect is followed, nothing is decoded, and nothing is read beyond `MAX_ANSWER`.
"""

from __future__ import annotations

import h11

from forewarn import __version__
from forewarn.client.steps import Answer, Ask

MAX_HEAD = 64 * 1024  # bytes of an answer's head
MAX_ANSWER = 4 * 1024 * 1024  # bytes of an answer's body
READ_AT_ONCE = 64 * 1024  # bytes

AGENT = f"forewarn/{__version__}"


def headers_of(ask: Ask) -> list[tuple[str, str]]:
    headers = [
        ("Host", ask.place.authority),
        ("Metadata", "true"),
        ("User-Agent", f"{AGENT} ({ask.purpose})" if ask.purpose else AGENT),
        ("Accept", "application/json"),
    ]
    if ask.last:
        headers.append(("Connection", "close"))
    if ask.tag:
        headers.append(("If-None-Match", ask.tag))
    if ask.body is not None:
        headers.append(("Content-Type", "application/json"))
        headers.append(("Content-Length", str(len(ask.body))))
    return headers


class Exchange:
    """`request` goes out, what comes in is fed; `feed` says whether that is all of the answer."""

    def __init__(self, ask: Ask, connection: h11.Connection | None = None) -> None:
        self._connection = connection or h11.Connection(h11.CLIENT, MAX_HEAD)
        self._response: h11.Response | None = None
        self._body = bytearray()
        self.trouble = ""
        self._came = 0  # bytes, of whatever kind
        self.begun = False  # has any byte come?
        headers = [(n.encode("latin-1"), value.encode("latin-1")) for n, value in headers_of(ask)]
        request = h11.Request(method=ask.method, target=ask.target, headers=headers)
        pieces = [self._connection.send(request)]
        if ask.body:
            pieces.append(self._connection.send(h11.Data(data=ask.body)))
        pieces.append(self._connection.send(h11.EndOfMessage()))
        self.request = b"".join(piece for piece in pieces if piece)

    def feed(self, data: bytes) -> bool:
        """What has come; nothing at all is the end of the connection. True if no more is to be
        read: the answer is whole, or will not be."""
        self.begun |= bool(data)
        self._came += len(data)
        try:
            self._connection.receive_data(data)
            while (event := self._connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    self._response = event
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > MAX_ANSWER:
                        self.trouble = "too-long"
                        return True
                elif isinstance(event, h11.EndOfMessage):
                    return True
                elif isinstance(event, h11.ConnectionClosed):
                    self.trouble = "reset"
                    return True
        except h11.RemoteProtocolError:
            self.trouble = self._cut() if not data else "not-http"
            return True
        if self._came > MAX_HEAD + 2 * MAX_ANSWER:  # words without end that are no body either
            self.trouble = "too-long"
        return bool(self.trouble)

    def failed(self, *, late: bool) -> None:
        """No more will come: the time is up, or the connection is gone."""
        if late:
            self.trouble = "stalled" if self.begun else "late"
        else:
            self.trouble = self._cut()

    def _cut(self) -> str:
        return "cut" if self.begun else "reset"

    def answer(self, asked: float, answered: float, source: str) -> Answer:
        """What came; of an answer that did not come whole, as much as did."""
        response = self._response
        found = response.headers.raw_items() if response else []
        headers = tuple((n.decode("latin-1"), value.decode("latin-1")) for n, value in found)
        trouble = self.trouble or ("" if response else "reset")
        return Answer(
            status=response.status_code if response and not trouble else None,
            headers=headers,
            body=bytes(self._body[:MAX_ANSWER]),
            trouble=trouble,
            asked=asked,
            answered=answered,
            source=source,
        )

    def next_on_it(self) -> h11.Connection | None:
        """The connection for another exchange; None if this was the last on it. What came beyond
        the answer would be taken for the next one."""
        states = self._connection.our_state, self._connection.their_state
        if self.trouble or states != (h11.DONE, h11.DONE) or self._connection.trailing_data[0]:
            return None
        self._connection.start_next_cycle()
        return self._connection
