"""A copy of the state over HTTP: made beside whoever writes it, sent as it is read.

There is one at a time, from its making until the last of it is taken: it lies on the state's disk
without a name. Whoever takes nothing of it for a while is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import Request, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.response import Stream
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.control.http import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import ProblemError, RefusedError
from forewarn.control.http.operation import Operation
from forewarn.control.schema import core as s
from forewarn.core import Time
from forewarn.core.access import Role
from forewarn.core.refusal import conflict
from forewarn.store.port import Contents, Copy, StoreFailed
from forewarn.support.logs import logger

BACKUP_CHUNK = 256 * 1024  # bytes of a copy that are sent at a time
BACKUP_TAKEN_WITHIN = 30.0  # seconds in which those have to be taken

_KEPT = "forewarn_copy"  # in the scope of a request: what ends with it

_answers = {200: ResponseSpec(bytes, media_type=s.SQLITE, description="The copy, an SQLite file.")}

log = logger("forewarn.control")


def _ends_with_the_request(app: ASGIApp) -> ASGIApp:
    """However the request ends, its copy goes; and it ends if nothing of the copy is taken."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        time = asyncio.get_running_loop().time
        patience = asyncio.timeout(None)

        async def taken(message: Message) -> None:
            patience.reschedule(time() + BACKUP_TAKEN_WITHIN)
            await send(message)
            patience.reschedule(None)

        async with contextlib.AsyncExitStack() as kept:
            scope[_KEPT] = kept  # type: ignore[literal-required]
            try:
                async with patience:
                    await app(scope, receive, taken)
            except TimeoutError:
                if not patience.expired():
                    raise
                log.warning("a copy of the state was not taken", seconds=BACKUP_TAKEN_WITHIN)

    return run


@get(
    "/v1/backup",
    media_type=s.SQLITE,
    responses=_answers,
    middleware=[_ends_with_the_request],
    **Operation(
        id="getBackup",
        tag="service",
        summary="Download a backup of the whole state, an SQLite file",
        role=Role.ADMIN,
        refuses=(409, 503),
        commands=("backup",),
        command_example="backup copy.db",
    ).options,
)
async def get_backup(request: Request[Any, Any, Any], call: Call) -> Stream:
    """All of the state as it is at one moment. Commits go on meanwhile."""
    if context().backup_lock.locked():
        raise RefusedError(
            conflict("another copy is being made or taken; ask again when it is done")
        )
    kept: contextlib.AsyncExitStack = request.scope[_KEPT]  # type: ignore[literal-required]
    await kept.enter_async_context(context().backup_lock)
    try:
        copy = await context().copy(context().platform.writer.now().at)
    except StoreFailed as failure:
        raise ProblemError("unavailable", str(failure)) from failure
    if copy is None:
        raise RefusedError(
            conflict("this service keeps its state in memory: there is nothing to copy")
        )
    kept.callback(copy.file.close)
    headers = {
        "Content-Length": str(copy.size),
        "Content-Disposition": 'attachment; filename="forewarn-backup.db"',
        s.BACKUP_HEADER: msgspec.json.encode(shape(copy.contents)).decode(),
    }
    return Stream(_chunks(call, copy, kept), headers=headers, media_type=s.SQLITE)


def shape(found: Contents) -> s.BackupContents:
    return s.BackupContents(
        schema=found.schema,
        commit=found.commit,
        until=_moment(found.at),
        copied_at=_moment(found.copied_at),
        groups=found.groups,
        machines=found.machines,
        active_events=found.active_events,
        tokens=found.tokens,
    )


def _moment(at: Time | None) -> Any:
    return None if at is None else s.time_of(at)


async def _chunks(
    call: CallContext, copy: Copy, kept: contextlib.AsyncExitStack
) -> AsyncIterator[bytes]:
    left = copy.size
    while left > 0 and (chunk := await asyncio.to_thread(copy.file.read, BACKUP_CHUNK)):
        authorization.still_or_ended(call)
        left -= len(chunk)
        if left <= 0:  # whoever has all of it may ask for the next
            await kept.aclose()
        yield chunk
