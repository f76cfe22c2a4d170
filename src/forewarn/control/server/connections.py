"""How many may be connected to the control API, and who gives way when there is no more room.

A connection counts from the moment it is accepted, whatever it goes on to do. One that is not
being answered (it has not asked yet, or no more, or is not through with its TLS handshake) gives
way to a newcomer, the oldest first: so whoever only holds connections keeps nobody out.
"""

from __future__ import annotations

import contextlib
import socket
from collections import OrderedDict

from forewarn.control.http.token_attempts import network_of

MAX_OPERATOR_CONNECTIONS = 2_048  # at a time; the feed's are among them
MAX_OPERATOR_SHARE = 1_536  # of these for one address, or one /64 of IPv6


class OperatorConnection:
    """A connection, as far as it is counted."""

    __slots__ = ("_crowd", "_sock", "network")

    def __init__(self, crowd: OperatorConnections, sock: socket.socket, network: str) -> None:
        self._crowd = crowd
        self._sock = sock
        self.network = network

    def busy(self) -> None:
        """Somebody is at work for it: it does not give way."""
        self._crowd.waits(self, False)

    def idle(self) -> None:
        self._crowd.waits(self, True)

    def over(self) -> None:
        self._crowd.leave(self)

    def cut(self) -> None:
        """Its transport finds that it is over, and closes it."""
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
        """None if there is no room, and nobody who would give way."""
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
        visit = OperatorConnection(self, sock, name)
        self._networks.setdefault(name, _Network()).waiting[visit] = None
        self._count += 1
        return visit

    def waits(self, visit: OperatorConnection, yes: bool) -> None:
        found = self._networks.get(visit.network)
        if found is None or (visit not in found.busy and visit not in found.waiting):
            return  # it has given way, and does not know yet
        if yes:
            found.busy.discard(visit)
            found.waiting[visit] = None
        else:
            found.waiting.pop(visit, None)
            found.busy.add(visit)

    def leave(self, visit: OperatorConnection) -> None:
        found = self._networks.get(visit.network)
        if found is None or (visit not in found.busy and visit not in found.waiting):
            return
        found.busy.discard(visit)
        found.waiting.pop(visit, None)
        self._count -= 1
        if not len(found):
            del self._networks[visit.network]

    def _gives_way(self, among: _Network) -> bool:
        """The one of these that has waited longest, if one does."""
        if not among.waiting:
            return False
        visit = next(iter(among.waiting))
        visit.cut()
        self.leave(visit)
        return True
