"""Relaying: what is said to a socket here is said to an address there, byte for byte.

TCP with its ends as they are: a side that stops sending, closes or resets does so on the other
side too, after all it said before. UDP for questions and answers. One thread, one epoll.
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

MAX_HELD = 256 * 1024  # bytes that one side has said and the other has not taken
MAX_ASKING = 256  # UDP callers whose answers are awaited; the one that asked first is forgotten
BACKLOG = 1024  # connections that wait to be accepted

_AT_ONCE = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, no time at all

Address = tuple[str, int]


class Relay:
    """All relays of one enclosure, and whatever else its thread has to watch."""

    def __init__(self) -> None:
        self.selector = selectors.EpollSelector()
        self.pairs: set[_Pair] = set()
        self._questions: list[_Questions] = []
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._running = True

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        self.selector.register(fd, selectors.EVENT_READ, ready)

    def forget(self, fd: int) -> None:
        self.selector.unregister(fd)

    def tcp(self, listener: socket.socket, to: Address) -> None:
        listener.setblocking(False)
        self.watch(listener.fileno(), lambda: self._accept(listener, to))

    def udp(self, inside: socket.socket, to: Address) -> None:
        inside.setblocking(False)
        questions = _Questions(self, inside, to)
        self._questions.append(questions)
        self.watch(inside.fileno(), questions.ask)

    def stop(self) -> None:
        self._running = False

    def run(self, left: Callable[[], float] | None = None) -> bool:
        """Until `stop`; false if the time is up before: `left` says how many seconds are left."""
        self._running = True
        while self._running:
            patience = None if left is None else left()
            if patience is not None and patience <= 0:
                return False
            for key, _ in self.selector.select(patience):
                if self.selector.get_map().get(key.fd) is key:  # not closed by one before it
                    key.data()
        return True

    def close(self) -> None:
        """Whoever is connected is hung up on."""
        for pair in list(self.pairs):
            pair.end()
        for questions in self._questions:
            questions.end()
        self.selector.close()
        os.close(self._spare)

    def _accept(self, listener: socket.socket, to: Address) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._turn_away(listener)
            return  # or it has gone already
        try:
            _Pair(self, accepted, to)
        except OSError:  # no descriptor for the other side
            _reset(accepted)

    def _turn_away(self, listener: socket.socket) -> None:
        """No descriptor is left. Whoever waits is told so, or we would be asked without end."""
        os.close(self._spare)
        with contextlib.suppress(OSError):
            _reset(listener.accept()[0])
        self._spare = os.open(os.devnull, os.O_RDONLY)


class _Side:
    """One end of a relayed connection, and what it is still to be told."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self.unsent = bytearray()
        self.said_all = False  # it will say no more
        self.told_all = False  # and this has been passed on to it
        self.wants = 0


class _Pair:
    """Two connections that are one."""

    def __init__(self, relay: Relay, accepted: socket.socket, to: Address) -> None:
        self._relay = relay
        self._selector = relay.selector
        self._connecting = True
        self._broken = False  # one side was reset; the other is told when it has heard the rest
        self._near = _Side(accepted)
        self._far = _Side(socket.socket(_family(to), socket.SOCK_STREAM))
        relay.pairs.add(self)
        if self._far.socket.connect_ex(to) not in (0, errno.EINPROGRESS):
            self.end()
        else:
            self._go_on()

    def _serve(self, side: _Side, other: _Side) -> None:
        if self._connecting:
            if self._far.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.end()
                return
            self._connecting = False
        if side.wants & selectors.EVENT_READ:
            self._hear(side, other)
        for told, by in ((side, other), (other, side)):
            self._tell(told, by)
        self._go_on()

    def _hear(self, side: _Side, other: _Side) -> None:
        try:
            said = side.socket.recv(_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            side.said_all = self._broken = True
            side.unsent.clear()
            return
        other.unsent += said
        side.said_all = not said

    def _tell(self, side: _Side, by: _Side) -> None:
        try:
            while side.unsent:
                del side.unsent[: side.socket.send(side.unsent)]
            if by.said_all and not side.told_all and not self._broken:
                side.told_all = True
                side.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            side.unsent.clear()
            self._broken = True

    def _go_on(self) -> None:
        near, far = self._near, self._far
        if self._broken and not near.unsent and not far.unsent:
            self.end()
        elif near.told_all and far.told_all:
            self.end(reset=False)
        else:
            self._want(near, far)
            self._want(far, near)

    def _want(self, side: _Side, other: _Side) -> None:
        """Only what can be acted on, so that whoever is slow slows the other down."""
        wants = 0
        hearing = not (side.said_all or self._broken or self._connecting)
        if hearing and len(other.unsent) < MAX_HELD:
            wants |= selectors.EVENT_READ
        if side.unsent or (self._connecting and side is self._far):
            wants |= selectors.EVENT_WRITE
        if wants == side.wants:
            return
        if side.wants:
            self._selector.unregister(side.socket)
        if wants:
            self._selector.register(side.socket, wants, lambda: self._serve(side, other))
        side.wants = wants

    def end(self, *, reset: bool = True) -> None:
        self._relay.pairs.discard(self)
        for side in (self._near, self._far):
            if side.wants:
                self._selector.unregister(side.socket)
            side.wants = 0
            if reset:
                _reset(side.socket)
            side.socket.close()


class _Questions:
    """Datagrams: each caller has a socket of its own outside, through which answers come back."""

    def __init__(self, relay: Relay, inside: socket.socket, to: Address) -> None:
        self._relay = relay
        self._inside = inside
        self._to = to
        self._callers: OrderedDict[tuple[Any, ...], socket.socket] = OrderedDict()

    def ask(self) -> None:
        with contextlib.suppress(OSError):
            said, caller = self._inside.recvfrom(_AT_ONCE)
            self._outside(caller).send(said)

    def _outside(self, caller: tuple[Any, ...]) -> socket.socket:
        found = self._callers.get(caller)
        if found is not None:
            return found
        if len(self._callers) >= MAX_ASKING:
            self._forget_oldest()
        made = socket.socket(_family(self._to), socket.SOCK_DGRAM)
        made.setblocking(False)
        made.connect(self._to)
        self._relay.watch(made.fileno(), lambda: self._answer(made, caller))
        self._callers[caller] = made
        return made

    def _forget_oldest(self) -> None:
        _, oldest = self._callers.popitem(last=False)
        self._relay.forget(oldest.fileno())
        oldest.close()

    def end(self) -> None:
        while self._callers:
            self._forget_oldest()

    def _answer(self, outside: socket.socket, caller: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):
            self._inside.sendto(outside.recv(_AT_ONCE), caller)


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
