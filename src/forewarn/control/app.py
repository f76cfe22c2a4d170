"""The control API's ASGI application: translates HTTP requests into calls of the platform, and
their results into the types of `schema`. It decides nothing itself.

Errors are RFC 9457 problems. Which requests are admitted is decided in `http/access/admission.py`;
the handlers are in `routes`, by subject, each with the declaration of its operation.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException, SerializationException
from litestar.handlers import HTTPRouteHandler
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from forewarn.control.http import preconditions
from forewarn.control.http.access.admission import Admission
from forewarn.control.http.access.authorization import authorize
from forewarn.control.http.access_log import AccessLog
from forewarn.control.http.compression import Compression
from forewarn.control.http.context import Call, CallContext, Context, context, current_context
from forewarn.control.http.errors import (
    MAX_BODY,
    ProblemError,
    RefusedError,
    on_http_exception,
    on_problem,
    on_refused,
    on_store_failed,
    on_unexpected,
)
from forewarn.control.http.idempotency import IdempotencyKeys, Replayed, on_replayed
from forewarn.control.http.parameters import (
    read_parameters,
    refuse_inexact_body,
    refuse_unknown_parameters,
    refuse_unread_body,
)
from forewarn.control.http.responses import response_headers
from forewarn.control.routes import (
    backup,
    calendar,
    clock,
    docs,
    events,
    faults,
    feed,
    fleet,
    groups,
    halts,
    history,
    hosts,
    login,
    machines,
    maintenance,
    notify,
    overview,
    portal,
    rollouts,
    search,
    session,
    status,
    tokens,
    tonight,
    verdict,
)
from forewarn.store.port import StoreFailed
from forewarn.support.convert import decode_json

ROUTES = (
    status,
    clock,
    machines,
    groups,
    events,
    calendar,
    tonight,
    hosts,
    maintenance,
    fleet,
    overview,
    search,
    history,
    rollouts,
    halts,
    backup,
    tokens,
    session,
    faults,
    verdict,
    feed,
    notify,
    docs,
    login,
    portal,
)


class App(Litestar):
    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        """Return only the msgspec plugin. Pydantic is installed because the command line's library
        needs it; its plugin would import both of its versions, a sixth of the start-up time."""
        return [*plugins, MsgspecDIPlugin()]


class ApiRequest(Request[Any, Any, Any]):
    async def json(self) -> Any:
        """Return the body, read by a parser that takes as long for all numbers."""
        try:
            return decode_json(await self.body() or b"null")
        except msgspec.DecodeError as error:
            raise SerializationException(str(error)) from error


class Api:
    """The ASGI application of one service."""

    def __init__(self, context: Context) -> None:
        self.handlers = handlers()
        self._app = AccessLog(Compression(Admission(self.handlers, context)), context)
        self._context = context

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        current_context.set(self._context)
        await self._app(scope, receive, send)


@functools.cache
def handlers() -> Litestar:
    return App(
        [
            handler
            for module in ROUTES
            for handler in vars(module).values()
            if isinstance(handler, HTTPRouteHandler)
        ],
        request_class=ApiRequest,
        guards=[authorize],
        before_request=_refuse_unknown_input,
        request_max_body_size=MAX_BODY,
        dependencies={"call": Provide(_call), "given": Provide(_given, sync_to_thread=False)},
        logging_config=None,
        exception_handlers={
            RefusedError: on_refused,
            feed.Pruned: feed.on_pruned,
            ProblemError: on_problem,
            Replayed: on_replayed,
            StoreFailed: on_store_failed,
            HTTPException: on_http_exception,
            Exception: on_unexpected,
        },
        openapi_config=None,  # `routes/docs.py` serves the document, and a page without scripts
    )


def _given(request: Request[Any, Any, Any], call: Call) -> Any:  # noqa: ARG001
    """Return the parameters of a request that is admitted."""
    return read_parameters(request)


async def _refuse_unknown_input(request: Request[Any, Any, Any]) -> Response[Any] | None:
    return refuse_unknown_parameters(request) or await refuse_unread_body(request)


async def _call(request: Request[Any, Any, Any]) -> CallContext:
    """Bind the platform to this request: its caller, its key and its preconditions."""
    await refuse_inexact_body(request)
    state = request.scope["state"]
    keys: IdempotencyKeys = state["keys"]
    key = await keys.acquire(request)
    precondition = await preconditions.precondition_of(context(), request)
    target = request.url.path, request.scope["query_string"]
    headers = response_headers(request.scope)
    return context().call(state["caller"], headers, key, precondition, target)
