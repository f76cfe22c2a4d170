"""Listens on UNIX sockets that only our own user can open."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from forewarn.node.listening.sockets import CannotListen

MAX_SOCKET_PATH = 107  # bytes of a UNIX socket's path, set by the kernel
CONNECT_TIMEOUT = 1.0  # seconds; whether another service listens on the socket


def too_long(path: Path) -> bool:
    return len(os.fsencode(path)) > MAX_SOCKET_PATH


def other_file(path: Path, setting: str) -> str:
    """Return a message if something that is not a socket is at a path, or ""."""
    if path.is_socket() or not os.path.lexists(path):
        return ""
    return f"{setting} = {path}: there is a file that is not a socket; choose another path"


def open_unix_socket(path: Path, setting: str) -> socket.socket:
    """Listen on a path, in place of a socket that an earlier process has left there. `setting` is
    the setting that names it, for messages. Raises CannotListen."""
    if too_long(path):
        raise CannotListen(
            f"{setting} = {path}: the path of a socket has at most {MAX_SOCKET_PATH} bytes;"
            f" set {setting} to a shorter one"
        )
    if problem := other_file(path, setting):
        raise CannotListen(problem)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before bind, so that others never can open it
        if path.is_socket():
            if _answers(path):
                raise CannotListen(
                    f"{setting} = {path}: another service listens there;"
                    " give each service a socket of its own"
                )
            path.unlink()
        listener.bind(os.fspath(path))
        listener.listen()
    except OSError as error:
        listener.close()
        raise CannotListen(f"{setting} = {path}: {error.strerror or error}") from error
    except CannotListen:
        listener.close()
        raise
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_TIMEOUT)
        try:
            connection.connect(os.fspath(path))
        except (TimeoutError, BlockingIOError):
            return True  # listening, but too busy to accept
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True
