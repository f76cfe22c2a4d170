"""Limits of the control API's connections, and which one is closed when they are reached.

A connection counts from the moment it is accepted. An idle connection (it has sent no request yet,
or no further one, or has not finished its TLS handshake) is closed in favour of a new one, the
oldest first. A caller that only holds connections open therefore keeps nobody out.
"""

from __future__ import annotations

import contextlib
import socket
from collections import OrderedDict

from forewarn.control.http.access.token_attempts import network_of

MAX_OPERATOR_CONNECTIONS = 2_048  # at a time; the feed's are among them
MAX_OPERATOR_SHARE = 1_536  # of these from one address, or one /64 of IPv6


class OperatorConnection:
    """One counted connection."""

    __slots__ = ("_connections", "_sock", "network")

    def __init__(self, connections: OperatorConnections, sock: socket.socket, network: str) -> None:
        self._connections = connections
        self._sock = sock
        self.network = network

    def busy(self) -> None:
        """Mark that a request is being answered, so that the connection is not closed."""
        self._connections.mark_busy(self)

    def idle(self) -> None:
        self._connections.mark_idle(self)

    def closed(self) -> None:
        self._connections.remove(self)

    def shut_down(self) -> None:
        """Shut the socket down; its transport notices that and closes it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class _Network:
    """The connections from one address, or one /64 of IPv6."""

    __slots__ = ("busy", "idle")

    def __init__(self) -> None:
        self.busy: set[OperatorConnection] = set()
        self.idle: OrderedDict[OperatorConnection, None] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self.busy) + len(self.idle)

    def __contains__(self, connection: OperatorConnection) -> bool:
        return connection in self.busy or connection in self.idle


class OperatorConnections:
    """All connections to the control API."""

    def __init__(self, most: int = MAX_OPERATOR_CONNECTIONS) -> None:
        self._most = most
        self._networks: dict[str, _Network] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, sock: socket.socket, address: str) -> OperatorConnection | None:
        """Count a new connection. Return None if the limit is reached and none can be closed."""
        most = min(self._most, MAX_OPERATOR_CONNECTIONS)
        name = network_of(address)
        network = self._networks.get(name)
        if network is not None and len(network) >= min(most, MAX_OPERATOR_SHARE):
            if not self._close_oldest_idle(network):
                return None
        elif self._count >= most:
            with_idle = [other for other in self._networks.values() if other.idle]
            if not with_idle or not self._close_oldest_idle(max(with_idle, key=len)):
                return None
        connection = OperatorConnection(self, sock, name)
        self._networks.setdefault(name, _Network()).idle[connection] = None
        self._count += 1
        return connection

    def mark_busy(self, connection: OperatorConnection) -> None:
        network = self._networks.get(connection.network)
        if network is not None and connection in network:  # else it is being closed
            network.idle.pop(connection, None)
            network.busy.add(connection)

    def mark_idle(self, connection: OperatorConnection) -> None:
        network = self._networks.get(connection.network)
        if network is not None and connection in network:
            network.busy.discard(connection)
            network.idle[connection] = None

    def remove(self, connection: OperatorConnection) -> None:
        network = self._networks.get(connection.network)
        if network is None or connection not in network:
            return
        network.busy.discard(connection)
        network.idle.pop(connection, None)
        self._count -= 1
        if not len(network):
            del self._networks[connection.network]

    def _close_oldest_idle(self, network: _Network) -> bool:
        """Close the connection that has been idle longest. Return whether there was one."""
        if not network.idle:
            return False
        connection = next(iter(network.idle))
        connection.shut_down()
        self.remove(connection)
        return True
