"""The API's description as JSON and as an HTML page, made here, without scripts and with nothing
that is loaded from elsewhere.

Both are public, so they are made once: the handlers do not change while the service runs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, get
from litestar.response import Redirect

from forewarn.control.http.operation import Operation
from forewarn.control.http.preconditions import bytes_tag
from forewarn.control.http.problems import DOCUMENT_PATH, PAGE
from forewarn.control.http.responses import response_headers
from forewarn.control.openapi.document import document
from forewarn.control.openapi.html import POLICY, rendered

REVALIDATE = "no-cache"  # a browser may keep it, and compares the ETag before it uses it

_public = Operation(id="", tag="service", summary="", public=True)


@get(DOCUMENT_PATH, include_in_schema=False, sync_to_thread=False, **_public.options)
def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    return _cached(request, _described(request.app)[0], MediaType.JSON)


@get(PAGE, include_in_schema=False, sync_to_thread=False, **_public.options)
def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    response_headers(request.scope)["Content-Security-Policy"] = POLICY
    return _cached(request, _described(request.app)[1], MediaType.HTML)


@get("/", include_in_schema=False, sync_to_thread=False, opt=_public.options["opt"])
def root() -> Redirect:
    return Redirect(PAGE)


@cache
def _described(app: Litestar) -> tuple[bytes, bytes]:
    """Return the document and the page."""
    description = document(app)
    return msgspec.json.encode(description), rendered(description).encode()


def _cached(request: Request[Any, Any, Any], content: bytes, media_type: str) -> Response[bytes]:
    headers = response_headers(request.scope)
    headers["ETag"], headers["Cache-Control"] = bytes_tag(content), REVALIDATE
    return Response(content, media_type=media_type)
