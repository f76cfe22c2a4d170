"""Faults in the control API: what is to go wrong on purpose. They can blind a fleet, so only an
admin may; and they are kept nowhere, so the log is all there is of who did."""

from __future__ import annotations

from typing import Any

from litestar import Request, delete, get, post
from litestar.params import FromPath, JSONBody

from forewarn.control.http.authorization import ADMIN
from forewarn.control.http.context import Ask, AtHand
from forewarn.control.http.errors import allowed, length
from forewarn.control.http.paging import MAX_PAGE, After, Limit, cut, linked, named_mark, natural
from forewarn.control.schema import faults as f
from forewarn.control.schema.core import time_of
from forewarn.service.faults.model import Account
from forewarn.service.faults.validate import NewFault
from forewarn.support.logs import logger

log = logger("forewarn.control")


def handlers(desk: AtHand) -> list[Any]:
    @post("/v1/faults", status_code=201, opt=dict(ADMIN))
    async def fault_add(ask: Ask, data: JSONBody[f.FaultRequest]) -> f.Fault:
        added = allowed(desk().faults.add(wanted(data), ask.by))
        log.info("a fault was added", by=ask.by, fault=added.fault.id, kind=data.kind)
        ask.heads["Location"] = f"/v1/faults/{added.fault.id}"
        return view(added)

    @get("/v1/faults", opt=dict(ADMIN), sync_to_thread=False)
    def faults_list(
        request: Request[Any, Any, Any], ask: Ask, limit: Limit = MAX_PAGE, after: After = None
    ) -> list[f.Fault]:
        """In the order in which they were added, those that are used up too."""
        ends = named_mark(after)
        behind = (
            account
            for account in desk().faults.all()
            if ends is None or natural(account.fault.id) > natural(ends[0])
        )
        page, more = cut(behind, limit)
        if more:
            last = (page[-1].fault.id,)
            linked(ask.heads, request.url.path, request.scope["query_string"], last)
        return [view(account) for account in page]

    @get("/v1/faults/{id:str}", opt=dict(ADMIN), sync_to_thread=False)
    def fault_show(id: FromPath[str]) -> f.Fault:
        return view(allowed(desk().faults.find(id)))

    @delete("/v1/faults/{id:str}", status_code=200, opt=dict(ADMIN))
    async def fault_clear(ask: Ask, id: FromPath[str]) -> f.Fault:
        """The answer says for the last time what has come of it."""
        (cleared,) = allowed(desk().faults.clear(id))
        log.info("faults were cleared", by=ask.by, faults=1)
        return view(cleared)

    @delete("/v1/faults", status_code=200, opt=dict(ADMIN))
    async def faults_clear(ask: Ask) -> list[f.Fault]:
        cleared = allowed(desk().faults.clear())
        log.info("faults were cleared", by=ask.by, faults=len(cleared))
        return [view(account) for account in cleared]

    return [fault_add, faults_list, fault_show, fault_clear, faults_clear]


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


def view(account: Account) -> f.Fault:
    fault = account.fault
    return f.Fault(
        id=fault.id,
        kind=fault.kind.value,
        state=account.state,
        says=account.says,
        machines=list(fault.machines),
        groups=list(fault.groups),
        method=fault.method,
        times=fault.times,
        skip=fault.skip,
        begins=time_of(fault.begins),
        ends=None if fault.ends is None else time_of(fault.ends),
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
        left=account.left,
        by_machine=account.by_machine,
        last_at=None if account.last_at is None else time_of(account.last_at),
    )
