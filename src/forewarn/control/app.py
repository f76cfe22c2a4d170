"""The control API: HTTP in, verbs of the platform, shapes of `schema` out. Decides nothing.

Problems are RFC 9457. Which requests are admitted is decided in `http/admission.py`; the handlers
are in `routes`, by subject.
"""

from __future__ import annotations

import functools
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from forewarn.control.http.access_log import AccessLog
from forewarn.control.http.admission import Admission
from forewarn.control.http.ask import ask
from forewarn.control.http.authorization import decided
from forewarn.control.http.bodies import refuse_unread_body
from forewarn.control.http.context import Context, came_to
from forewarn.control.http.errors import (
    MAX_BODY,
    ProblemError,
    RefusedError,
    http_problem,
    not_stored,
    refused,
    refused_here,
    surprise,
)
from forewarn.control.http.idempotency import IdempotencyKeys, Replayed, replayed
from forewarn.control.http.parameters import known_only
from forewarn.control.http.responses import RequestIds, ResponseHeaders
from forewarn.control.routes import (
    backup,
    clock,
    docs,
    events,
    faults,
    feed,
    fleet,
    health,
    history,
    hosts,
    machines,
    rollouts,
    status,
    tokens,
    verdict,
)
from forewarn.store.port import StoreFailed

ROOMS = (
    status,
    clock,
    machines,
    events,
    hosts,
    fleet,
    history,
    rollouts,
    backup,
    tokens,
    faults,
    verdict,
    feed,
    health,
    docs,
)


class App(Litestar):
    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        """Only msgspec's. Pydantic is there because the commands' library needs it; to look at it,
        and at its first version besides, would take a sixth of the time that a start takes."""
        return [*plugins, MsgspecDIPlugin()]


class Api:
    """An ASGI application: the handlers, at one service's desk."""

    def __init__(self, desk: Context) -> None:
        self.handlers = handlers()
        keys = IdempotencyKeys(desk)
        self._app = RequestIds(
            AccessLog(Admission(ResponseHeaders(self.handlers, keys), desk), desk)
        )
        self._desk = desk

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        came_to.set(self._desk)
        await self._app(scope, receive, send)


async def _refuse_unknown_input(request: Request[Any, Any, Any]) -> Response[Any] | None:
    return known_only(request) or await refuse_unread_body(request)


@functools.cache
def handlers() -> Litestar:
    return App(
        [handler for room in ROOMS for handler in room.handlers(came_to.get)],
        guards=[decided],
        before_request=_refuse_unknown_input,
        request_max_body_size=MAX_BODY,
        dependencies={"ask": Provide(ask)},
        logging_config=None,
        exception_handlers={
            RefusedError: refused,
            feed.Gone: feed.gone,
            ProblemError: refused_here,
            Replayed: replayed,
            StoreFailed: not_stored,
            HTTPException: http_problem,
            Exception: surprise,
        },
        openapi_config=None,  # it would load pages from elsewhere: see `routes/docs.py`
    )
