"""What the endpoint says to one request, and the shapes in which ASGI asks and is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import msgspec

from forewarn.wire.errors import JSON, Problem

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HANG_UP = (("Connection", "close"),)
HALF_CLOSED = "forewarn.half_closed"  # in a request's scope: the caller will say no more
CUT = "forewarn.cut"  # what hangs up in the middle of an answer: `cut(hard)`
FAULT = "forewarn.fault"  # the kind of fault that the answer was spoiled with
IN_PROCESS = "forewarn.in_process"  # there is no socket, and nobody who could give up
UNWOUND = "forewarn.unwound"  # whoever asked in process waited for a clock that nobody wound


class Reply(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Gone(Exception):
    """The caller hung up; nobody is there to be answered."""


def refused(problem: Problem) -> Reply:
    headers = []
    if problem.allow:
        headers.append(("Allow", problem.allow))
    if problem.close:
        headers += HANG_UP
    return Reply(problem.status, problem.body, headers=tuple(headers))
