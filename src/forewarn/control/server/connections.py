"""Limits of the control API's connections, and which one is closed when they are reached.

A connection counts from the moment it is accepted. One that is idle (it has sent no request yet, or
no further one, or has not finished its TLS handshake) is closed in favour of a new one, the oldest
first: a caller that only holds connections open keeps nobody out.
"""

from __future__ import annotations

import contextlib
import socket
from collections import OrderedDict

from forewarn.control.http.token_attempts import network_of

MAX_OPERATOR_CONNECTIONS = 2_048  # at a time; the feed's are among them
MAX_OPERATOR_SHARE = 1_536  # of these for one address, or one /64 of IPv6


class OperatorConnection:
    """One counted connection."""

    __slots__ = ("_connections", "_sock", "network")

    def __init__(self, connections: OperatorConnections, sock: socket.socket, network: str) -> None:
        self._connections = connections
        self._sock = sock
        self.network = network

    def busy(self) -> None:
        """Mark that a request is being answered: it is not closed for others."""
        self._connections.waits(self, False)

    def idle(self) -> None:
        self._connections.waits(self, True)

    def over(self) -> None:
        self._connections.leave(self)

    def cut(self) -> None:
        """Shut the socket down; its transport notices and closes it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class _Network:
    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy: set[OperatorConnection] = set()
        self.waiting: OrderedDict[OperatorConnection, None] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self.busy) + len(self.waiting)


class OperatorConnections:
    def __init__(self, most: int = MAX_OPERATOR_CONNECTIONS) -> None:
        self._most = most
        self._networks: dict[str, _Network] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, sock: socket.socket, address: str) -> OperatorConnection | None:
        """Count a new connection; None if the limit is reached and none can be closed for it."""
        most = min(self._most, MAX_OPERATOR_CONNECTIONS)
        name = network_of(address)
        found = self._networks.get(name)
        if found is not None and len(found) >= min(most, MAX_OPERATOR_SHARE):
            if not self._gives_way(found):
                return None
        elif self._count >= most:
            waiting = [one for one in self._networks.values() if one.waiting]
            if not waiting or not self._gives_way(max(waiting, key=len)):
                return None
        connection = OperatorConnection(self, sock, name)
        self._networks.setdefault(name, _Network()).waiting[connection] = None
        self._count += 1
        return connection

    def waits(self, connection: OperatorConnection, yes: bool) -> None:
        found = self._networks.get(connection.network)
        if found is None or (connection not in found.busy and connection not in found.waiting):
            return  # it has given way, and does not know yet
        if yes:
            found.busy.discard(connection)
            found.waiting[connection] = None
        else:
            found.waiting.pop(connection, None)
            found.busy.add(connection)

    def leave(self, connection: OperatorConnection) -> None:
        found = self._networks.get(connection.network)
        if found is None or (connection not in found.busy and connection not in found.waiting):
            return
        found.busy.discard(connection)
        found.waiting.pop(connection, None)
        self._count -= 1
        if not len(found):
            del self._networks[connection.network]

    def _gives_way(self, among: _Network) -> bool:
        """Close the one of these that has been idle longest, if there is one."""
        if not among.waiting:
            return False
        connection = next(iter(among.waiting))
        connection.cut()
        self.leave(connection)
        return True
