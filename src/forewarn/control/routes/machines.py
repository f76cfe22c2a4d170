"""Machines and groups in the control API: what there is, and what users ask for."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery

from forewarn.control.http import authorization, filters
from forewarn.control.http.authorization import KEEPS_LIMITS
from forewarn.control.http.context import Ask, AtHand
from forewarn.control.http.errors import RefusedError, allowed, aside, named, outcome, selector
from forewarn.control.http.filters import MachineFilter
from forewarn.control.http.paging import MAX_PAGE, After, Limit, cut, linked, named_mark
from forewarn.control.http.preconditions import group_tag, machine_tag
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import EventType, Group, GroupKind
from forewarn.core.fleet import Health
from forewarn.core.refusal import unknown


def handlers(desk: AtHand) -> list[Any]:
    @get("/v1/machines", responses={200: ResponseSpec(list[s.Machine])}, opt=KEEPS_LIMITS)
    async def machines(
        request: Request[Any, Any, Any],
        ask: Ask,
        group: FromQuery[str | None] = None,
        label: FromQuery[str | None] = None,
        host: FromQuery[str | None] = None,
        health: FromQuery[str | None] = None,
        gone: FromQuery[bool | None] = None,
        listening: FromQuery[bool | None] = None,
        limit: Limit = MAX_PAGE,
        after: After = None,
    ) -> Response[bytes]:
        """By the names of their groups, then by their own; `health` is that of the host it is on,
        `listening` whether its group asks for its events."""
        if group is not None:
            authorization.group(ask, group)
        if host is not None:
            authorization.host(ask, host, whole=False)
            allowed(desk().hosts.host(host))
        wanted = MachineFilter(
            labels=selector(label) or (),
            host=host,
            gone=gone,
            listening=listening,
            health=None if health is None else named(Health, "health of a host", health),
        )
        every = (one for one in desk().platform.machine_index.groups() if ask.sees(one.name))
        there = list(every) if group is None else [known_group(group)]
        hosts = desk().store.registry.hosts
        ends = named_mark(after)

        def health_of(name: str) -> Health | None:
            return hosts[name].health if name in hosts else None

        def page() -> list[s.Machine]:
            found, more = cut(filters.machines(there, wanted, health_of, ends), limit)
            if more:
                last = (found[-1][0].name, found[-1][1].name)
                linked(ask.heads, request.url.path, request.scope["query_string"], last)
            return core.machines(found, desk().platform.poll_index.polls, desk().url_of)

        return await aside(page)

    def one_machine(name: str) -> s.Machine:
        found = desk().platform.machine_index.machine(name)
        if found is None:
            raise RefusedError(unknown(desk().platform.machine_index.unknown_machine(name)))
        return core.machine(*found, desk().platform.poll_index.polls(name), desk().url_of)

    def known_group(name: str) -> Group:
        found = desk().platform.machine_index.group(name)
        if found is None:
            raise RefusedError(unknown(desk().platform.machine_index.unknown_group(name)))
        return found

    def one_group(name: str) -> s.Group:
        return core.group(known_group(name))

    @get("/v1/machines/{name:str}", sync_to_thread=False, opt=KEEPS_LIMITS)
    def machine(ask: Ask, name: FromPath[str]) -> s.Machine:
        authorization.machines(ask, name)
        shown = one_machine(name)
        found = desk().platform.machine_index.machine(name)
        ask.heads["ETag"] = machine_tag(*found) if found else ""
        return shown

    @post("/v1/machines/{name:str}/restart", status_code=200, opt=KEEPS_LIMITS)
    async def restart(ask: Ask, name: FromPath[str]) -> s.Outcome:
        authorization.machines(ask, name)
        return outcome(await ask.platform.user_maintenance(name, EventType.REBOOT, ask.by))

    @post("/v1/machines/{name:str}/redeploy", status_code=200, opt=KEEPS_LIMITS)
    async def redeploy(ask: Ask, name: FromPath[str]) -> s.Outcome:
        authorization.machines(ask, name)
        return outcome(await ask.platform.user_maintenance(name, EventType.REDEPLOY, ask.by))

    @post("/v1/machines/{name:str}/restore", status_code=200, opt=KEEPS_LIMITS)
    async def restore(ask: Ask, name: FromPath[str]) -> s.Restored:
        authorization.machines(ask, name)
        notes = list(allowed(await ask.platform.restore(name, ask.by)))
        return s.Restored(**msgspec.structs.asdict(one_machine(name)), notes=notes)

    @get("/v1/groups", responses={200: ResponseSpec(list[s.Group])}, opt=KEEPS_LIMITS)
    async def groups(
        request: Request[Any, Any, Any],
        ask: Ask,
        label: FromQuery[str | None] = None,
        kind: FromQuery[str | None] = None,
        enabled: FromQuery[bool | None] = None,
        limit: Limit = MAX_PAGE,
        after: After = None,
    ) -> Response[bytes]:
        """By their names."""
        labels, ends = selector(label) or (), named_mark(after)
        wanted = None if kind is None else named(GroupKind, "kind of group", kind)
        there = [one for one in desk().platform.machine_index.groups() if ask.sees(one.name)]

        def page() -> list[s.Group]:
            found, more = cut(filters.groups(there, labels, wanted, enabled, ends), limit)
            if more:
                last = (found[-1].name,)
                linked(ask.heads, request.url.path, request.scope["query_string"], last)
            return [core.group(group) for group in found]

        return await aside(page)

    @get("/v1/groups/{name:str}", sync_to_thread=False, opt=KEEPS_LIMITS)
    def group(ask: Ask, name: FromPath[str]) -> s.Group:
        authorization.group(ask, name)
        ask.heads["ETag"] = group_tag(known_group(name))
        return one_group(name)

    @post("/v1/groups/{name:str}/disable", status_code=200, opt=KEEPS_LIMITS)
    async def disable(ask: Ask, name: FromPath[str]) -> s.Group:
        authorization.group(ask, name)
        allowed(await ask.platform.disable(name, ask.by))
        return one_group(name)

    return [machines, machine, restart, redeploy, restore, groups, group, disable]
