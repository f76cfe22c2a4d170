"""Halts in the control API: nothing that a halt covers starts until it is released."""

from __future__ import annotations

from litestar.params import JSONBody

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import parse_selector, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.paging import parse_time_cursor
from forewarn.control.http.parameters import Id, Parameters
from forewarn.control.operations import halts as operations
from forewarn.control.schema import halts as h
from forewarn.control.schema import queries as q
from forewarn.control.views import halts as view
from forewarn.service.platform.halts import HaltReport


@route(operations.PLACE_HALT)
async def place_halt(call: Call, data: JSONBody[h.HaltRequest]) -> h.Halt:
    """Until the halt is released, no event that it covers starts, no matter who has announced,
    approved or requested it. Events that have started continue, and failures are still recorded.
    If there already is such a halt, it is returned. With `plan`, nothing is changed: the response
    says what the halt would cover."""
    parse_selector(data.label)
    parse_selector(data.host_label)
    placed = await context().halts.place(
        by=call.by,
        note=data.note,
        groups=data.groups,
        label=data.label,
        host_label=data.host_label,
        plan=data.plan,
    )
    return view.halt(unwrap(placed))


@route(operations.LIST_HALTS)
async def list_halts(call: Call, given: Parameters[q.TimedPageQuery]) -> list[h.Halt]:
    """Ordered by age, the oldest first. A token that is limited to groups sees the halts that cover
    any of them."""
    standing = await context().halts.list(call.sees if call.limited else None)
    page = call.page(standing, given.limit, _key, parse_time_cursor(given.after))
    return [view.halt(report) for report in page]


def _key(report: HaltReport) -> tuple[bool, int, str]:
    return False, report.halt.at, report.halt.id


@route(operations.GET_HALT)
async def get_halt(id: Id) -> h.Halt:
    return view.halt(unwrap(await context().halts.report(id)))


@route(operations.RELEASE_HALT)
async def release_halt(call: Call, id: Id, data: JSONBody[h.ReleaseRequest]) -> h.Halt:
    """Events that waited only for this halt start as soon as their approval, their notice and
    their update domains allow."""
    return view.halt(unwrap(await context().halts.release(id, call.by, data.note)))
