"""The API's page: its own document as HTML, made here, with nothing from elsewhere, no script.

Anybody may ask for it, so it is made once: the handlers do not change while the service runs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, get
from litestar.response import Redirect

from forewarn.control.http.authorization import OPEN
from forewarn.control.http.preconditions import bytes_tag
from forewarn.control.http.problems import PAGE
from forewarn.control.http.responses import heads_of
from forewarn.control.openapi.document import PATH, document
from forewarn.control.openapi.html import POLICY, rendered

ASK_AGAIN = "no-cache"  # it may be kept, and is compared with what there is before it is used


def handlers(_desk: object) -> list[Any]:
    @cache
    def described(app: Litestar) -> tuple[bytes, bytes]:
        """The document, and the page."""
        made = document(app)
        return msgspec.json.encode(made), rendered(made).encode()

    def kept(request: Request[Any, Any, Any], what: bytes, kind: str) -> Response[bytes]:
        heads = heads_of(request.scope)
        heads["ETag"], heads["Cache-Control"] = bytes_tag(what), ASK_AGAIN
        return Response(what, media_type=kind)

    @get(PATH, opt=dict(OPEN), include_in_schema=False, sync_to_thread=False)
    def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
        return kept(request, described(request.app)[0], MediaType.JSON)

    @get(PAGE, opt=dict(OPEN), include_in_schema=False, sync_to_thread=False)
    def page(request: Request[Any, Any, Any]) -> Response[bytes]:
        heads_of(request.scope)["Content-Security-Policy"] = POLICY
        return kept(request, described(request.app)[1], MediaType.HTML)

    @get("/", opt=dict(OPEN), include_in_schema=False, sync_to_thread=False)
    def root() -> Redirect:
        return Redirect(PAGE)

    return [openapi, page, root]
