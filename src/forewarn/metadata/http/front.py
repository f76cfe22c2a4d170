"""Front: the first to meet a caller, and the only one that an ordinary poller ever meets.

It accepts connections itself, reads what has come, and answers if that is exactly one whole poll
whose answer is at hand: before there is a transport, a task or a parser for the connection. All
its connections hang on one epoll, which the loop watches as if it were one file. The first chunk
that is anything else is handed, with its connection, to the long way, for good.

So Front never has half a request or half an answer: between two chunks a connection owes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from os import read, write

from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.limits import OPEN_FILES, Admission, Limits, share_of
from forewarn.metadata.http.known_polls import ALLOWED, MAX_PLAN, known, learn
from forewarn.metadata.http.protocol import (
    DISCARD_BYTES,
    DISCARD_SECONDS,
    LINGER,
    NO_ROOM,
    MetadataProtocol,
)
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

CHUNK = MAX_PLAN + 1  # bytes that are read at a time: more cannot be a poll that has a plan
SMALL = 448  # bytes that almost every poll fits into, and that are had without malloc
MAX_LAST = 2_048  # connections that are still accepted when the service stops
BATCH = 64  # connections that are looked at before the loop gets its turn
DEFER_ACCEPT = 1  # seconds for which a connection that says nothing stays with the kernel
DISCARD_SIZE = 64 * 1024  # bytes that are read at a time from a connection whose input is discarded
HAND_OVER_COST = 100  # of handing over one connection, in units of the fair queue
POSSIBLE = hasattr(select, "epoll")
log = logger("forewarn")
# Told once of what is new, and read to the end: what is left over is longer than a chunk, so
# that the connection is handed over; or it is the caller's farewell, which is told of as well.
_NEWS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET if POSSIBLE else 0
_SPENT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def possible(limits: Limits) -> bool:
    """Not on every system; and not if there are polls with a plan that are too long."""
    return POSSIBLE and limits.max_head >= MAX_PLAN and limits.max_head_lines >= len(ALLOWED)


class _Connection:
    __slots__ = ("address", "fd", "since", "sock", "source", "who")

    def __init__(self, sock: socket.socket, source: str, since: float) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.source = source
        self.address = ""  # which tells who asks: the source, or what was asked
        self.who = ""  # whose it is, once it is counted
        self.since = since  # when something was last heard of it


class _Refused:
    """A refused connection, whose input is discarded until the caller has read the refusal."""

    __slots__ = ("discarded", "since", "sock", "who")

    def __init__(self, sock: socket.socket, who: str, since: float) -> None:
        self.sock = sock
        self.who = who
        self.since = since
        self.discarded = 0


class Front:
    """One of the server's connections, as far as that knows; it stops with them."""

    def __init__(
        self,
        app: MetadataApp,
        listeners: Sequence[socket.socket],
        protocol: Callable[[], MetadataProtocol],
        server_connections: set[object],
        tasks: guard.Tasks,
        *,
        outlived: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._outlived = outlived  # does somebody else answer on these sockets after us?
        self._hang_up_at: float | None = None  # while connections are kept for a last word
        self._seats, self._crowd = app.seats, app.crowd
        self._protocol = protocol
        self._server_connections = server_connections
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._connections: dict[int, _Connection] = {}
        self._refused: dict[int, _Refused] = {}
        self._handing_over = 0
        self._draining = False
        self._failed = LogThrottle()
        self._exhausted = False  # no more files to be had: nobody is accepted for a while
        self._look()
        self.answered = 0
        self.handed_over = 0
        self._epoll = select.epoll()
        self._listeners = {listener.fileno(): listener for listener in listeners}
        for fd, listener in self._listeners.items():
            listener.setblocking(False)
            with contextlib.suppress(OSError):  # it only costs more without
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
            self._epoll.register(fd, select.EPOLLIN)
        self._loop.add_reader(self._epoll.fileno(), self._ready)
        server_connections.add(self)

    def shutdown(self) -> None:
        """Nobody new; whoever has asked already is answered, and told that the line closes."""
        if self._draining:
            return
        self._draining = True
        self._look()
        if self._outlived():
            self._linger()
            return
        for listener in self._listeners.values():
            self._accept(listener, MAX_LAST)
        self._hang_up()

    def _linger(self) -> None:
        """Whoever is in line waits for our successor. Whoever polls on a connection that is kept
        does so soon, and is told then that it closes: hanging up first could cross a poll."""
        for fd in self._listeners:
            self._epoll.unregister(fd)
        self._hang_up_at = self._at + LINGER
        self._leave_if_done()

    def _hang_up(self) -> None:
        self._hang_up_at = None
        self._loop.remove_reader(self._epoll.fileno())
        for listener in self._listeners.values():
            listener.close()
        for connection in list(self._connections.values()):
            try:
                self._take(connection, read(connection.fd, CHUNK))
            except Exception as error:  # most have said nothing
                self._give_up(connection, error)
        for fd in list(self._refused):
            self._forget(fd)
        self._epoll.close()
        self._leave_if_done()

    def sweep(self, now: float) -> Iterator[None]:
        """Hang up on whoever has been silent for too long. Yields after each of them."""
        if self._hang_up_at is not None and now >= self._hang_up_at:
            self._look()
            self._hang_up()
        if self._exhausted and not self._draining:
            self._exhausted = False
            for fd in self._listeners:
                self._epoll.modify(fd, select.EPOLLIN)
        for fd, refused in list(self._refused.items()):
            if now - refused.since > DISCARD_SECONDS:
                self._forget(fd)
        silent_since = now - self._app.limits.keep_alive
        for connection in [c for c in self._connections.values() if c.since < silent_since]:
            # Others had their turn since then: it may have spoken, gone, or been handed over.
            if connection.since < silent_since and self._has(connection):
                self._app.counts.hits["keep_alive"] += 1
                self._drop(connection)
                yield

    def _look(self) -> None:
        """What time it is, for all that is answered in one go."""
        self._app.refresh()
        self._at = guard.monotonic()

    def _ready(self) -> None:
        """The loop's one call for all who have something to say. A poll like the one before, on
        a connection that is kept, is answered right here; it is what there is most of."""
        self._look()
        connections, answer_poll, at = self._connections, self._app.answer_poll, self._at
        ready = self._epoll.poll(0, BATCH)
        left = BATCH
        while ready:
            left -= len(ready)
            for fd, events in ready:
                connection = connections.get(fd)
                if connection is None:
                    if fd in self._listeners:
                        left -= self._accept(self._listeners[fd], BATCH)
                    elif fd in self._refused:
                        self._discard(fd)
                    continue
                connection.since = at
                try:
                    data = read(fd, SMALL)
                    if len(data) == SMALL:
                        data += _more(fd)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                try:
                    plan = known(data)
                    if plan is None or plan.close or self._draining:
                        self._take(connection, data)
                    elif (answer := answer_poll(plan, connection.address)) is None:
                        self._hand_over(connection, first=data)
                    else:
                        self.answered += 1
                        try:
                            sent = write(fd, answer)
                        except BlockingIOError:
                            sent = 0
                        if sent != len(answer):
                            self._hand_over(connection, owed=answer[sent:])
                except Exception as error:
                    self._give_up(connection, error)
                if events != select.EPOLLIN and self._has(connection):
                    self._drop(connection)  # it had said, too, that it would say no more
            # Where there are several there will be more by now: that saves a turn of the loop.
            more = left > 0 and len(ready) > 1 and not self._draining
            ready = self._epoll.poll(0, left) if more else []

    def _give_up(self, connection: _Connection, error: Exception) -> None:
        """Whatever is wrong with one caller is no concern of the others in the batch: of what
        they said nobody is told a second time."""
        self._drop(connection)
        self._complain(error, connection.who)

    def _complain(self, error: Exception, who: str) -> None:
        if isinstance(error, OSError):  # that is: it has gone already
            return
        if times := self._failed.record():
            log.error("a poll could not be answered", who=who, times=times, exc_info=error)

    def _accept(self, listener: socket.socket, most: int) -> int:
        """Returns how many there were."""
        for n in range(most):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return n
            except OSError as error:
                if error.errno in _SPENT:
                    self._exhaust()
                    return n
                continue  # it has gone already
            connection = _Connection(sock, address[0], self._at)
            try:
                self._meet(connection)
            except Exception as error:
                self._give_up(connection, error)
        return most

    def _exhaust(self) -> None:
        """Callers wait with the kernel until the next sweep."""
        self._exhausted = True
        self._app.counts.hit(OPEN_FILES, "the service")
        for fd in self._listeners:
            self._epoll.modify(fd, 0)

    def _meet(self, connection: _Connection) -> None:
        sock = connection.sock
        asked = "" if self._seats.by_source else sock.getsockname()[0]
        connection.address = self._seats.address(connection.source, asked)
        if sock.gettimeout() is not None:  # somebody in this process has set one for all sockets
            sock.setblocking(False)
        try:
            data = sock.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if self._draining:
                sock.close()
            elif self._admit(connection):
                self._keep(connection)
            return
        except OSError:
            data = b""
        self._take(connection, data)

    def _take(self, connection: _Connection, data: bytes) -> None:
        """Answer what was said, or let somebody else; nothing means that the caller has gone."""
        if not data:
            self._drop(connection)
            return
        plan = known(data) or learn(data)
        # Whoever wants one answer and no more takes up no room.
        if not (plan and plan.close) and not self._admit(connection):
            return
        if plan is None or self._draining:
            answer = None
        else:
            answer = self._app.answer_poll(plan, connection.address)
        if plan is None or answer is None:
            if self._admit(connection):
                self._hand_over(connection, first=data)
            return
        self.answered += 1
        left = _sent(connection.sock, answer)
        if left is None or (plan.close and not left):
            self._drop(connection)
        elif left:
            if self._admit(connection, quietly=True):
                self._hand_over(connection, owed=left, last=plan.close)
        elif not self._has(connection):
            self._keep(connection)

    def _admit(self, connection: _Connection, quietly: bool = False) -> bool:
        """Count it among its machine's, if there is room; else say so and hang up."""
        if connection.who:
            return True
        who = self._seats.whose(connection.address, connection.source)
        room = self._crowd.room(who)
        if room is not Admission.ENOUGH:
            self._app.counts.hit(room.value, who)
            if quietly:
                connection.sock.close()
            else:
                self._refuse(connection, who, self._app.refusal(NO_ROOM[room]))
            return False
        connection.who = who
        self._crowd.enter(who)
        return True

    def _refuse(self, connection: _Connection, who: str, answer: bytes) -> None:
        """Send a refusal and close slowly: closing at once might reset the connection before the
        caller has read the answer."""
        sock = connection.sock
        _sent(sock, answer)
        if self._draining or not self._crowd.refuse(who):
            sock.close()
            return
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        sock.setblocking(False)
        self._refused[connection.fd] = _Refused(sock, who, self._at)
        self._epoll.register(connection.fd, select.EPOLLIN)

    def _discard(self, fd: int) -> None:
        refused = self._refused[fd]
        try:
            size = len(read(fd, DISCARD_SIZE))
        except BlockingIOError:
            return
        except OSError:
            size = 0
        refused.discarded += size
        if not size or refused.discarded > DISCARD_BYTES:
            self._forget(fd)

    def _forget(self, fd: int) -> None:
        refused = self._refused.pop(fd)
        refused.sock.close()
        self._crowd.forget(refused.who)

    def _has(self, connection: _Connection) -> bool:
        return self._connections.get(connection.fd) is connection

    def _keep(self, connection: _Connection) -> None:
        connection.sock.setblocking(False)
        self._connections[connection.fd] = connection
        self._epoll.register(connection.fd, _NEWS)

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.fd, None)
        connection.sock.close()  # which takes it off the epoll
        if connection.who:
            self._crowd.leave(connection.who)
        if self._draining:
            self._leave_if_done()

    def _hand_over(
        self, connection: _Connection, first: bytes = b"", owed: bytes = b"", last: bool = False
    ) -> None:
        """Hand the connection to the long way, with what was read or is still to be written. Many
        may come at once and each needs a transport, so this goes through the fair queue."""
        sock = connection.sock
        if self._connections.pop(connection.fd, None):
            self._epoll.unregister(connection.fd)
        sock.setblocking(False)
        self.handed_over += 1
        self._handing_over += 1
        protocol = self._protocol()
        protocol.adopt(connection.who, first, owed, last=last, closing=lambda: self._draining)

        def connect() -> int:
            self._tasks.start(self._connect(protocol, sock), "hand-over")
            return HAND_OVER_COST

        self._app.queue.add(share_of(connection.who), connect)

    async def _connect(self, protocol: MetadataProtocol, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, sock)
        except BaseException as error:
            who = protocol.who
            protocol.abandoned()
            sock.close()
            if not isinstance(error, Exception):
                raise
            self._complain(error, who)
        finally:
            self._handing_over -= 1
            self._leave_if_done()

    def _leave_if_done(self) -> None:
        """Once nobody is left whom the server would have to wait for."""
        if not self._draining or self._handing_over:
            return
        if self._hang_up_at is not None:
            if self._connections:
                return
            self._hang_up()
        self._server_connections.discard(self)


def _more(fd: int) -> bytes:
    try:
        return read(fd, CHUNK - SMALL)
    except BlockingIOError:
        return b""


def _sent(sock: socket.socket, data: bytes) -> bytes | None:
    """What of it could not be sent for now, None if the caller has gone."""
    try:
        return data[sock.send(data, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return data
    except OSError:
        return None
