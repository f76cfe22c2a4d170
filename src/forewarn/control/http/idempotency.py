"""Idempotency keys: a request that is repeated under the same key does nothing more and gets the
same response.

The key is part of the commit, and the response is stored beside it before it is sent. If the
service died in between, the response is built again from what the commit changed (`replay.py`). A
refusal is not stored: nothing has happened, and the request may be tried again.
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
    """Raised for a request that has been carried out already, with its response."""

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
    """The keys of requests that are under way; all others are in the store."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._under_way: dict[tuple[str, str], str] = {}  # what was asked

    async def take(self, request: Request[Any, Any, Any]) -> Key | None:
        """Return the key of a request that is to be carried out; raise for any other."""
        values = request.headers.getall(HEADER, [])
        if not values:
            return None
        operation = operation_of(request.route_handler)
        if not operation.keyed:
            raise ProblemError("invalid", f"this call takes no {HEADER}: {operation.keyless}")
        if len(values) > 1 or re.match(PATTERN, values[0]) is None:
            raise ProblemError(
                "invalid",
                f"one {HEADER} has 1 to {MAX_KEY} visible ASCII characters, for example a UUID",
            )
        caller = request.scope["state"]["caller"]
        key = Key(caller.token or LOCAL, values[0], await _digest(request))
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
        await self._raise_if_done(key, request, operation)
        return key

    async def _raise_if_done(
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
                response = await replay.answer(self._context, operation, kept, named)
            except StoreFailed as error:
                raise ProblemError(
                    "unavailable",
                    f"it was done, and what came of it cannot be read now ({error}); ask again",
                ) from error
            answer = msgspec.json.encode(response)
            await self._answered(key, status, answer)
        call = self._context.call(request.scope["state"]["caller"], {})
        body = msgspec.json.decode(answer)
        await authorization.answered(
            call, operation.creates, body, path, str(next(iter(named.values()), ""))
        )
        self.release(request.scope)
        raise Replayed(status, answer, path)

    def holds(self, scope: Any) -> bool:
        return scope["state"].get("key") is not None

    async def keep(self, scope: Any, status: int, answer: bytes) -> None:
        """Store the response before it is sent. If that fails, it can still be built again."""
        key: Key = scope["state"]["key"]
        store = self._context.store
        try:
            if await store.keyed(key.owner, key.name) is None:
                # Nothing was committed; the key is stored all the same.
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
    """Log it; the request was carried out, and its response is sent all the same."""
    log.warning("an answer could not be kept", key=key.name, why=str(error))


def _reused(key: Key) -> ProblemError:
    return ProblemError(
        "key-reused",
        f"the {HEADER} '{key.name}' belongs to another request; take a new one for this",
    )


async def _digest(request: Request[Any, Any, Any]) -> str:
    """Return a digest of what the request asks for."""
    digest = hashlib.sha256()
    query = request.scope.get("query_string", b"")
    for part in (request.method.encode(), request.url.path.encode(), query, await request.body()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
