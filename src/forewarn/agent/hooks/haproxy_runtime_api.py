"""A client of HAProxy's runtime API, with the commands for draining, and a connection per command.

The states are those of `set server … state`; other properties of a server are not touched.
"""

from __future__ import annotations

import math
import socket
from typing import Literal, TypeAlias

import msgspec

from forewarn.agent.hooks.contract import Failure
from forewarn.agent.hooks.options import address
from forewarn.support import guard

TIMEOUT = 5.0  # seconds for one response
LEAST = 0.1  # seconds for one response, even if the time is up
MAX_RESPONSE = 16 << 20  # bytes; enough for thousands of servers

State: TypeAlias = Literal["ready", "drain", "maint"]

# Flags of srv_admin_state that were set for the server itself. The others are inherited from
# another server, DNS or a missing address, and change with those.
_FORCED_MAINTENANCE, _FORCED_DRAIN = 0x01, 0x08


class Server(msgspec.Struct, frozen=True):
    state: State
    sessions: int  # open now, or queued


class Unreachable(Failure):
    """HAProxy does not answer; during a reload that lasts only a moment."""


class RuntimeApi:
    """`until` is the guard time at which every command has to be done."""

    def __init__(self, where: str, until: float = math.inf) -> None:
        self.where = where
        self._until = until

    def servers(self) -> dict[str, Server]:
        """Return all servers by their names, as backend/server."""
        states, open_now = self._command("show servers state"), self._command("show stat -1 4 -1")
        try:
            sessions = {
                f"{row['pxname']}/{row['svname']}": int(row["scur"] or 0) + int(row["qcur"] or 0)
                for row in _rows(open_now, ",", "pxname")
            }
            return {
                name: Server(_state(int(row["srv_admin_state"])), sessions.get(name, 0))
                for row in _rows(states, " ", "be_id")
                if (name := f"{row['be_name']}/{row['srv_name']}")
            }
        except (KeyError, ValueError):  # mostly an incomplete response
            raise Unreachable(f"HAProxy at {self.where} returned an invalid table") from None

    def set(self, server: str, state: State) -> None:
        if error := self._command(f"set server {server} state {state}").strip():
            raise Failure(f"HAProxy at {self.where} refused to set {server} to {state}: {error}")

    def level(self) -> str:
        return self._command("show cli level").strip()

    def _command(self, command: str) -> str:
        now = guard.monotonic()
        until = max(now + LEAST, min(self._until, now + TIMEOUT))
        try:
            with self._connect(until) as connection:
                connection.sendall(f"{command}\n".encode())
                response = bytearray()
                while chunk := connection.recv(65_536):
                    response += chunk
                    if len(response) > MAX_RESPONSE:
                        raise Failure(
                            f"HAProxy at {self.where} sent more than {MAX_RESPONSE:,} bytes"
                        )
                    connection.settimeout(_left(until))
        except TimeoutError:
            raise Unreachable(f"HAProxy at {self.where} does not answer") from None
        except OSError as error:
            raise Unreachable(_describe(self.where, error)) from None
        if not response.endswith(b"\n"):  # every complete response does
            raise Unreachable(
                f"HAProxy at {self.where} closed the connection in the middle of a response"
            )
        return response.decode(errors="replace")

    def _connect(self, until: float) -> socket.socket:
        if not self.where.startswith("/"):
            return socket.create_connection(address(self.where, "socket"), _left(until))
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_left(until))
            connection.connect(self.where)
        except OSError:
            connection.close()
            raise
        return connection


def _left(until: float) -> float:
    left = until - guard.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _state(flags: int) -> State:
    if flags & _FORCED_MAINTENANCE:
        return "maint"
    return "drain" if flags & _FORCED_DRAIN else "ready"


def _rows(response: str, separator: str, first: str) -> list[dict[str, str]]:
    """Return the rows of a table, whose columns are named by a line that begins with #."""
    columns: list[str] = []
    rows = []
    for line in response.splitlines():
        if line.startswith(f"# {first}"):
            columns = line[2:].split(separator)
        elif columns and line.strip():
            rows.append(dict(zip(columns, line.split(separator), strict=False)))
    if not columns:
        raise Failure(f"this is not HAProxy's runtime API: {response.strip()[:200]!r}")
    return rows


def _describe(where: str, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{where} is not writable for this user; add it to the group of the socket"
    if isinstance(error, FileNotFoundError):
        return f"{where} does not exist; HAProxy creates it with `stats socket {where} level admin`"
    return f"HAProxy at {where} cannot be reached: {error.strerror or error}"
