"""Halts in the control API: nothing that a halt covers starts until it is released."""

from __future__ import annotations

from typing import Any

from litestar import Request, get, post
from litestar.params import JSONBody

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import parse_selector, unwrap
from forewarn.control.http.operation import REPEATABLE, Operation, links_to
from forewarn.control.http.paging import (
    MAX_PAGE,
    Limit,
    TimedAfter,
    add_next_link,
    parse_time_cursor,
    take_page,
)
from forewarn.control.http.parameters import Id
from forewarn.control.schema import halts as h
from forewarn.control.views import halts as view
from forewarn.service.platform.halts import HaltReport


@post(
    "/v1/halts",
    **Operation(
        id="placeHalt",
        tag="halts",
        summary="Halt the fleet, or a part of it",
        status=200,
        why_no_key=REPEATABLE,
        refuses=(404, 409),
        links=links_to("getHalt", "releaseHalt", parameter="id", place="id"),
        commands=("halt place",),
        command_example="halt place --label rack=r7 --note 'smoke in row 7'",
        example={"label": "tier=web", "note": "smoke in row 7"},
    ).options,
)
async def place_halt(call: Call, data: JSONBody[h.HaltRequest]) -> h.Halt:
    """Until the halt is released, no event that it covers starts, no matter who has announced,
    approved or requested it. Events that have started continue, and failures are still recorded.
    If there already is such a halt, it is returned."""
    parse_selector(data.label)
    parse_selector(data.host_label)
    placed = await context().halts.place(
        by=call.by,
        note=data.note,
        groups=data.groups,
        label=data.label,
        host_label=data.host_label,
    )
    return view.halt(unwrap(placed))


@get(
    "/v1/halts",
    **Operation(
        id="listHalts",
        tag="halts",
        summary="List active halts",
        respects_limits=True,
        paged=True,
        links=links_to("getHalt", "releaseHalt", parameter="id", place="0/id"),
        commands=("halt list", "status"),
        command_example="halt list",
    ).options,
)
async def list_halts(
    request: Request[Any, Any, Any], call: Call, limit: Limit = MAX_PAGE, after: TimedAfter = None
) -> list[h.Halt]:
    """Ordered by age, the oldest first. A token that is limited to groups sees the halts that cover
    any of them."""
    cursor = parse_time_cursor(after)
    standing = await context().halts.list(call.sees if call.limited else None)
    page, more = take_page((r for r in standing if cursor is None or _key(r) > cursor), limit)
    if more:
        last = _key(page[-1])
        add_next_link(call.headers, request.url.path, request.scope["query_string"], last)
    return [view.halt(report) for report in page]


def _key(report: HaltReport) -> tuple[bool, int, str]:
    return False, report.halt.at, report.halt.id


@get(
    "/v1/halts/{id:str}",
    **Operation(
        id="getHalt",
        tag="halts",
        summary="Get an active halt",
        refuses=(409,),
        command_example="halt list",
    ).options,
)
async def get_halt(id: Id) -> h.Halt:
    return view.halt(unwrap(await context().halts.report(id)))


@post(
    "/v1/halts/{id:str}/release",
    **Operation(
        id="releaseHalt",
        tag="halts",
        summary="Release a halt",
        status=200,
        why_no_key="a halt that has been released cannot be released again",
        refuses=(409,),
        commands=("halt release",),
        command_example="halt release 4933F66C",
        example={"note": "row 7 is fine"},
    ).options,
)
async def release_halt(call: Call, id: Id, data: JSONBody[h.ReleaseRequest]) -> h.Halt:
    """Events that waited only for this halt start as soon as their approval, their notice and
    their update domains allow."""
    return view.halt(unwrap(await context().halts.release(id, call.by, data.note)))
