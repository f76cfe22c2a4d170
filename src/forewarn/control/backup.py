"""A copy of the state over HTTP: made beside whoever writes it, sent as it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import IO, Any

import msgspec
from litestar import get
from litestar.openapi.datastructures import ResponseSpec
from litestar.response import Stream

from forewarn.control import schema as s
from forewarn.control.access import ADMIN
from forewarn.control.answers import RefusedError
from forewarn.control.backup_schema import HEADER, SQLITE, BackupContents
from forewarn.control.desk import Desk
from forewarn.core import Time
from forewarn.core.refusal import conflict
from forewarn.store.port import Contents

BACKUP_CHUNK = 256 * 1024  # bytes of a copy that are sent at a time

_answers = {200: ResponseSpec(bytes, media_type=SQLITE, description="The copy, an SQLite file.")}


def handlers(desk: Desk) -> list[Any]:
    making = asyncio.Lock()

    @get("/v1/backup", media_type=SQLITE, responses=_answers, opt=dict(ADMIN))
    async def backup() -> Stream:
        """All of the state as it is at one moment. Commits go on meanwhile."""
        if making.locked():
            raise RefusedError(conflict("another copy is being made; ask again when it is done"))
        async with making:
            copy = await desk.copy(desk.platform.writer.now().at)
        if copy is None:
            raise RefusedError(
                conflict("this service keeps its state in memory: there is nothing to copy")
            )
        headers = {
            "Content-Length": str(copy.size),
            "Content-Disposition": 'attachment; filename="forewarn-backup.db"',
            HEADER: msgspec.json.encode(shape(copy.contents)).decode(),
        }
        return Stream(_chunks(copy.file), headers=headers, media_type=SQLITE)

    return [backup]


def shape(found: Contents) -> BackupContents:
    return BackupContents(
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


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, BACKUP_CHUNK):
            yield chunk
