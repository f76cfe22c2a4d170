"""Machines and groups in the control API: what there is, and what users ask for."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, QueryParameter

from forewarn.control import schema as s
from forewarn.control import views
from forewarn.control.answers import RefusedError, allowed, aside, outcome, selector
from forewarn.control.desk import Ask, Desk
from forewarn.core import EventType, Group
from forewarn.core.refusal import unknown
from forewarn.core.selection import matches

MAX_MACHINES = 1_000_000  # machines in one answer, and how many are unless somebody says


def handlers(desk: Desk) -> list[Any]:
    platform = desk.platform

    @get("/v1/machines", responses={200: ResponseSpec(list[s.Machine])})
    async def machines(
        group: FromQuery[str | None] = None,
        label: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_MACHINES)] = MAX_MACHINES,
        after: FromQuery[str | None] = None,
    ) -> Response[bytes]:
        """In the order of the inventory; `after` is the last machine of the page before."""
        wanted = selector(label) or ()
        every = platform.inventory.groups()
        there = list(every) if group is None else [known_group(group)]
        if after is not None and platform.inventory.machine(after) is None:
            raise RefusedError(unknown(platform.inventory.unknown_machine(after)))
        polls = platform.witness.polls
        return await aside(
            lambda: list(islice(views.machines(there, wanted, polls, desk.url_of, after), limit))
        )

    def one_machine(name: str) -> s.Machine:
        found = platform.inventory.machine(name)
        if found is None:
            raise RefusedError(unknown(platform.inventory.unknown_machine(name)))
        return views.machine(*found, platform.witness.polls(name), desk.url_of)

    def known_group(name: str) -> Group:
        found = platform.inventory.group(name)
        if found is None:
            raise RefusedError(unknown(platform.inventory.unknown_group(name)))
        return found

    def one_group(name: str) -> s.Group:
        return views.group(known_group(name))

    @get("/v1/machines/{name:str}", sync_to_thread=False)
    def machine(name: FromPath[str]) -> s.Machine:
        return one_machine(name)

    @post("/v1/machines/{name:str}/restart", status_code=200)
    async def restart(ask: Ask, name: FromPath[str]) -> s.Outcome:
        return outcome(await ask.platform.maintain(name, EventType.REBOOT, ask.by))

    @post("/v1/machines/{name:str}/redeploy", status_code=200)
    async def redeploy(ask: Ask, name: FromPath[str]) -> s.Outcome:
        return outcome(await ask.platform.maintain(name, EventType.REDEPLOY, ask.by))

    @post("/v1/machines/{name:str}/restore", status_code=200)
    async def restore(ask: Ask, name: FromPath[str]) -> s.Restored:
        notes = list(allowed(await ask.platform.restore(name, ask.by)))
        return s.Restored(**msgspec.structs.asdict(one_machine(name)), notes=notes)

    @get("/v1/groups", responses={200: ResponseSpec(list[s.Group])})
    async def groups(label: FromQuery[str | None] = None) -> Response[bytes]:
        wanted = selector(label) or ()
        there = list(platform.inventory.groups())
        return await aside(
            lambda: [views.group(group) for group in there if matches(wanted, group.labels)]
        )

    @get("/v1/groups/{name:str}", sync_to_thread=False)
    def group(name: FromPath[str]) -> s.Group:
        return one_group(name)

    @post("/v1/groups/{name:str}/disable", status_code=200)
    async def disable(ask: Ask, name: FromPath[str]) -> s.Group:
        allowed(await ask.platform.disable(name, ask.by))
        return one_group(name)

    return [machines, machine, restart, redeploy, restore, groups, group, disable]
