"""The answer to one request, and the types and scope keys of the ASGI applications here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import msgspec

from forewarn.wire.errors import JSON, Problem

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

CONNECTION_CLOSE = (("Connection", "close"),)
HALF_CLOSED = "forewarn.half_closed"  # in the scope: the caller will send no more
BODY = "forewarn.body"  # in the scope: the body, once it was read
GONE = "forewarn.gone"  # in the scope: the caller has closed the connection
CUT = "forewarn.cut"  # in the scope: `cut(hard)` closes the connection in the middle of an answer
FAULT = "forewarn.fault"  # in the scope: the kind of fault that was injected into the answer
IN_PROCESS = "forewarn.in_process"  # in the scope: there is no socket that could be closed
CLOCK_STOPPED = "forewarn.clock_stopped"  # in the scope: delayed by a clock that is not advanced


class Reply(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Gone(Exception):
    """The caller has closed the connection."""


def refused(problem: Problem) -> Reply:
    headers = []
    if problem.allow:
        headers.append(("Allow", problem.allow))
    if problem.close:
        headers += CONNECTION_CLOSE
    return Reply(problem.status, problem.body, headers=tuple(headers))
