"""Redirects this process's connections to 169.254.169.254 to one machine's endpoint.

For Python clients that know no other address. Only `socket.connect` and `connect_ex` are patched,
and what asyncio uses in their place on Windows; nothing is ever sent to the real address while a
machine is entered. Clients that connect in C, uvloop among them, need `forewarn run`.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from forewarn.testing.errors import RefusedError

WELL_KNOWN = "169.254.169.254"
PORT = 80
MAPPED = "::ffff:"
PACKED = socket.inet_aton(WELL_KNOWN)
MAPPED_PACKED = socket.inet_pton(socket.AF_INET6, MAPPED + WELL_KNOWN)

_originals: dict[tuple[type, str], Any] = {}  # the methods that are patched, or were before
_own: dict[tuple[type, str], bool] = {}  # whether the class defined the method, or inherited it
_patching = threading.Lock()
_entered: list[SocketPatch[Any]] = []  # in order; changed under the lock
_current: ContextVar[SocketPatch[Any] | None] = ContextVar("forewarn machine", default=None)


class HasUrl(Protocol):
    @property
    def url(self) -> str: ...


M = TypeVar("M", bound=HasUrl)


class SocketPatch(Generic[M]):
    """Applies to the thread or task that enters it and the tasks it starts, and also to threads
    that have entered no machine themselves, as long as all those entered are the same one."""

    def __init__(self, machine: M) -> None:
        self.machine = machine
        self._token: Token[SocketPatch[Any] | None] | None = None
        self.place = ("", 0)

    def __enter__(self) -> M:
        if self._token is not None:
            raise RefusedError(
                f"this block is inside '{self.machine}' already; call inside() for another one"
            )
        host, _, port = self.machine.url.removeprefix("http://").rpartition(":")
        self.place = (host, int(port))
        with _patching:
            if not _entered:
                _patch()
            _entered.append(self)
        self._token = _current.set(self)
        return self.machine

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        with _patching:
            _entered.remove(self)
            if not _entered:
                _unpatch()
        assert self._token is not None
        with suppress(ValueError):  # left in another context; `_entered` says who still is inside
            _current.reset(self._token)
        self._token = None


def _patch() -> None:
    for owner, name, patched in _patches():
        _originals[owner, name] = getattr(owner, name)
        _own[owner, name] = name in vars(owner)
        setattr(owner, name, patched)


def _patches() -> Iterator[tuple[type, str, Callable[..., Any]]]:
    yield socket.socket, "connect", _connect
    yield socket.socket, "connect_ex", _connect_ex
    if "asyncio.windows_events" in sys.modules:  # which does not use the methods of sockets
        proactor = sys.modules["asyncio.windows_events"].IocpProactor
        original = proactor.connect

        def connect(self: Any, connection: socket.socket, address: Any) -> Any:
            return original(self, connection, _redirected(connection, address))

        yield proactor, "connect", connect


def _unpatch() -> None:
    for (owner, name), own in _own.items():
        if own:  # another library's patch
            setattr(owner, name, _originals[owner, name])
        else:  # inherited from C
            delattr(owner, name)
    _own.clear()


def _connect(self: socket.socket, address: Any) -> None:
    _originals[socket.socket, "connect"](self, _redirected(self, address))


def _connect_ex(self: socket.socket, address: Any) -> int:
    try:
        address = _redirected(self, address)
    except ConnectionRefusedError:
        return errno.ECONNREFUSED
    error: int = _originals[socket.socket, "connect_ex"](self, address)
    return error


def _redirected(sock: socket.socket, address: Any) -> Any:
    """Return the address to connect to instead of this one."""
    if not isinstance(address, tuple) or len(address) < 2 or not _well_known(address[0]):
        return address
    port = address[1]
    if port != PORT:
        raise ConnectionRefusedError(
            errno.ECONNREFUSED,
            f"inside a machine of a test {WELL_KNOWN} answers on port {PORT} only, not {port}",
        )
    to, its_port = _place()
    return (f"{MAPPED}{to}" if sock.family == socket.AF_INET6 else to, its_port)


def _well_known(host: Any) -> bool:
    """Recognize the address in every form that the system accepts, such as 2852039166."""
    written = host.decode(errors="replace") if isinstance(host, bytes | bytearray) else str(host)
    try:
        if ":" in written:
            return socket.inet_pton(socket.AF_INET6, written) == MAPPED_PACKED
        return socket.inet_aton(written) == PACKED
    except OSError:  # a name
        return False


def _place() -> tuple[str, int]:
    current = _current.get()
    with _patching:
        entered = list(_entered)
    if current is not None and current in entered:
        return current.place
    if len({patch.place for patch in entered}) == 1:
        return entered[0].place
    names = ", ".join(str(patch.machine) for patch in entered)
    raise ConnectionRefusedError(
        errno.ECONNREFUSED,
        f"{os.strerror(errno.ECONNREFUSED)}: this thread could be inside any of {names}; enter one"
        " in the thread that connects",
    )
