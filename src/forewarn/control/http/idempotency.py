"""Idempotency keys: the same request again, under the name that its caller has for it, does nothing
more and is answered the same.

The key is part of the commit, and the answer is kept beside it before it is sent. If the service
died in between, the answer is made from what the commit brought about. A refusal is not kept:
nothing has happened, and it may be tried again.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec
from litestar import Request, Response

from forewarn.control.http import authorization, replay
from forewarn.control.http.context import Context
from forewarn.control.http.errors import ProblemError
from forewarn.control.http.operation import Operation, operation_of
from forewarn.service.engine.writer import CommitPlan, RequestContext
from forewarn.store.port import Key, StoreFailed
from forewarn.support.logs import logger

MAX_KEY = 200  # characters
HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
PATTERN = rf"^[\x21-\x7e]{{1,{MAX_KEY}}}$"
LOCAL = "local"  # whose keys they are while nobody needs a token

log = logger("forewarn.control")


class Replayed(Exception):
    """It has been done already, and this was the answer."""

    def __init__(self, status: int, answer: bytes, path: str) -> None:
        super().__init__("answered already")
        self.status, self.answer, self.path = status, answer, path


def replayed(_request: object, error: Replayed) -> Response[bytes]:
    headers = {REPLAYED: "true"}
    if error.status == 201:
        headers["Location"] = f"{error.path}/{msgspec.json.decode(error.answer)['id']}"
    return Response(
        error.answer, status_code=error.status, headers=headers, media_type="application/json"
    )


class IdempotencyKeys:
    """Those of requests that are under way; all others are in the store."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._under_way: dict[tuple[str, str], str] = {}  # what was asked

    async def take(self, request: Request[Any, Any, Any]) -> Key | None:
        """The key of a request that is to be carried out; raises for one that is not."""
        said = request.headers.getall(HEADER, [])
        if not said:
            return None
        operation = operation_of(request.route_handler)
        if not operation.keyed:
            raise ProblemError("invalid", f"this call takes no {HEADER}: {operation.keyless}")
        if len(said) > 1 or re.match(PATTERN, said[0]) is None:
            raise ProblemError(
                "invalid",
                f"one {HEADER} has 1 to {MAX_KEY} visible ASCII characters, for example a UUID",
            )
        caller = request.scope["state"]["caller"]
        key = Key(caller.token or LOCAL, said[0], await _asked(request))
        other = self._under_way.get((key.owner, key.name))
        if other == key.asked:
            raise ProblemError(
                "under-way",
                f"a request with the {HEADER} '{key.name}' is under way; ask again in a moment",
                {"Retry-After": "1"},
            )
        if other is not None:
            raise _reused(key)
        self._under_way[key.owner, key.name] = key.asked
        request.scope["state"]["key"] = key
        await self._unless_done(key, request, operation)
        return key

    async def _unless_done(
        self, key: Key, request: Request[Any, Any, Any], operation: Operation
    ) -> None:
        kept = await self._context.store.keyed(key.owner, key.name)
        if kept is None:
            return
        if kept.key.asked != key.asked:
            raise _reused(key)
        path, named = request.url.path, request.path_params
        if kept.status is not None:
            status, answer = kept.status, kept.answer
        else:
            status = operation.status
            try:
                made = await replay.answer(self._context, operation, kept, named)
            except StoreFailed as error:
                raise ProblemError(
                    "unavailable",
                    f"it was done, and what came of it cannot be read now ({error}); ask again",
                ) from error
            answer = msgspec.json.encode(made)
            await self._answered(key, status, answer)
        call = self._context.call(request.scope["state"]["caller"], {})
        said = msgspec.json.decode(answer)
        await authorization.answered(
            call, operation.creates, said, path, str(next(iter(named.values()), ""))
        )
        self.release(request.scope)
        raise Replayed(status, answer, path)

    def holds(self, scope: Any) -> bool:
        return scope["state"].get("key") is not None

    async def keep(self, scope: Any, status: int, answer: bytes) -> None:
        """The answer, before it is sent. If it cannot be kept, it can still be made again."""
        key: Key = scope["state"]["key"]
        store = self._context.store
        try:
            if await store.keyed(key.owner, key.name) is None:
                # There was nothing to do; that it was asked is to be known all the same.
                writer = self._context.platform.writer.for_request(RequestContext(key))
                await writer.commit(CommitPlan())
        except StoreFailed as error:
            _not_kept(key, error)
        else:
            await self._answered(key, status, answer)

    async def _answered(self, key: Key, status: int, answer: bytes) -> None:
        try:
            await self._context.store.answered(key, status, answer)
        except StoreFailed as error:
            _not_kept(key, error)

    def release(self, scope: Any) -> None:
        key: Key | None = scope["state"].pop("key", None)
        if key is not None:
            self._under_way.pop((key.owner, key.name), None)


def _not_kept(key: Key, error: StoreFailed) -> None:
    """What was done was done; the answer is given all the same."""
    log.warning("an answer could not be kept", key=key.name, why=str(error))


def _reused(key: Key) -> ProblemError:
    return ProblemError(
        "key-reused",
        f"the {HEADER} '{key.name}' belongs to another request; take a new one for this",
    )


async def _asked(request: Request[Any, Any, Any]) -> str:
    """A digest of all that says what is wanted."""
    made = hashlib.sha256()
    query = request.scope.get("query_string", b"")
    for part in (request.method.encode(), request.url.path.encode(), query, await request.body()):
        made.update(len(part).to_bytes(8, "big") + part)
    return made.hexdigest()
