"""The ASGI application: reads a request, finds its operation, checks who asks, and sends the answer
with the headers that clients of Azure Resource Manager expect.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import uuid
from collections.abc import Coroutine
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

import msgspec
from litestar.exceptions import HTTPException

from forewarn.arm import routing
from forewarn.arm.admission import ArmAdmission, from_refusal
from forewarn.arm.errors import CODE_OF_STATUS, ArmError, refusal, unavailable
from forewarn.arm.not_offered import not_offered
from forewarn.arm.operations import Operations
from forewarn.arm.options import check_options
from forewarn.arm.preconditions import check, precondition_of, with_tag
from forewarn.arm.request import Answer, Request, fields
from forewarn.arm.routes import (  # each declares its operations
    availability_sets,
    batch,
    configuration_assignments,
    dedicated_hosts,
    deployments,
    event_grid,
    login,
    maintenance_configurations,
    operations,
    reimages,
    resource_graph,
    resources,
    scale_sets,
    scheduled_events,
    subscriptions,
    updates,
    virtual_machines,
)
from forewarn.control.http.access import admission
from forewarn.control.http.access.authentication import Refusal
from forewarn.control.http.access_log import AccessLog
from forewarn.control.http.context import Context, current_context
from forewarn.control.http.errors import ProblemError, RefusedError
from forewarn.core.access import Role
from forewarn.core.time import SECOND
from forewarn.service.access.secret import hidden, hidden_bytes
from forewarn.store.port import NotLeading, StoreFailed, StoreUnreadable
from forewarn.support import guard
from forewarn.support.azure_names import AZURE_NAMES
from forewarn.support.logs import logger

MAX_BODY = 1024 * 1024  # bytes
MAX_LOGIN_BODY = 64 * 1024  # bytes, of a request that needs no token
MAX_QUERIES = 2  # of Azure Resource Graph, at a time
LOGIN_BODY_TIMEOUT = 10.0  # seconds to send it
ROUTES = (
    *(login, subscriptions, resources, resource_graph, event_grid, operations, batch),
    *(virtual_machines, scale_sets, reimages, availability_sets, dedicated_hosts),
    *(
        scheduled_events,
        updates,
        maintenance_configurations,
        configuration_assignments,
        deployments,
    ),
)

_VERSION = re.compile(
    r"(\d{4}-\d{2}-\d{2})(-(preview|alpha|beta|rc|privatepreview|canary))?",
    re.ASCII | re.IGNORECASE,
)
_CLIENT_ID = re.compile(r"[\x21-\x7e]{1,100}", re.ASCII)

log = logger("forewarn.arm")


class ArmApp:
    """Azure Resource Manager's API for one service."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._admission = ArmAdmission(context)
        self._operations = Operations()
        self._queries = asyncio.Semaphore(MAX_QUERIES)
        self._changes = guard.Tasks()  # each ends with its commit
        self._app = AccessLog(self._answer, context)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        current_context.set(self._context)
        await self._app(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        base_url = f"https://{headers.get('host', '')}"
        try:
            answer = await self._within_patience(
                self._answer_to(scope, receive, headers, base_url), scope["method"]
            )
        except Exception as error:
            answer = _answer_of(_error_of(error, base_url, scope))
        await _send(scope, send, answer, headers)

    async def _within_patience(self, work: Coroutine[Any, Any, Answer], method: str) -> Answer:
        """Return the answer to a request, unless its commit hangs. It goes on: whoever repeats it
        under the same x-ms-client-request-id learns what became of it."""
        store, patience = self._context.store, admission.STORE_PATIENCE
        if store.leadership is None or method not in admission.WRITE_METHODS:
            return await work
        began, task = guard.monotonic(), self._changes.start(work, "a change")
        while not task.done():
            if (waited := min(store.waited(), guard.monotonic() - began)) >= patience:
                raise unavailable(
                    f"The database has not confirmed a commit for {patience:g} s, so it is not"
                    " known whether the change happens. Repeat the request with the same"
                    " x-ms-client-request-id."
                )
            await asyncio.wait([task], timeout=patience - waited)
        answer: Answer = await task
        return answer

    async def _read(self, scope: Any, headers: dict[str, str], base_url: str) -> Answer:
        try:
            return await self._answer_to(scope, _no_body, headers, base_url)
        except Exception as error:
            answer = _answer_of(_error_of(error, base_url, scope))
            return msgspec.structs.replace(answer, body=msgspec.Raw(_content_of(answer)))

    async def _answer_to(
        self, scope: Any, receive: Any, headers: dict[str, str], base_url: str
    ) -> Answer:
        values: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name.lower(), []).append(value)
        # Programs may have the names of the public cloud built in, and a hosts file for them.
        accepted = (*self._context.host_names(), *AZURE_NAMES)
        admission.check_host(scope, values, accepted)
        path = re.sub(r"/{2,}", "/", scope["path"])
        path = path.rstrip("/") or "/"
        query = scope["query_string"].decode("latin-1")
        given = [(name.lower(), value) for name, value in fields(query)]
        parameters = dict(given)
        found = routing.find(scope["method"], path)
        if isinstance(found, list):
            raise not_offered(scope["method"], path, found)
        route, names = found
        scope["path_template"] = route.template
        if route.versioned:
            _check_version(parameters)

        async def read(path: str, query: str) -> Answer:
            target = {
                "method": "GET",
                "path": unquote(path),
                "query_string": query.encode(errors="replace"),
            }
            return await self._read({**scope, **target}, headers, base_url)

        bound = None
        if route.role is not None:
            authorization = headers.get("authorization", "")
            caller = await self._admission.caller(scope, route, authorization, base_url)
            scope["state"]["caller"] = caller
            if route.role is not Role.VIEWER and route.method in admission.WRITE_METHODS:
                admission.check_leading(self._context)
            bound = self._context.call(caller, {})
        check_options(given, route.options)
        request = Request(
            method=scope["method"],
            path=path,
            names=names,
            parameters=parameters,
            headers=headers,
            content=await (_content(receive) if route.role else _content_of_anybody(receive)),
            base_url=base_url,
            address=str((scope.get("client") or ("", 0))[0]),
            context=self._context,
            operations=self._operations,
            queries=self._queries,
            bound=bound,
            read=read,
        )
        condition = precondition_of(request, route.template)
        answer = await route.handler(msgspec.structs.replace(request, condition=condition))
        check(condition)
        return with_tag(request, answer)


def _check_version(parameters: dict[str, str]) -> None:
    version = parameters.get("api-version", "")
    if not version:
        raise ArmError(
            400,
            "MissingApiVersionParameter",
            "The api-version query parameter (?api-version=) is required for all requests.",
        )
    match = _VERSION.fullmatch(version)
    try:
        datetime.date.fromisoformat(match[1] if match else "")
    except ValueError as error:
        raise ArmError(
            400,
            "InvalidApiVersionParameter",
            f"The api-version '{hidden(version[:40])}' is invalid. It must be a date, such as"
            " 2024-07-01.",
        ) from error


async def _no_body() -> dict[str, Any]:
    return {"type": "http.request"}


async def _content_of_anybody(receive: Any) -> bytes:
    """Read the body of a request that needs no token, of which nobody may send many slowly."""
    try:
        async with asyncio.timeout(LOGIN_BODY_TIMEOUT):
            return await _content(receive, MAX_LOGIN_BODY)
    except TimeoutError as error:
        raise ArmError(
            408, "RequestTimeout", f"The body was not sent within {LOGIN_BODY_TIMEOUT:g} s."
        ) from error


async def _content(receive: Any, most: int = MAX_BODY) -> bytes:
    content = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ArmError(400, "BadRequest", "The connection ended before the end of the body.")
        content += message.get("body", b"")
        if len(content) > most:
            raise ArmError(
                413,
                "RequestEntityTooLarge",
                f"The request content may have at most {most:,} bytes.",
            )
        if not message.get("more_body", False):
            return bytes(content)


def _error_of(error: Exception, base_url: str, scope: Any) -> ArmError:
    match error:
        case ArmError():
            return error
        case Refusal():
            return from_refusal(error, base_url)
        case RefusedError(refused=refused):
            return refusal(refused)
        case HTTPException() if error.status_code < 500:
            code = CODE_OF_STATUS.get(error.status_code, "BadRequest")
            return ArmError(error.status_code, code, error.detail)
        case ProblemError(kind=kind, headers=headers):
            code = CODE_OF_STATUS.get(kind.status, "BadRequest")
            return ArmError(kind.status, code, f"{error}.", headers=headers)
        case NotLeading():
            return unavailable(f"{error}.")
        case StoreUnreadable():
            return unavailable(f"The state could not be read: {error}.")
        case StoreFailed():
            return unavailable(f"The change could not be stored and has not happened: {error}.")
    log.error(
        "a request could not be answered",
        method=scope["method"],
        path=hidden(scope["path"][:200]),
        request_id=scope["state"]["request_id"],
        exc_info=error,
    )
    return ArmError(
        500,
        "InternalServerError",
        "The service failed; its log has the details under the x-ms-request-id.",
    )


def _answer_of(error: ArmError) -> Answer:
    return Answer(status=error.status, body=error.body, headers=error.headers)


def _content_of(answer: Answer) -> bytes:
    content = b"" if answer.body is None else msgspec.json.encode(answer.body)
    # A refusal may repeat what its caller has put in the wrong place.
    return content if answer.status < 400 else hidden_bytes(content)


async def _send(scope: Any, send: Any, answer: Answer, asked: dict[str, str]) -> None:
    content = _content_of(answer)
    id = scope["state"]["request_id"]
    correlation = asked.get("x-ms-correlation-request-id", "")
    headers = {
        "Content-Length": str(len(content)),
        "Date": formatdate(guard.wall_us() / SECOND, usegmt=True),
        "Cache-Control": "no-cache",
        "Pragma": "no-cache",
        "X-Content-Type-Options": "nosniff",
        "x-ms-request-id": id,
        "x-ms-correlation-request-id": correlation if _CLIENT_ID.fullmatch(correlation) else id,
        "x-ms-routing-request-id": f"LOCAL:{uuid.uuid4()}",
        **answer.headers,
    }
    if content:
        headers["Content-Type"] = "application/json; charset=utf-8"
    client_id = asked.get("x-ms-client-request-id", "")
    wanted = asked.get("x-ms-return-client-request-id", "").lower() == "true"
    if wanted and _CLIENT_ID.fullmatch(client_id):
        headers["x-ms-client-request-id"] = client_id
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [
                (n.lower().encode(), v.encode("latin-1", "replace")) for n, v in headers.items()
            ],
        }
    )
    await send({"type": "http.response.body", "body": content})
