"""Listening: one socket for all of loopback, or one for each address, and nowhere beyond."""

from __future__ import annotations

import socket

import pytest

from forewarn.node.config import Address, Config
from forewarn.node.listening.sockets import CannotListen, confined, local, open_loopback
from forewarn.node.wiring import metadata_sockets
from helpers.free_ports import free_port
from helpers.waiting import LIMIT

HOSTS = ["127.0.0.1", "127.0.1.1", "127.0.1.2"]


def answered(hosts: list[str], port: int) -> list[str]:
    """Where a connection really goes to."""
    found = []
    for host in hosts:
        with socket.create_connection((host, port), timeout=LIMIT) as connection:
            found.append(connection.getpeername()[0])
    return found


def test_one_socket_serves_every_loopback_address() -> None:
    (listener,) = open_loopback(0, HOSTS)
    with listener:
        assert answered(HOSTS, listener.getsockname()[1]) == HOSTS


def test_where_binding_to_the_device_is_not_possible_each_address_has_a_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(socket, "SO_BINDTODEVICE")
    listeners = open_loopback(0, HOSTS)
    try:
        assert [listener.getsockname()[0] for listener in listeners] == HOSTS
        ports = {listener.getsockname()[1] for listener in listeners}
        assert len(ports) == 1
        assert answered(HOSTS, ports.pop()) == HOSTS
    finally:
        for listener in listeners:
            listener.close()


def test_if_one_address_cannot_be_bound_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_BINDTODEVICE")
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1:\d+ is not"):
        open_loopback(0, ["127.0.0.1", "192.0.2.1"])


def test_if_the_second_address_cannot_be_bound_the_first_is_closed_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = Address("127.0.0.1", free_port())
        second = Address("127.0.0.1", taken.getsockname()[1])
        config = Config(metadata=first, more_metadata=(second,), control=Address("127.0.0.1", 0))
        with pytest.raises(CannotListen, match=f"{second} is in use"):
            metadata_sockets(config, [])
        socket.create_server((first.host, first.port)).close()


@pytest.mark.parametrize(
    ("host", "is_local", "is_confined"),
    [
        ("127.0.0.1", True, True),
        ("localhost", True, True),
        ("::1", True, True),
        ("169.254.169.254", False, True),
        ("fe80::1", False, True),
        ("169.254.example", False, False),
        ("0.0.0.0", False, False),
        ("10.1.2.3", False, False),
        ("example.org", False, False),
    ],
)
def test_addresses_are_known_as_local_or_confined(
    host: str, is_local: bool, is_confined: bool
) -> None:
    assert (local(host), confined(host)) == (is_local, is_confined)
