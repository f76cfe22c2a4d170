"""Faults in the control API: what is to go wrong on purpose. They can blind a fleet, so only an
admin may; and they are kept nowhere, so the log is all there is of who did."""

from __future__ import annotations

from typing import Any

from litestar import Request, delete, get, post
from litestar.params import JSONBody

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import allowed, length
from forewarn.control.http.operation import REPEATABLE, Operation, links_to
from forewarn.control.http.paging import MAX_PAGE, After, Limit, cut, linked, named_mark, natural
from forewarn.control.http.parameters import Name
from forewarn.control.schema import faults as f
from forewarn.control.schema.core import time_of
from forewarn.core.access import Role
from forewarn.service.faults.model import FaultAccount
from forewarn.service.faults.validate import NewFault
from forewarn.support.logs import logger

log = logger("forewarn.control")


@post(
    "/v1/faults",
    **Operation(
        id="addFault",
        tag="faults",
        summary="Add a fault",
        status=201,
        role=Role.ADMIN,
        keyless="nothing of it is stored",
        refuses=(404, 409),
        links=links_to("getFault", "clearFault", parameter="id", place="id"),
        commands=("fault add",),
        command_example="fault add gone --machine web_0 --times 3",
        example={"kind": "gone", "machines": ["web_0"], "times": 3},
    ).options,
)
async def add_fault(call: Call, data: JSONBody[f.FaultRequest]) -> f.Fault:
    added = allowed(context().faults.add(wanted(data), call.by))
    log.info("a fault was added", by=call.by, fault=added.fault.id, kind=data.kind)
    call.headers["Location"] = f"/v1/faults/{added.fault.id}"
    return view(added)


@get(
    "/v1/faults",
    sync_to_thread=False,
    **Operation(
        id="listFaults",
        tag="faults",
        summary="List faults, with what has come of them",
        role=Role.ADMIN,
        paged=True,
        links=links_to("getFault", parameter="id", place="0/id"),
        commands=("fault list",),
        command_example="fault list",
    ).options,
)
def list_faults(
    request: Request[Any, Any, Any], call: Call, limit: Limit = MAX_PAGE, after: After = None
) -> list[f.Fault]:
    """In the order in which they were added, those that are used up too."""
    ends = named_mark(after)
    behind = (
        account
        for account in context().faults.all()
        if ends is None or natural(account.fault.id) > natural(ends[0])
    )
    page, more = cut(behind, limit)
    if more:
        last = (page[-1].fault.id,)
        linked(call.headers, request.url.path, request.scope["query_string"], last)
    return [view(account) for account in page]


@get(
    "/v1/faults/{id:str}",
    sync_to_thread=False,
    **Operation(
        id="getFault",
        tag="faults",
        summary="Get a fault",
        role=Role.ADMIN,
        command_example="fault list",
    ).options,
)
def get_fault(id: Name) -> f.Fault:
    return view(allowed(context().faults.find(id)))


@delete(
    "/v1/faults/{id:str}",
    **Operation(
        id="clearFault",
        tag="faults",
        summary="Clear a fault",
        role=Role.ADMIN,
        keyless=REPEATABLE,
        commands=("fault clear",),
        command_example="fault clear f1",
    ).options,
)
async def clear_fault(call: Call, id: Name) -> f.Fault:
    """The answer says for the last time what has come of it."""
    (cleared,) = allowed(context().faults.clear(id))
    log.info("faults were cleared", by=call.by, faults=1)
    return view(cleared)


@delete(
    "/v1/faults",
    **Operation(
        id="clearFaults",
        tag="faults",
        summary="Clear all faults",
        role=Role.ADMIN,
        keyless=REPEATABLE,
        commands=("fault clear",),
        command_example="fault clear",
    ).options,
)
async def clear_faults(call: Call) -> list[f.Fault]:
    cleared = allowed(context().faults.clear())
    log.info("faults were cleared", by=call.by, faults=len(cleared))
    return [view(account) for account in cleared]


def wanted(data: f.FaultRequest) -> NewFault:
    return NewFault(
        kind=data.kind,
        machines=tuple(data.machines),
        groups=tuple(data.groups),
        method=data.method,
        times=data.times,
        skip=data.skip,
        starts_in=None if data.starts_in is None else length("starts_in", data.starts_in),
        lasts=None if data.lasts is None else length("lasts", data.lasts),
        probability=data.probability,
        seed=data.seed,
        seconds=data.seconds,
        status=data.status,
        body=data.body,
        takes_effect=data.takes_effect,
    )


def view(account: FaultAccount) -> f.Fault:
    fault = account.fault
    return f.Fault(
        id=fault.id,
        kind=fault.kind.value,
        state=account.state,
        message=account.says,
        machines=list(fault.machines),
        groups=list(fault.groups),
        method=fault.method,
        times=fault.times,
        skip=fault.skip,
        starts_at=time_of(fault.begins),
        ends_at=None if fault.ends is None else time_of(fault.ends),
        probability=fault.probability,
        seed=fault.seed,
        seconds=fault.seconds,
        status=fault.status,
        body=fault.body,
        takes_effect=fault.takes_effect,
        added_at=time_of(fault.added_at),
        added_by=fault.by,
        matched=account.matched,
        consumed=account.consumed,
        remaining=account.left,
        by_machine=account.by_machine,
        last_at=None if account.last_at is None else time_of(account.last_at),
    )
