"""Front: the fast path for polls, which is all that an ordinary client uses.

It accepts connections itself, reads what has arrived, and answers if that is exactly one whole poll
whose answer is available: without a transport, a task or a parser for the connection. All its
connections are in one epoll set, which the event loop watches as if it were one file. The first
chunk that is anything else is handed over to the slow path, for good, with its connection.

So Front never holds half a request or half an answer: between two chunks nothing is pending.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from os import read, write

from forewarn.metadata.endpoint.app import LEASE_CHECK, KnownPoll, MetadataApp
from forewarn.metadata.endpoint.limits import (
    OPEN_FILES,
    ConnectionAdmission,
    Limits,
    RateLimits,
    share_of,
)
from forewarn.metadata.http.known_polls import ALLOWED, MAX_POLL_BYTES, known, learn
from forewarn.metadata.http.protocol import (
    DISCARD_BYTES,
    DISCARD_SECONDS,
    LINGER,
    REFUSALS,
    MetadataProtocol,
)
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

CHUNK = MAX_POLL_BYTES + 1  # bytes that are read at a time: more cannot be a known poll
SMALL_READ = 448  # bytes that almost every poll fits into, and that need no malloc
MAX_FINAL_ACCEPTS = 2_048  # connections that are still accepted when the service stops
BATCH = 64  # connections that are served in one iteration of the event loop
LOOKED_AT = 32 * BATCH  # connections of which some are put off in one iteration of the event loop
DEFER_ACCEPT = 1  # seconds for which the kernel keeps a connection that sends nothing
DISCARD_SIZE = 64 * 1024  # bytes that are read at a time from a connection whose input is discarded
HAND_OVER_COST = 100  # microseconds that it takes to make the transport of a connection
# New polls of a machine, which are parsed and remembered. A machine that polls with other bytes
# each time takes the slow path, where it is charged for that.
LEARNED_PER_SECOND = 10
HAS_EPOLL = hasattr(select, "epoll")
log = logger("forewarn")
# Edge-triggered: each event is reported once, and the input is read to the end. What is left over
# is longer than a chunk, so that the connection is handed over, or the end of the input, which is
# reported as well.
_EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET if HAS_EPOLL else 0
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def possible(limits: Limits) -> bool:
    """Return whether Front can be used: on this system, and with limits that admit known polls."""
    return HAS_EPOLL and limits.max_head >= MAX_POLL_BYTES and limits.max_head_lines >= len(ALLOWED)


class _Connection:
    __slots__ = ("address", "caller", "events", "fd", "since", "sock", "source")

    def __init__(self, sock: socket.socket, source: str, since: float) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.source = source
        self.address = ""  # that identifies the caller
        self.caller = ""  # the caller, once the connection is counted
        self.since = since  # when something was last read
        self.events = 0  # while it is put off: what was reported


class _Refused:
    """A refused connection, whose input is discarded until the caller has read the refusal."""

    __slots__ = ("caller", "discarded", "since", "sock")

    def __init__(self, sock: socket.socket, caller: str, since: float) -> None:
        self.sock = sock
        self.caller = caller
        self.since = since
        self.discarded = 0


class Front:
    """Registered with the server as one of its connections, so that it is shut down with them."""

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
        self._outlived = outlived  # does another process take over these sockets?
        self._close_all_at: float | None = None  # while connections are kept for one more request
        self._callers, self._connection_limits = app.callers, app.connections
        self._protocol = protocol
        self._server_connections = server_connections
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._connections: dict[int, _Connection] = {}
        self._refused: dict[int, _Refused] = {}
        self._handing_over = 0
        self._put_off_of: Counter[str] = Counter()  # connections that are put off, by share
        self._learned = RateLimits(LEARNED_PER_SECOND)
        self._draining = False
        self._failed = LogThrottle()
        self._exhausted = False  # out of file descriptors: accept nothing until the next sweep
        self._refresh()
        self.answered = 0
        self.handed_over = 0
        self._epoll = select.epoll()
        self._listeners: dict[int, socket.socket] = {}
        for listener in listeners:
            self.listen(listener)
        self._begin_reading()
        server_connections.add(self)

    def listen(self, listener: socket.socket) -> None:
        """Accept the connections of one more socket."""
        if self._draining:
            listener.close()
            return
        listener.setblocking(False)
        with contextlib.suppress(OSError):  # only optimizations
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        self._listeners[listener.fileno()] = listener
        self._epoll.register(listener.fileno(), 0 if self._exhausted else select.EPOLLIN)

    def stop_listening(self, listener: socket.socket) -> None:
        """Close a socket. Connections that it has accepted stay."""
        if self._listeners.pop(listener.fileno(), None) is not None:
            listener.close()  # which takes it off the epoll

    def shutdown(self) -> None:
        """Accept no new connections, answer the requests that were sent, and close."""
        if self._draining:
            return
        self._draining = True
        self._refresh()
        if self._outlived():
            self._linger()
            return
        for listener in self._listeners.values():
            self._accept(listener, MAX_FINAL_ACCEPTS)
        self._close_all()

    def _linger(self) -> None:
        """Leave new connections to our successor. On a connection that is kept the next poll comes
        soon, and its answer closes the connection: closing it first could cross a poll."""
        for fd in self._listeners:
            self._epoll.unregister(fd)
        self._close_all_at = self._at + LINGER
        self._deregister_if_done()

    def _close_all(self) -> None:
        self._close_all_at = None
        self._loop.remove_reader(self._epoll.fileno())
        for listener in self._listeners.values():
            listener.close()
        for connection in list(self._connections.values()):
            try:
                self._handle(connection, read(connection.fd, CHUNK))
            except Exception as error:  # most have sent nothing
                self._close_after_error(connection, error)
        for fd in list(self._refused):
            self._close_refused(fd)
        self._epoll.close()
        self._deregister_if_done()

    def sweep(self, now: float) -> Iterator[None]:
        """Close connections that have been idle for too long. Yields after each of them."""
        if self._close_all_at is not None and now >= self._close_all_at:
            self._refresh()
            self._close_all()
        if self._exhausted and not self._draining:
            self._exhausted = False
            for fd in self._listeners:
                self._epoll.modify(fd, select.EPOLLIN)
        for fd, refused in list(self._refused.items()):
            if now - refused.since > DISCARD_SECONDS:
                self._close_refused(fd)
        silent_since = now - self._app.limits.keep_alive
        for connection in [c for c in self._connections.values() if c.since < silent_since]:
            # Since the last yield it may have been used, closed or handed over.
            if connection.since < silent_since and self._owns(connection):
                self._app.counts.hits["keep_alive"] += 1
                self._drop(connection)
                yield

    def _refresh(self) -> None:
        """Read the time, for everything that is answered in this batch."""
        self._app.refresh()
        self._at = guard.monotonic()

    def _begin_reading(self) -> None:
        ready = self._ready if self._app.held is None else self._ready_if_held
        self._loop.add_reader(self._epoll.fileno(), ready)

    def _ready_if_held(self) -> None:
        """Leave everything in the kernel while this process must not answer."""
        assert self._app.held is not None
        if self._app.held():
            self._ready()
        else:
            self._loop.remove_reader(self._epoll.fileno())
            self._loop.call_later(LEASE_CHECK, self._read_if_held)

    def _read_if_held(self) -> None:
        assert self._app.held is not None
        if self._epoll.closed:
            return
        if self._app.held():
            self._begin_reading()
        else:
            self._loop.call_later(LEASE_CHECK, self._read_if_held)

    def _ready(self) -> None:
        """Serve every connection that is ready, when the event loop calls. A known poll on one
        that is kept, which is the most frequent case, is answered right here."""
        self._refresh()
        connections, answer_poll, at = self._connections, self._app.answer_poll, self._at
        ready = self._epoll.poll(0, BATCH)
        crowded = len(ready) == BATCH or bool(self._put_off_of)
        if crowded:
            ready = self._one_of_each(ready)
        remaining = BATCH
        while ready:
            remaining -= len(ready)
            for fd, events in ready:
                connection = connections.get(fd)
                if connection is None:
                    if fd in self._listeners:
                        remaining -= self._accept(self._listeners[fd], BATCH)
                    elif fd in self._refused:
                        self._discard(fd)
                    continue
                connection.since = at
                try:
                    data = read(fd, SMALL_READ)
                    if len(data) == SMALL_READ:
                        data += _more(fd)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                try:
                    known_poll = known(data)
                    if known_poll is None or known_poll.close or self._draining:
                        self._handle(connection, data)
                    elif (answer := answer_poll(known_poll, connection.address)) is None:
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
                    self._close_after_error(connection, error)
                if events != select.EPOLLIN and self._owns(connection):
                    self._drop(connection)  # the caller will send no more
            # If there were several, there are probably more by now: this saves an iteration.
            more = remaining > 0 and len(ready) > 1 and not self._draining and not crowded
            ready = self._epoll.poll(0, remaining) if more else []

    def _one_of_each(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return one connection of each machine, and put the others off, so that no machine waits
        for all that another one has ready."""
        first: dict[int, int] = {}
        shares = set(self._put_off_of)
        for _ in range(0, LOOKED_AT, BATCH):
            for fd, events in ready:
                connection = self._connections.get(fd)
                if connection is not None:
                    share = share_of(connection.caller)
                    if share in shares:
                        self._put_off(connection, share, events)
                        continue
                    shares.add(share)
                first[fd] = events
            if len(ready) < BATCH or len(first) >= BATCH:
                break
            ready = self._epoll.poll(0, BATCH)
        return list(first.items())

    def _put_off(self, connection: _Connection, share: str, events: int) -> None:
        """Serve a connection when it is the turn of its machine."""
        if not connection.events:
            self._put_off_of[share] += 1
            self._app.queue.add(share, lambda: self._serve(connection, share))
        connection.events |= events
        connection.since = self._at

    def _serve(self, connection: _Connection, share: str) -> int:
        """Serve a connection that was put off. Charges nothing but the time that it takes."""
        self._put_off_of[share] -= 1
        if not self._put_off_of[share]:
            del self._put_off_of[share]
        events, connection.events = connection.events, 0
        if not self._owns(connection):
            return 0
        self._refresh()
        try:
            self._handle(connection, read(connection.fd, CHUNK))
        except BlockingIOError:
            pass
        except Exception as error:
            self._close_after_error(connection, error)
        if events != select.EPOLLIN and self._owns(connection):
            self._drop(connection)  # the caller will send no more
        return 0

    def _close_after_error(self, connection: _Connection, error: Exception) -> None:
        """Close the connection after a failure, so that the others in the batch are still served:
        their events are not reported a second time."""
        self._drop(connection)
        self._log_failure(error, connection.caller)

    def _log_failure(self, error: Exception, caller: str) -> None:
        if isinstance(error, OSError):  # the caller has gone already
            return
        if times := self._failed.record():
            log.error("a poll could not be answered", caller=caller, times=times, exc_info=error)

    def _accept(self, listener: socket.socket, most: int) -> int:
        """Accept at most `most` connections. Returns how many there were."""
        for n in range(most):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return n
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._exhaust()
                    return n
                continue  # the caller has gone already
            connection = _Connection(sock, address[0], self._at)
            try:
                self._first_read(connection)
            except Exception as error:
                self._close_after_error(connection, error)
        return most

    def _exhaust(self) -> None:
        """Leave callers waiting in the kernel until the next sweep."""
        self._exhausted = True
        self._app.counts.hit(OPEN_FILES, "the service")
        for fd in self._listeners:
            self._epoll.modify(fd, 0)

    def _first_read(self, connection: _Connection) -> None:
        sock = connection.sock
        target = "" if self._callers.by_source else self._callers.target(sock.getsockname())
        connection.address = self._callers.address(connection.source, target)
        if sock.gettimeout() is not None:  # a default timeout was set in this process
            sock.setblocking(False)
        try:
            data = sock.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if self._draining:
                sock.close()
            elif self._admit(connection):
                self._watch(connection)
            return
        except OSError:
            data = b""
        self._handle(connection, data)

    def _handle(self, connection: _Connection, data: bytes) -> None:
        """Answer what was read, or hand it over. No data means that the caller has disconnected."""
        if not data:
            self._drop(connection)
            return
        known_poll = known(data) or self._learn(connection, data)
        # A poll that closes its connection need not be admitted.
        if not (known_poll and known_poll.close) and not self._admit(connection):
            return
        if known_poll is None or self._draining:
            answer = None
        else:
            answer = self._app.answer_poll(known_poll, connection.address)
        if known_poll is None or answer is None:
            if self._admit(connection):
                self._hand_over(connection, first=data)
            return
        self.answered += 1
        unsent = _sent(connection.sock, answer)
        if unsent is None or (known_poll.close and not unsent):
            self._drop(connection)
        elif unsent:
            if self._admit(connection, quietly=True):
                self._hand_over(connection, owed=unsent, last=known_poll.close)
        elif not self._owns(connection):
            self._watch(connection)

    def _learn(self, connection: _Connection, data: bytes) -> KnownPoll | None:
        caller = connection.caller or self._callers.owner(connection.address, connection.source)
        return learn(data) if self._learned.admit(share_of(caller)) else None

    def _admit(self, connection: _Connection, quietly: bool = False) -> bool:
        """Count the connection, if its caller may have one more; else refuse and close it."""
        if connection.caller:
            return True
        caller = self._callers.owner(connection.address, connection.source)
        admission = self._connection_limits.admission(caller)
        if admission is not ConnectionAdmission.ADMITTED:
            self._app.counts.hit(admission.value, caller)
            if quietly:
                connection.sock.close()
            else:
                self._refuse(connection, caller, self._app.refusal(REFUSALS[admission]))
            return False
        connection.caller = caller
        self._connection_limits.enter(caller)
        return True

    def _refuse(self, connection: _Connection, caller: str, answer: bytes) -> None:
        """Send a refusal and close slowly: closing at once might reset the connection before the
        caller has read the answer."""
        sock = connection.sock
        held = self._app.held is None or self._app.held()
        if held:
            _sent(sock, answer)
        if self._draining or not held or not self._connection_limits.refuse(caller):
            sock.close()
            return
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        sock.setblocking(False)
        self._refused[connection.fd] = _Refused(sock, caller, self._at)
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
            self._close_refused(fd)

    def _close_refused(self, fd: int) -> None:
        refused = self._refused.pop(fd)
        refused.sock.close()
        self._connection_limits.refused_closed(refused.caller)

    def _owns(self, connection: _Connection) -> bool:
        return self._connections.get(connection.fd) is connection

    def _watch(self, connection: _Connection) -> None:
        connection.sock.setblocking(False)
        self._connections[connection.fd] = connection
        self._epoll.register(connection.fd, _EVENTS)

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.fd, None)
        connection.sock.close()  # which takes it off the epoll
        if connection.caller:
            self._connection_limits.leave(connection.caller)
        if self._draining:
            self._deregister_if_done()

    def _hand_over(
        self, connection: _Connection, first: bytes = b"", owed: bytes = b"", last: bool = False
    ) -> None:
        """Hand the connection to the slow path, with what was read or is still to be written. Many
        may come at once and each needs a transport, so this goes through the fair queue."""
        sock = connection.sock
        if self._connections.pop(connection.fd, None):
            self._epoll.unregister(connection.fd)
        sock.setblocking(False)
        self.handed_over += 1
        self._handing_over += 1
        protocol = self._protocol()
        protocol.adopt(connection.caller, first, owed, last=last, closing=lambda: self._draining)

        def connect() -> int:
            self._tasks.start(self._connect(protocol, sock), "hand-over")
            return HAND_OVER_COST

        self._app.queue.add(share_of(connection.caller), connect)

    async def _connect(self, protocol: MetadataProtocol, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, sock)
        except BaseException as error:
            caller = protocol.caller
            protocol.abandoned()
            sock.close()
            if not isinstance(error, Exception):
                raise
            self._log_failure(error, caller)
        finally:
            self._handing_over -= 1
            self._deregister_if_done()

    def _deregister_if_done(self) -> None:
        """Deregister from the server once nothing is left that it would have to wait for."""
        if not self._draining or self._handing_over:
            return
        if self._close_all_at is not None:
            if self._connections:
                return
            self._close_all()
        self._server_connections.discard(self)


def _more(fd: int) -> bytes:
    try:
        return read(fd, CHUNK - SMALL_READ)
    except BlockingIOError:
        return b""


def _sent(sock: socket.socket, data: bytes) -> bytes | None:
    """Return what could not be sent yet, None if the caller has gone."""
    try:
        return data[sock.send(data, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return data
    except OSError:
        return None
