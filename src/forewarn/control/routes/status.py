"""How the service stands: its size, its numbers."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get

from forewarn import __version__
from forewarn.control.http.authorization import KEEPS_LIMITS
from forewarn.control.http.context import Ask, AtHand
from forewarn.control.routes import metrics
from forewarn.control.routes.clock import clock_of
from forewarn.control.schema import core as s


def handlers(desk: AtHand) -> list[Any]:
    @get("/v1/status", sync_to_thread=False, opt=KEEPS_LIMITS)
    def status(ask: Ask) -> s.Status:
        groups = [group for group in desk().platform.machine_index.groups() if ask.sees(group.name)]
        return s.Status(
            version=__version__,
            clock=clock_of(desk(), desk().platform.writer.now(), ask),
            metadata=next(iter(desk().metadata()), ""),
            metadata_urls=desk().metadata(),
            groups=len(groups),
            machines=sum(len(group.machines) for group in groups),
            events=sum(ask.sees(event.group) for event in desk().platform.active()),
        )

    @get("/metrics", media_type=metrics.CONTENT_TYPE, sync_to_thread=False)
    def numbers(request: Request[Any, Any, Any]) -> Response[bytes]:
        text, kind = metrics.exposition(desk().readings(), request.headers.get("accept", ""))
        return Response(text, media_type=kind)

    return [status, numbers]
