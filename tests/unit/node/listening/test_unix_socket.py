"""UNIX sockets are opened for our own user alone, and take the place of abandoned ones only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from forewarn.node.listening.sockets import CannotListen
from forewarn.node.listening.unix_socket import MAX_SOCKET_PATH, open_unix_socket, too_long


def test_only_our_own_user_can_open_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with open_unix_socket(path, "nodes"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    open_unix_socket(path, "nodes").close()
    assert path.is_socket()
    open_unix_socket(path, "nodes").close()


def test_the_socket_of_another_service_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with open_unix_socket(path, "nodes"):
        with pytest.raises(CannotListen, match=r"^nodes = .*: another service listens there"):
            open_unix_socket(path, "nodes")
        assert path.is_socket()


def test_any_other_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(CannotListen, match=r"^nodes = .* not a socket; choose"):
        open_unix_socket(path, "nodes")
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_for_the_kernel_is_refused() -> None:
    path = Path("/" + "x" * MAX_SOCKET_PATH)
    assert too_long(path)
    assert not too_long(Path("/" + "x" * (MAX_SOCKET_PATH - 1)))
    with pytest.raises(CannotListen, match=f"at most {MAX_SOCKET_PATH} bytes"):
        open_unix_socket(path, "nodes")
