"""Idempotency keys: a request that is repeated under the same key does nothing more and gets the
same response.

The key is part of the commit, and the response is stored with it before it is sent. If the service
died in between, the response is built again from what the commit changed (`replay.py`). A refusal
is not stored: nothing has happened, and the request may be repeated.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec
from litestar import Request, Response

from forewarn.control.http import replay
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Context
from forewarn.control.http.errors import ProblemError
from forewarn.control.http.operation import operation_of
from forewarn.control.operations.operation import Operation
from forewarn.service.engine.writer import CommitPlan, RequestContext
from forewarn.store.port import Key, StoreFailed
from forewarn.support.logs import logger

MAX_KEY = 200  # characters
HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
PATTERN = rf"^[\x21-\x7e]{{1,{MAX_KEY}}}$"
LOCAL_OWNER = "local"  # owner of the keys of local programs while there are no tokens

log = logger("forewarn.control")


class Replayed(Exception):
    """Raised for a request that has been carried out already, with its response."""

    def __init__(self, status: int, body: bytes, path: str) -> None:
        super().__init__("answered already")
        self.status, self.body, self.path = status, body, path


def on_replayed(_request: object, error: Replayed) -> Response[bytes]:
    headers = {REPLAYED: "true"}
    if error.status == 201:
        headers["Location"] = f"{error.path}/{msgspec.json.decode(error.body)['id']}"
    return Response(
        error.body, status_code=error.status, headers=headers, media_type="application/json"
    )


class IdempotencyKeys:
    """The keys of requests that are being carried out; keys of earlier requests are in the
    store."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._under_way: dict[tuple[str, str], str] = {}  # digest of the request by owner and key

    async def acquire(self, request: Request[Any, Any, Any]) -> Key | None:
        """Return the key of a request that is to be carried out, or None if it has none. Raise for
        a request that has been carried out before, or whose key cannot be used."""
        values = request.headers.getall(HEADER, [])
        if not values:
            return None
        operation = operation_of(request.route_handler)
        if not operation.keyed:
            raise ProblemError(
                "invalid", f"this operation takes no {HEADER}: {operation.reason_for_no_key}"
            )
        if len(values) > 1 or re.match(PATTERN, values[0]) is None:
            raise ProblemError(
                "invalid",
                f"the {HEADER} must be one value of 1 to {MAX_KEY} visible ASCII characters, for"
                " example a UUID",
            )
        caller = request.scope["state"]["caller"]
        key = Key(caller.token or LOCAL_OWNER, values[0], await _digest(request))
        other = self._under_way.get((key.owner, key.name))
        if other == key.digest:
            raise ProblemError(
                "under-way",
                f"a request with the {HEADER} '{key.name}' is under way; try again in a moment",
                {"Retry-After": "1"},
            )
        if other is not None:
            raise _reused(key)
        self._under_way[key.owner, key.name] = key.digest
        request.scope["state"]["key"] = key
        await self._raise_if_done(key, request, operation)
        return key

    async def _raise_if_done(
        self, key: Key, request: Request[Any, Any, Any], operation: Operation[Any]
    ) -> None:
        stored = await self._context.store.keyed_request(key.owner, key.name)
        if stored is None:
            return
        if stored.key.digest != key.digest:
            raise _reused(key)
        name = str(next(iter(request.path_params.values()), ""))
        if stored.status is not None:
            status, body = stored.status, stored.answer
        else:
            status = operation.status
            try:
                response = await replay.rebuild_response(self._context, operation, stored, name)
            except StoreFailed as error:
                raise ProblemError(
                    "unavailable",
                    "the request was carried out, but its result cannot be read now"
                    f" ({error}); try again",
                ) from error
            body = msgspec.json.encode(response)
            await self._store(key, status, body)
        call = self._context.call(request.scope["state"]["caller"], {})
        decoded = msgspec.json.decode(body)
        authorization.require_replay(call, operation, decoded, name)
        self.release(request.scope)
        raise Replayed(status, body, request.url.path)

    def has_key(self, scope: Any) -> bool:
        return scope["state"].get("key") is not None

    async def store_response(self, scope: Any, status: int, body: bytes) -> None:
        """Store the response of a keyed request before it is sent. If that fails, the response can
        still be rebuilt from the commit."""
        key: Key = scope["state"]["key"]
        store = self._context.store
        try:
            if await store.keyed_request(key.owner, key.name) is None:
                # Nothing was committed; the key is stored all the same.
                writer = self._context.platform.writer.for_request(RequestContext(key))
                await writer.commit(CommitPlan())
        except StoreFailed as error:
            _log_not_stored(key, error)
        else:
            await self._store(key, status, body)

    async def _store(self, key: Key, status: int, body: bytes) -> None:
        try:
            await self._context.store.save_answer(key, status, body)
        except StoreFailed as error:
            _log_not_stored(key, error)

    def release(self, scope: Any) -> None:
        key: Key | None = scope["state"].pop("key", None)
        if key is not None:
            self._under_way.pop((key.owner, key.name), None)


def _log_not_stored(key: Key, error: StoreFailed) -> None:
    """Only log the failure: the request was carried out, and its response is sent."""
    log.warning("the response to a keyed request could not be stored", key=key.name, why=str(error))


def _reused(key: Key) -> ProblemError:
    return ProblemError(
        "key-reused",
        f"the {HEADER} '{key.name}' belongs to another request; use a new key for this one",
    )


async def _digest(request: Request[Any, Any, Any]) -> str:
    """Return a digest of the method, path, query and body."""
    digest = hashlib.sha256()
    query = request.scope.get("query_string", b"")
    for part in (request.method.encode(), request.url.path.encode(), query, await request.body()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
