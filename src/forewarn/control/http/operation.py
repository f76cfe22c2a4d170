"""The binding of handlers to the operations that they carry out.

The layers that need to know something about the operation being called (authorization, idempotency
keys, preconditions, bodies) read it from the matched handler, and `openapi.document` describes the
API from the table and the parameters of the handlers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from litestar import delete, get, patch, post, put
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler

from forewarn.control.operations.operation import Operation

_OPTION, _IGNORES = "operation", "ignores"  # in a handler's `opt`
_METHODS: dict[str, Any] = {
    "GET": get,
    "PUT": put,
    "POST": post,
    "PATCH": patch,
    "DELETE": delete,
}
_UNDECLARED = Operation("GET", "", bytes)
PUBLIC = {_OPTION: Operation("GET", "", bytes, public=True)}  # `opt` of a page for browsers


def route(
    operation: Operation[Any], *, ignores: frozenset[str] = frozenset(), **options: Any
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Return the decorator of the handler that carries out an operation. `ignores` are fields of
    its body that only GET shows."""

    def bind(handler: Callable[..., Any]) -> HTTPRouteHandler:
        if not inspect.iscoroutinefunction(handler):
            options["sync_to_thread"] = False
        bound: HTTPRouteHandler = _METHODS[operation.method](
            operation.path.replace("}", ":str}"),
            status_code=operation.status,
            opt={_OPTION: operation, _IGNORES: ignores},
            **options,
        )(handler)
        return bound

    return bind


def operation_of(handler: BaseRouteHandler) -> Operation[Any]:
    """Return the operation of a handler, or one without properties for Litestar's own handlers
    (OPTIONS)."""
    operation = handler.opt.get(_OPTION)
    return operation if isinstance(operation, Operation) else _UNDECLARED


def ignored_fields(handler: BaseRouteHandler) -> frozenset[str]:
    ignores: frozenset[str] = handler.opt.get(_IGNORES, frozenset())
    return ignores
