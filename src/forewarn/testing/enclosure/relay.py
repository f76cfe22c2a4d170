"""Relays TCP connections and UDP datagrams from sockets inside a namespace to addresses outside.

Half-closes, closes and resets of a TCP connection are relayed after the data before them. UDP is
relayed for requests and their answers. One thread, one epoll.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MAX_UNSENT = 256 * 1024  # bytes from one side that the other has not taken yet
MAX_UDP_CALLERS = 256  # UDP callers whose answers are awaited; beyond, the oldest is forgotten
BACKLOG = 1024  # connections that wait to be accepted

_READ_SIZE = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s; closing sends a reset

Address = tuple[str, int]


class Relay:
    """All relays of one enclosure, and other file descriptors that its loop watches."""

    def __init__(self) -> None:
        self.selector = selectors.EpollSelector()
        self.tcp_relays: set[_TcpRelay] = set()
        self._udp_relays: list[_UdpRelay] = []
        self._spare_fd = os.open(os.devnull, os.O_RDONLY)
        self._running = True

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        self.selector.register(fd, selectors.EVENT_READ, ready)

    def forget(self, fd: int) -> None:
        self.selector.unregister(fd)

    def tcp(self, listener: socket.socket, target: Address) -> None:
        listener.setblocking(False)
        self.watch(listener.fileno(), lambda: self._accept(listener, target))

    def udp(self, inside: socket.socket, target: Address) -> None:
        inside.setblocking(False)
        udp_relay = _UdpRelay(self, inside, target)
        self._udp_relays.append(udp_relay)
        self.watch(inside.fileno(), udp_relay.relay_request)

    def stop(self) -> None:
        self._running = False

    def run(self, time_left: Callable[[], float] | None = None) -> bool:
        """Run until `stop` is called; return False if `time_left` returns 0 or less before that."""
        self._running = True
        while self._running:
            timeout = None if time_left is None else time_left()
            if timeout is not None and timeout <= 0:
                return False
            for key, _ in self.selector.select(timeout):
                if self.selector.get_map().get(key.fd) is key:  # not closed by a callback before it
                    key.data()
        return True

    def close(self) -> None:
        """Reset all connections."""
        for tcp_relay in list(self.tcp_relays):
            tcp_relay.end()
        for udp_relay in self._udp_relays:
            udp_relay.end()
        self.selector.close()
        os.close(self._spare_fd)

    def _accept(self, listener: socket.socket, target: Address) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._reject(listener)
            return  # or the caller has gone already
        try:
            _TcpRelay(self, accepted, target)
        except OSError:  # no descriptor for the other side
            _reset(accepted)

    def _reject(self, listener: socket.socket) -> None:
        """Reset a connection because no file descriptor is left.

        The spare one is used to accept it; otherwise the listener would stay readable forever.
        """
        os.close(self._spare_fd)
        with contextlib.suppress(OSError):
            _reset(listener.accept()[0])
        self._spare_fd = os.open(os.devnull, os.O_RDONLY)


class _Side:
    """One end of a relayed connection, and the data still to be sent to it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self.unsent = bytearray()
        self.eof_received = False  # it will send no more
        self.eof_sent = False  # it has been told that the other side will send no more
        self.events = 0  # that its socket is registered for


class _TcpRelay:
    """A connection inside, and the connection outside that it is relayed to."""

    def __init__(self, relay: Relay, accepted: socket.socket, target: Address) -> None:
        self._relay = relay
        self._selector = relay.selector
        self._connecting = True
        self._reset_received = False  # by one side; relayed after the remaining data
        self._inside = _Side(accepted)
        self._outside = _Side(socket.socket(_family(target), socket.SOCK_STREAM))
        relay.tcp_relays.add(self)
        if self._outside.socket.connect_ex(target) not in (0, errno.EINPROGRESS):
            self.end()
        else:
            self._update()

    def _serve(self, side: _Side, other: _Side) -> None:
        if self._connecting:
            if self._outside.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.end()
                return
            self._connecting = False
        if side.events & selectors.EVENT_READ:
            self._receive(side, other)
        for receiver, sender in ((side, other), (other, side)):
            self._send(receiver, sender)
        self._update()

    def _receive(self, side: _Side, other: _Side) -> None:
        try:
            data = side.socket.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            side.eof_received = self._reset_received = True
            side.unsent.clear()
            return
        other.unsent += data
        side.eof_received = not data

    def _send(self, side: _Side, other: _Side) -> None:
        try:
            while side.unsent:
                del side.unsent[: side.socket.send(side.unsent)]
            if other.eof_received and not side.eof_sent and not self._reset_received:
                side.eof_sent = True
                side.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            side.unsent.clear()
            self._reset_received = True

    def _update(self) -> None:
        inside, outside = self._inside, self._outside
        if self._reset_received and not inside.unsent and not outside.unsent:
            self.end()
        elif inside.eof_sent and outside.eof_sent:
            self.end(reset=False)
        else:
            self._register(inside, outside)
            self._register(outside, inside)

    def _register(self, side: _Side, other: _Side) -> None:
        """Watch only for what can be handled, so that a slow side slows the other down."""
        events = 0
        readable = not (side.eof_received or self._reset_received or self._connecting)
        if readable and len(other.unsent) < MAX_UNSENT:
            events |= selectors.EVENT_READ
        if side.unsent or (self._connecting and side is self._outside):
            events |= selectors.EVENT_WRITE
        if events == side.events:
            return
        if side.events:
            self._selector.unregister(side.socket)
        if events:
            self._selector.register(side.socket, events, lambda: self._serve(side, other))
        side.events = events

    def end(self, *, reset: bool = True) -> None:
        self._relay.tcp_relays.discard(self)
        for side in (self._inside, self._outside):
            if side.events:
                self._selector.unregister(side.socket)
            side.events = 0
            if reset:
                _reset(side.socket)
            side.socket.close()


class _UdpRelay:
    """Datagrams: each caller has a socket of its own outside, which receives its answers."""

    def __init__(self, relay: Relay, inside: socket.socket, target: Address) -> None:
        self._relay = relay
        self._inside = inside
        self._target = target
        self._callers: OrderedDict[tuple[Any, ...], socket.socket] = OrderedDict()

    def relay_request(self) -> None:
        with contextlib.suppress(OSError):
            data, caller = self._inside.recvfrom(_READ_SIZE)
            self._socket_of(caller).send(data)

    def _socket_of(self, caller: tuple[Any, ...]) -> socket.socket:
        known = self._callers.get(caller)
        if known is not None:
            return known
        if len(self._callers) >= MAX_UDP_CALLERS:
            self._forget_oldest()
        created = socket.socket(_family(self._target), socket.SOCK_DGRAM)
        created.setblocking(False)
        created.connect(self._target)
        self._relay.watch(created.fileno(), lambda: self._relay_answer(created, caller))
        self._callers[caller] = created
        return created

    def _forget_oldest(self) -> None:
        _, oldest = self._callers.popitem(last=False)
        self._relay.forget(oldest.fileno())
        oldest.close()

    def end(self) -> None:
        while self._callers:
            self._forget_oldest()

    def _relay_answer(self, outside: socket.socket, caller: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):
            self._inside.sendto(outside.recv(_READ_SIZE), caller)


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
