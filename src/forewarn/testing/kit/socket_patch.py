"""This process inside a machine: its connections to 169.254.169.254 reach the machine's endpoint.

For Python clients that know no other address. Where a connection goes is decided when Python's own
`socket.connect` is called; nothing else is touched, and nothing is ever sent to the real address
while a machine is entered. Clients that connect in C, uvloop among them, need `forewarn run`.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from forewarn.testing.kit.errors import RefusedByService

if TYPE_CHECKING:
    from forewarn.testing.kit.machines import Machine

WELL_KNOWN = "169.254.169.254"
PORT = 80
MAPPED = "::ffff:"
PACKED = socket.inet_aton(WELL_KNOWN)
MAPPED_PACKED = socket.inet_pton(socket.AF_INET6, MAPPED + WELL_KNOWN)

_plain: dict[str, Any] = {}  # what stood where we stand, while we do
_own: dict[str, bool] = {}  # and whether it stood there itself, or was inherited
_patching = threading.Lock()
_entered: list[SocketPatch] = []  # by whom, in order; changed under the lock
_here: ContextVar[SocketPatch | None] = ContextVar("forewarn machine", default=None)


class SocketPatch:
    """Whoever enters is inside the machine, with the tasks it starts; so is every thread of the
    process that has entered none itself, as long as no second machine is entered meanwhile."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._token: Token[SocketPatch | None] | None = None
        self.place = ("", 0)

    def __enter__(self) -> Machine:
        if self._token is not None:
            raise RefusedByService(f"this is inside '{self.machine}' already; call inside() anew")
        host, _, port = self.machine.url.removeprefix("http://").rpartition(":")
        self.place = (host, int(port))
        with _patching:
            if not _entered:
                _stand_before()
            _entered.append(self)
        self._token = _here.set(self)
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
                _step_aside()
        assert self._token is not None
        with suppress(ValueError):  # left elsewhere than entered; it is looked who still is
            _here.reset(self._token)
        self._token = None


def _stand_before() -> None:
    for name, ours in (("connect", _connect), ("connect_ex", _connect_ex)):
        _plain[name] = getattr(socket.socket, name)
        _own[name] = name in vars(socket.socket)
        setattr(socket.socket, name, ours)


def _step_aside() -> None:
    for name, plain in _plain.items():
        if _own[name]:  # somebody else's, from before
            setattr(socket.socket, name, plain)
        else:  # inherited from C
            delattr(socket.socket, name)


def _connect(self: socket.socket, address: Any) -> None:
    _plain["connect"](self, _instead(self, address))


def _connect_ex(self: socket.socket, address: Any) -> int:
    try:
        address = _instead(self, address)
    except ConnectionRefusedError:
        return errno.ECONNREFUSED
    found: int = _plain["connect_ex"](self, address)
    return found


def _instead(sock: socket.socket, address: Any) -> Any:
    """Where a connection to this address goes."""
    if not isinstance(address, tuple) or len(address) < 2 or not _well_known(address[0]):
        return address
    port = address[1]
    if port != PORT:
        raise ConnectionRefusedError(
            errno.ECONNREFUSED,
            f"inside a machine of a test {WELL_KNOWN} is there on port {PORT} only, not {port}",
        )
    to, its_port = _where()
    return (f"{MAPPED}{to}" if sock.family == socket.AF_INET6 else to, its_port)


def _well_known(host: Any) -> bool:
    """However it is written: the system takes 2852039166 and 0xa9.254.43518 for it as well."""
    written = host.decode(errors="replace") if isinstance(host, bytes | bytearray) else str(host)
    try:
        if ":" in written:
            return socket.inet_pton(socket.AF_INET6, written) == MAPPED_PACKED
        return socket.inet_aton(written) == PACKED
    except OSError:  # a name
        return False


def _where() -> tuple[str, int]:
    here = _here.get()
    with _patching:
        entered = list(_entered)
    if here is not None and here in entered:
        return here.place
    if len({one.place for one in entered}) == 1:
        return entered[0].place
    names = ", ".join(str(one.machine) for one in entered)
    raise ConnectionRefusedError(
        errno.ECONNREFUSED,
        f"{os.strerror(errno.ECONNREFUSED)}: this thread could be inside any of {names}; enter one"
        " in the thread that connects",
    )
