"""The OpenAPI document, and an HTML page that is generated from it, without scripts or external
resources.

Both are generated once, since the handlers do not change while the service runs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, get
from litestar.response import Redirect

from forewarn.control.http.context import context
from forewarn.control.http.operation import PUBLIC
from forewarn.control.http.preconditions import bytes_tag
from forewarn.control.http.problems import DOCUMENT_PATH, PAGE
from forewarn.control.http.responses import response_headers
from forewarn.control.openapi.document import document
from forewarn.control.openapi.html import POLICY, render

REVALIDATE = "no-cache"  # a browser may store it, and revalidates it by its ETag


@get(DOCUMENT_PATH, sync_to_thread=False, opt=PUBLIC)
def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    return _cached(request, _generated(request.app)[0], MediaType.JSON)


@get(PAGE, sync_to_thread=False, opt=PUBLIC)
def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    response_headers(request.scope)["Content-Security-Policy"] = POLICY
    return _cached(request, _generated(request.app)[1], MediaType.HTML)


@get("/", sync_to_thread=False, opt=PUBLIC)
def root() -> Redirect:
    return Redirect("/ui/" if context().portal else PAGE)


@cache
def _generated(app: Litestar) -> tuple[bytes, bytes]:
    """Return the OpenAPI document and the HTML page."""
    description = document(app)
    return msgspec.json.encode(description), render(description).encode()


def _cached(request: Request[Any, Any, Any], content: bytes, media_type: str) -> Response[bytes]:
    headers = response_headers(request.scope)
    headers["ETag"], headers["Cache-Control"] = bytes_tag(content), REVALIDATE
    return Response(content, media_type=media_type)
