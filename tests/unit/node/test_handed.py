"""Sockets that whoever started us has opened: taken by name, and refused by name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from forewarn.node.config import Address, Config
from forewarn.node.handed import Handed, adopted, enough_for
from forewarn.node.opening import with_handed
from forewarn.node.sockets import CannotListen

SCRIPT = """
import os, sys
from forewarn.node.handed import Handed
from forewarn.node.sockets import CannotListen
os.environ["LISTEN_PID"] = str(os.getpid())
try:
    print(Handed.taken_from(os.environ), [k for k in os.environ if k.startswith("LISTEN_")])
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
        timeout=30,
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
    said = handed("metadata:control:metadata", fd, fd, fd)
    assert said == "Handed(metadata=(3, 5), control=4) []\n"


def test_a_socket_without_a_name_that_is_known_is_refused(listener: socket.socket) -> None:
    fd = listener.fileno()
    assert "called 'forewarn.socket' was handed over" in handed("forewarn.socket", fd)
    assert "FileDescriptorName=metadata" in handed("", fd)
    assert "2 sockets called 'control'" in handed("control:control", fd, fd)


def test_what_is_no_listening_tcp_socket_is_refused(listener: socket.socket) -> None:
    with socket.socket() as idle, socket.socket(socket.AF_UNIX) as local:
        assert "not listening" in handed("metadata", idle.fileno())
        local.bind(b"\0" + os.urandom(8))
        local.listen()
        assert "AF_UNIX" in handed("metadata", local.fileno())
    read, write = os.pipe()
    try:
        assert "no listening TCP socket" in handed("control", read)
    finally:
        os.close(read)
        os.close(write)
    assert "no listening TCP socket" in handed("metadata:control", listener.fileno(), count=250)


def test_sockets_that_are_meant_for_another_process_are_left_alone() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}
    assert Handed.taken_from(environment) == Handed()
    assert environment == {}
    assert Handed.taken_from({}) == Handed()


def test_each_worker_needs_a_socket_of_its_own() -> None:
    enough_for(2, 2, "127.0.0.1:80")
    with pytest.raises(CannotListen, match=r"1 sockets .* to 3 workers.*ReusePort=yes and 3 times"):
        enough_for(3, 1, "127.0.0.1:80")


def test_where_a_socket_that_was_handed_over_listens_is_where_guests_ask(
    listener: socket.socket,
) -> None:
    fd = listener.fileno()
    config = Config(metadata=Address("169.254.169.254", 80), control=Address("127.0.0.1", 1))
    made = with_handed(config, Handed((fd,), fd), anywhere=False)
    port = listener.getsockname()[1]
    assert made.metadata == made.control == Address("127.0.0.1", port)
    with adopted(fd) as ours:
        assert ours.getsockname()[1] == port
        assert ours.proto == socket.IPPROTO_TCP
        assert not ours.getblocking()
    assert listener.getsockname()[1] == port  # it is still there when ours is closed
