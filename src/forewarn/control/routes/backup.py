"""Backups in the control API: a copy of the state, made while the service runs and then streamed.

There is one backup at a time, until it has been sent completely, because the copy takes space on
the disk of the state, as an unnamed file. A caller that does not read it for a while is
disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import Request
from litestar.response import Stream
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import ProblemError, RefusedError
from forewarn.control.http.operation import route
from forewarn.control.operations import service as operations
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core.refusal import conflict
from forewarn.store.port import Copy, StoreFailed
from forewarn.support.logs import logger

BACKUP_CHUNK = 256 * 1024  # bytes of a backup that are sent at a time
BACKUP_TAKEN_WITHIN = 30.0  # seconds in which the caller has to read a chunk

_CLEANUP = "forewarn_backup"  # key in the scope of a request: its exit stack

log = logger("forewarn.control")


def _clean_up(app: ASGIApp) -> ASGIApp:
    """Middleware that deletes the copy however the request ends, and ends the request if the caller
    does not read the response."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        time = asyncio.get_running_loop().time
        timeout = asyncio.timeout(None)

        async def send_in_time(message: Message) -> None:
            timeout.reschedule(time() + BACKUP_TAKEN_WITHIN)
            await send(message)
            timeout.reschedule(None)

        async with contextlib.AsyncExitStack() as cleanup:
            scope[_CLEANUP] = cleanup  # type: ignore[literal-required]
            try:
                async with timeout:
                    await app(scope, receive, send_in_time)
            except TimeoutError:
                if not timeout.expired():
                    raise
                log.warning(
                    "a backup was aborted: the caller stopped reading", seconds=BACKUP_TAKEN_WITHIN
                )

    return run


@route(operations.GET_BACKUP, media_type=s.SQLITE, middleware=[_clean_up])
async def get_backup(request: Request[Any, Any, Any], call: Call) -> Stream:
    """A consistent copy of the whole state. The service continues to work meanwhile. The header
    `Forewarn-Copy` describes the contents as JSON."""
    if context().backup_lock.locked():
        raise RefusedError(
            conflict("another backup is being made or downloaded; try again when it is finished")
        )
    cleanup: contextlib.AsyncExitStack = request.scope[_CLEANUP]  # type: ignore[literal-required]
    await cleanup.enter_async_context(context().backup_lock)
    try:
        copy = await context().copy(context().platform.writer.now().at)
    except StoreFailed as failure:
        raise ProblemError("unavailable", str(failure)) from failure
    if copy is None:
        raise RefusedError(
            conflict("this service keeps its state in memory: there is nothing to back up")
        )
    cleanup.callback(copy.file.close)
    headers = {
        "Content-Length": str(copy.size),
        "Content-Disposition": 'attachment; filename="forewarn-backup.db"',
        s.BACKUP_HEADER: msgspec.json.encode(core.backup_contents(copy.contents)).decode(),
    }
    return Stream(_chunks(call, copy, cleanup), headers=headers, media_type=s.SQLITE)


async def _chunks(
    call: CallContext, copy: Copy, cleanup: contextlib.AsyncExitStack
) -> AsyncIterator[bytes]:
    remaining = copy.size
    while remaining > 0 and (chunk := await asyncio.to_thread(copy.file.read, BACKUP_CHUNK)):
        authorization.require_valid_token(call)
        remaining -= len(chunk)
        if remaining <= 0:  # a caller that has received everything may request another backup
            await cleanup.aclose()
        yield chunk
