"""Injected faults in the control API. They can hide events from a fleet, so they need the role
admin. They are not stored, so only the log records who added them."""

from __future__ import annotations

from litestar.params import JSONBody

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.orders import Place, in_order
from forewarn.control.http.paging import parse_name_cursor
from forewarn.control.http.parameters import Name, Parameters
from forewarn.control.http.requests import arguments
from forewarn.control.operations import faults as operations
from forewarn.control.schema import faults as f
from forewarn.control.schema import queries as q
from forewarn.control.views import faults as views
from forewarn.service.faults.model import FaultAccount
from forewarn.service.faults.validate import NewFault
from forewarn.support.logs import logger

log = logger("forewarn.control")


@route(operations.ADD_FAULT)
async def add_fault(call: Call, data: JSONBody[f.FaultRequest]) -> f.Fault:
    """Faults are not stored: they end when the service stops. See "Faults" in the
    documentation."""
    added = unwrap(context().faults.add(NewFault(**arguments(data, NewFault)), call.by))
    log.info("a fault was added", by=call.by, fault=added.fault.id, kind=data.kind)
    call.headers["Location"] = f"/v1/faults/{added.fault.id}"
    return views.fault(added)


@route(operations.LIST_FAULTS)
def list_faults(call: Call, given: Parameters[q.PageQuery]) -> list[f.Fault]:
    """In the order in which they were added, including faults that are used up."""

    def place(account: FaultAccount) -> Place:
        return account.fault.id, ""

    after = parse_name_cursor(given.after)
    later = in_order(context().faults.all(), place, after, given.limit + 1)
    page = call.take_page(later, given.limit, place)
    return [views.fault(account) for account in page]


@route(operations.GET_FAULT)
def get_fault(id: Name) -> f.Fault:
    return views.fault(unwrap(context().faults.find(id)))


@route(operations.CLEAR_FAULT)
async def clear_fault(call: Call, id: Name) -> f.Fault:
    """Returns the fault as it was when it was cleared."""
    (cleared,) = unwrap(context().faults.clear(id))
    log.info("faults were cleared", by=call.by, faults=1)
    return views.fault(cleared)


@route(operations.CLEAR_FAULTS)
async def clear_faults(call: Call) -> list[f.Fault]:
    """Returns the faults as they were when they were cleared."""
    cleared = unwrap(context().faults.clear())
    log.info("faults were cleared", by=call.by, faults=len(cleared))
    return [views.fault(account) for account in cleared]
