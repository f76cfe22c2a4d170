"""Who is let in when the control API is full: shares, and who gives way."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from forewarn.control.server import connections
from forewarn.control.server.connections import OperatorConnection, OperatorConnections


@pytest.fixture
def line() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def entered(
    among: OperatorConnections, line: socket.socket, *addresses: str
) -> list[OperatorConnection]:
    visits = [among.add(line, address) for address in addresses]
    assert None not in visits
    return [visit for visit in visits if visit is not None]


def test_the_address_with_most_connections_loses_one_first(line: socket.socket) -> None:
    among = OperatorConnections(4)
    single, *many = entered(among, line, "10.0.0.1", *["10.0.0.2"] * 3)
    entered(among, line, "10.0.0.3")
    assert len(among) == 4
    many[0].closed()  # it has given way: there is nothing to leave
    assert len(among) == 4
    single.closed()
    assert len(among) == 3


def test_connections_with_a_request_are_not_closed(line: socket.socket) -> None:
    among = OperatorConnections(2)
    for visit in entered(among, line, "10.0.0.1", "10.0.0.2"):
        visit.busy()
    assert among.add(line, "10.0.0.3") is None
    assert len(among) == 2


def test_the_connections_of_one_address_are_limited(
    line: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_OPERATOR_SHARE", 2)
    among = OperatorConnections()
    for visit in entered(among, line, "10.0.0.1", "10.0.0.1"):
        visit.busy()
    assert among.add(line, "10.0.0.1") is None
    assert among.add(line, "10.0.0.2") is not None
    for visit in entered(among, line, "2001:db8::1", "2001:db8::2"):
        visit.busy()
    assert among.add(line, "2001:db8::3") is None  # the same network
    assert among.add(line, "2001:db8:0:1::3") is not None


def test_a_closed_connection_makes_room_once(line: socket.socket) -> None:
    among = OperatorConnections(2)
    first, second = entered(among, line, "10.0.0.1", "10.0.0.1")
    first.busy()
    for _ in range(2):
        first.closed()
    assert len(among) == 1
    second.busy()
    second.idle()
    first.idle()
    first.busy()
    assert len(among) == 1
    second.closed()
    assert len(among) == 0
