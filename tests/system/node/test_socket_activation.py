"""Sockets that whoever started us has opened: taken by name, and refused by name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.node.config import Address, Config, LocalConnection
from forewarn.node.listening.socket_activation import (
    HandedOverSockets,
    adopt,
    check_control,
    not_handed_over,
    use_handed_over,
)
from forewarn.node.listening.sockets import CannotListen
from forewarn.node.listening.unix_socket import open_unix_socket
from helpers.waiting import LIMIT

SCRIPT = """
import os, sys
from forewarn.node.listening.socket_activation import HandedOverSockets
from forewarn.node.listening.sockets import CannotListen
os.environ["LISTEN_PID"] = str(os.getpid())
try:
    taken = HandedOverSockets.from_environment(os.environ)
    print(taken, [k for k in os.environ if k.startswith("LISTEN_")])
except CannotListen as error:
    print(error)
"""


def handed(names: str, *fds: int, count: int | None = None) -> str:
    """What a process says that is handed these descriptors, from 3 on."""

    def place() -> None:
        high = [os.dup2(fd, 200 + n) for n, fd in enumerate(fds)]
        for n, fd in enumerate(high):
            os.dup2(fd, 3 + n)

    environment = {**os.environ, "LISTEN_FDS": str(len(fds) if count is None else count)}
    if names:
        environment["LISTEN_FDNAMES"] = names
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        preexec_fn=place,
        close_fds=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    return done.stdout + done.stderr


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_sockets_are_taken_by_name_and_the_environment_forgets_them(
    listener: socket.socket,
) -> None:
    fd = listener.fileno()
    output = handed("metadata:control:metadata", fd, fd, fd)
    assert output == "HandedOverSockets(metadata=(3, 5), control=4, nodes=None) []\n"


def test_a_socket_without_a_name_that_is_known_is_refused(listener: socket.socket) -> None:
    fd = listener.fileno()
    assert "called 'forewarn.socket' was handed over" in handed("forewarn.socket", fd)
    assert "set FileDescriptorName= to metadata" in handed("", fd)
    assert "2 sockets called 'control'" in handed("control:control", fd, fd)


def test_a_descriptor_that_is_no_listening_tcp_socket_is_refused(listener: socket.socket) -> None:
    with socket.socket() as idle, socket.socket(socket.AF_UNIX) as local:
        assert "not listening" in handed("metadata", idle.fileno())
        local.bind(b"\0" + os.urandom(8))
        local.listen()
        assert "AF_UNIX" in handed("metadata", local.fileno())
        assert "nodes=3)" in handed("nodes", local.fileno())
    assert "not a listening UNIX socket (AF_INET" in handed("nodes", listener.fileno())
    read, write = os.pipe()
    try:
        assert "listening TCP socket" in handed("control", read)
    finally:
        os.close(read)
        os.close(write)
    assert "listening TCP socket" in handed("metadata:control", listener.fileno(), count=250)


def test_sockets_that_are_meant_for_another_process_are_left_alone() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}
    assert HandedOverSockets.from_environment(environment) == HandedOverSockets()
    assert environment == {}
    assert HandedOverSockets.from_environment({}) == HandedOverSockets()


def test_where_a_socket_that_was_handed_over_listens_is_where_guests_ask(
    listener: socket.socket,
) -> None:
    fd = listener.fileno()
    config = Config(metadata=Address("169.254.169.254", 80), control=Address("127.0.0.1", 1))
    made = use_handed_over(config, HandedOverSockets((fd,), fd), anywhere=False)
    port = listener.getsockname()[1]
    assert made.metadata == made.control == Address("127.0.0.1", port)
    with adopt(fd) as ours:
        assert ours.getsockname()[1] == port
        assert ours.proto == socket.IPPROTO_TCP
        assert not ours.getblocking()
    assert listener.getsockname()[1] == port  # it is still there when ours is closed


def test_sockets_are_ordered_by_the_settings() -> None:
    with opened(0) as one, opened(0) as other, opened(one.getsockname()[1]) as again:
        second, first = (Address(*listener.getsockname()) for listener in (one, other))
        config = Config(metadata=first, more_metadata=(second,), control=Address("127.0.0.1", 0))
        fds = one.fileno(), other.fileno()
        made = use_handed_over(config, HandedOverSockets(fds), anywhere=False)
        assert made.guest_addresses == (first, second)
        assert made.metadata_fds == fds[::-1]
        with pytest.raises(CannotListen, match=rf"2 sockets .* for {second}; one is enough"):
            use_handed_over(config, HandedOverSockets((*fds, again.fileno())), anywhere=False)


def test_addresses_without_a_handed_over_socket_are_known(listener: socket.socket) -> None:
    here = Address(*listener.getsockname())
    config = Config(metadata=here, more_metadata=(Address("127.0.0.1", 1), Address("::1", 0)))
    assert not_handed_over(config, HandedOverSockets((listener.fileno(),))) == [
        Address("127.0.0.1", 1)
    ]
    assert not_handed_over(config, HandedOverSockets()) == []


def test_an_address_for_operators_that_somebody_has_set_is_not_ignored(
    listener: socket.socket,
) -> None:
    handed_over = HandedOverSockets((), listener.fileno())
    check_control(Address(*listener.getsockname()), handed_over)
    check_control(Address("10.0.0.5", 8170), HandedOverSockets())
    with pytest.raises(CannotListen, match=r"control = 10\.0\.0\.5:8170, but .* listens on 127"):
        check_control(Address("10.0.0.5", 8170), handed_over)


def test_every_socket_that_is_handed_over_must_be_confined(listener: socket.socket) -> None:
    with socket.create_server(("0.0.0.0", 0)) as exposed:
        handed = HandedOverSockets((listener.fileno(), exposed.fileno()))
        address = f"0.0.0.0:{exposed.getsockname()[1]}"
        config = Config(metadata=Address("127.0.0.1", 0))
        with pytest.raises(CannotListen, match=rf"listens on {address}"):
            use_handed_over(config, handed, anywhere=False)
        assert len(use_handed_over(config, handed, anywhere=True).guest_addresses) == 2


def test_the_socket_for_the_node_on_this_host_has_a_path_that_not_every_user_can_open(
    tmp_path: Path,
) -> None:
    path = tmp_path / "nodes"
    asked = Config(local_node=LocalConnection(Path("/run/other"), "h1"))
    with open_unix_socket(path, "nodes") as local:
        handed_over = HandedOverSockets(nodes=local.fileno())
        config = use_handed_over(asked, handed_over, anywhere=False)
        assert config.local_node == LocalConnection(path, "h1")
        assert config.nodes_fd == local.fileno()
        with pytest.raises(CannotListen, match="the setting nodes names no path"):
            use_handed_over(Config(), handed_over, anywhere=False)
        path.chmod(0o666)
        with pytest.raises(CannotListen, match="can be opened by every user"):
            use_handed_over(asked, handed_over, anywhere=False)
        path.unlink()
        with pytest.raises(CannotListen, match="is not at"):
            use_handed_over(asked, handed_over, anywhere=False)
    with socket.socket(socket.AF_UNIX) as nameless:
        nameless.bind(b"\0" + os.urandom(8))
        with pytest.raises(CannotListen, match="can be opened by every user"):
            use_handed_over(asked, HandedOverSockets(nodes=nameless.fileno()), anywhere=False)


def opened(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    made.listen()
    return made
