"""The API's page: its own document as HTML, made here, with nothing from elsewhere, no script."""

from __future__ import annotations

from typing import Any

from litestar import MediaType, Request, Response, get
from litestar.response import Redirect

from forewarn.control.access import OPEN
from forewarn.control.document import PATH, document
from forewarn.control.problems import PAGE
from forewarn.control.rendering import POLICY, rendered


def handlers(_desk: object) -> list[Any]:
    made: dict[str, Any] = {}

    def described(request: Request[Any, Any, Any]) -> dict[str, Any]:
        if not made:  # once: the handlers do not change
            made.update(document(request.app))
        return made

    @get(PATH, opt=dict(OPEN), include_in_schema=False, sync_to_thread=False)
    def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
        return described(request)

    @get(PAGE, opt=dict(OPEN), include_in_schema=False, sync_to_thread=False)
    def page(request: Request[Any, Any, Any]) -> Response[str]:
        return Response(
            rendered(described(request)),
            media_type=MediaType.HTML,
            headers={"Content-Security-Policy": POLICY},
        )

    @get("/", opt=dict(OPEN), include_in_schema=False, sync_to_thread=False)
    def root() -> Redirect:
        return Redirect(PAGE)

    return [openapi, page, root]
