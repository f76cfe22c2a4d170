"""HAProxy's runtime API, as far as draining needs it: a command, an answer, a connection for each.

The states are those of `set server … state`; what else HAProxy knows of a server is left alone.
"""

from __future__ import annotations

import math
import socket
from typing import Literal, TypeAlias

import msgspec

from forewarn.agent.hooks.contract import Failure
from forewarn.agent.hooks.options import address
from forewarn.support import guard

PATIENCE = 5.0  # seconds for one answer, all of it
LEAST = 0.1  # seconds for one, also if the time is up
MAX_ANSWER = 16 << 20  # bytes; thousands of servers fit

State: TypeAlias = Literal["ready", "drain", "maint"]

# Of srv_admin_state: what was said to the server itself. The others are taken over from another
# server, from DNS or from an address that is missing, and come and go with those.
_FORCED_MAINTENANCE, _FORCED_DRAIN = 0x01, 0x08


class Server(msgspec.Struct, frozen=True):
    state: State
    sessions: int  # open now, and waiting for one


class Unreachable(Failure):
    """It may be back in a moment: a reload takes one."""


class RuntimeApi:
    """Until when anything may take, by the guard's clock."""

    def __init__(self, where: str, until: float = math.inf) -> None:
        self.where = where
        self._until = until

    def servers(self) -> dict[str, Server]:
        """All that have a name, as backend/server."""
        states, open_now = self._ask("show servers state"), self._ask("show stat -1 4 -1")
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
        except (KeyError, ValueError):  # half of an answer, mostly
            raise Unreachable(f"HAProxy at {self.where} answers what is no table") from None

    def set(self, server: str, state: State) -> None:
        if said := self._ask(f"set server {server} state {state}").strip():
            raise Failure(f"HAProxy at {self.where} does not set {server} to {state}: {said}")

    def level(self) -> str:
        return self._ask("show cli level").strip()

    def _ask(self, command: str) -> str:
        now = guard.monotonic()
        until = max(now + LEAST, min(self._until, now + PATIENCE))
        try:
            with self._connected(until) as line:
                line.sendall(f"{command}\n".encode())
                answer = bytearray()
                while piece := line.recv(65_536):
                    answer += piece
                    if len(answer) > MAX_ANSWER:
                        raise Failure(f"HAProxy at {self.where} does not stop talking")
                    line.settimeout(_left(until))
        except TimeoutError:
            raise Unreachable(f"HAProxy at {self.where} does not answer") from None
        except OSError as error:
            raise Unreachable(_why(self.where, error)) from None
        if not answer.endswith(b"\n"):  # every answer does
            raise Unreachable(f"HAProxy at {self.where} hung up in the middle of an answer")
        return answer.decode(errors="replace")

    def _connected(self, until: float) -> socket.socket:
        if not self.where.startswith("/"):
            return socket.create_connection(address(self.where, "socket"), _left(until))
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.settimeout(_left(until))
            line.connect(self.where)
        except OSError:
            line.close()
            raise
        return line


def _left(until: float) -> float:
    left = until - guard.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _state(flags: int) -> State:
    if flags & _FORCED_MAINTENANCE:
        return "maint"
    return "drain" if flags & _FORCED_DRAIN else "ready"


def _rows(answer: str, separator: str, first: str) -> list[dict[str, str]]:
    """A table below the line that begins with # and names its columns."""
    columns: list[str] = []
    rows = []
    for line in answer.splitlines():
        if line.startswith(f"# {first}"):
            columns = line[2:].split(separator)
        elif columns and line.strip():
            rows.append(dict(zip(columns, line.split(separator), strict=False)))
    if not columns:
        raise Failure(f"this is not HAProxy's runtime API: {answer.strip()[:200]!r}")
    return rows


def _why(where: str, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{where} may not be written to; put this user into the socket's group"
    if isinstance(error, FileNotFoundError):
        return f"there is no {where}; HAProxy makes it with `stats socket {where} level admin`"
    return f"HAProxy at {where} cannot be reached: {error.strerror or error}"
