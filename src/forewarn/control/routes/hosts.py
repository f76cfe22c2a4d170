"""What can happen to machines, groups and hosts: the handlers of these verbs."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody

from forewarn.control.http import authorization, filters
from forewarn.control.http.authorization import KEEPS_LIMITS
from forewarn.control.http.context import Ask, AtHand
from forewarn.control.http.errors import allowed, aside, instant, length, named, outcome, selector
from forewarn.control.http.paging import MAX_PAGE, After, Limit, cut, linked, named_mark
from forewarn.control.http.preconditions import host_tag
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import EventType, Policy
from forewarn.core.fleet import Health
from forewarn.service.platform.hosts import DEGRADED_NOTICE, MaintenanceMode


def handlers(desk: AtHand) -> list[Any]:
    @post("/v1/machines/{name:str}/evict", status_code=200, opt=KEEPS_LIMITS)
    async def evict(ask: Ask, name: FromPath[str]) -> s.Outcome:
        authorization.machines(ask, name)
        return outcome(await ask.removals.evict(name, ask.by))

    @post("/v1/machines/{name:str}/delete", status_code=200, opt=KEEPS_LIMITS)
    async def delete(ask: Ask, name: FromPath[str]) -> s.Outcome:
        authorization.machines(ask, name)
        return outcome(await ask.removals.delete(name, ask.by))

    @post("/v1/machines/{name:str}/fail", status_code=200, opt=KEEPS_LIMITS)
    async def fail_machine(
        ask: Ask, name: FromPath[str], data: JSONBody[s.FailMachineRequest]
    ) -> s.Outcome:
        authorization.machines(ask, name)
        type = named(EventType, "type", data.type)
        return outcome(await ask.removals.fail(name, type, ask.by))

    @post("/v1/groups/{name:str}/evict", status_code=200, opt=KEEPS_LIMITS)
    async def evict_group(ask: Ask, name: FromPath[str]) -> s.Outcomes:
        authorization.scale_set(ask, name)
        return core.outcomes(allowed(await ask.removals.evict_all(name, ask.by)))

    @post("/v1/groups/{name:str}/scale-in", status_code=200, opt=KEEPS_LIMITS)
    async def scale_in(
        ask: Ask, name: FromPath[str], data: JSONBody[s.ScaleInRequest]
    ) -> s.Outcomes:
        authorization.scale_set(ask, name)
        return core.outcomes(
            allowed(await ask.removals.scale_in(name, ask.by, count=data.count, to=data.to))
        )

    @patch("/v1/groups/{name:str}/policy", status_code=200, opt=KEEPS_LIMITS)
    async def policy(ask: Ask, name: FromPath[str], data: JSONBody[s.PolicyRequest]) -> s.Group:
        authorization.group(ask, name)
        _policy(Policy(), data)  # what cannot be meant is refused before anything is changed
        done = await ask.platform.set_policy(name, lambda was: _policy(was, data), ask.by)
        return core.group(allowed(done))

    @get("/v1/hosts", responses={200: ResponseSpec(list[s.Host])}, opt=KEEPS_LIMITS)
    async def list_hosts(
        request: Request[Any, Any, Any],
        ask: Ask,
        label: FromQuery[str | None] = None,
        health: FromQuery[str | None] = None,
        limit: Limit = MAX_PAGE,
        after: After = None,
    ) -> Response[bytes]:
        """By their names."""
        labels, ends = selector(label) or (), named_mark(after)
        wanted = None if health is None else named(Health, "health of a host", health)
        there = [one for one in desk().hosts.hosts() if authorization.host_seen(ask, one.name)]
        groups = [one for one in desk().platform.machine_index.groups() if ask.sees(one.name)]

        def page() -> list[s.Host]:
            found, more = cut(filters.hosts(there, labels, wanted, ends), limit)
            if more:
                last = (found[-1].name,)
                linked(ask.heads, request.url.path, request.scope["query_string"], last)
            return core.hosts(found, groups)

        return await aside(page)

    @get("/v1/hosts/{name:str}", sync_to_thread=False, opt=KEEPS_LIMITS)
    def host(ask: Ask, name: FromPath[str]) -> s.Host:
        authorization.host(ask, name, whole=False)
        hosts = desk().hosts
        found = allowed(hosts.host(name))
        if authorization.host_is_ones_own(
            ask, name
        ):  # else it would tell when others' things change
            ask.heads["ETag"] = host_tag(found, hosts.machines_on(name), hosts.events_about(name))
        return core.host(found, *authorization.on_host(ask, name))

    @get("/v1/hosts/{name:str}/explain", sync_to_thread=False, opt=KEEPS_LIMITS)
    def explain(ask: Ask, name: FromPath[str]) -> s.HostExplanation:
        authorization.host(ask, name)
        return core.host_explanation(allowed(desk().hosts.explain(name)))

    @post("/v1/hosts/{name:str}/maintain", status_code=200, opt=KEEPS_LIMITS)
    async def maintain(
        ask: Ask, name: FromPath[str], data: JSONBody[s.MaintainRequest]
    ) -> s.Outcomes:
        authorization.host(ask, name)
        return core.outcomes(
            allowed(
                await ask.hosts.maintain(
                    name,
                    named(MaintenanceMode, "way to maintain a host", data.how),
                    ask.by,
                    evacuate=data.evacuate,
                    notice=None if data.notice is None else length("notice", data.notice),
                    not_before=None if data.not_before is None else instant(data.not_before),
                    short_notice=data.short_notice,
                    description=data.description,
                    duration=data.duration,
                )
            )
        )

    @post("/v1/hosts/{name:str}/degrade", status_code=200, opt=KEEPS_LIMITS)
    async def degrade(
        ask: Ask, name: FromPath[str], data: JSONBody[s.DegradeRequest]
    ) -> s.Outcomes:
        authorization.host(ask, name)
        notice = DEGRADED_NOTICE if data.notice is None else length("notice", data.notice)
        return core.outcomes(
            allowed(await ask.hosts.degrade(name, ask.by, notice=notice, note=data.note))
        )

    @post("/v1/hosts/{name:str}/fail", status_code=200, opt=KEEPS_LIMITS)
    async def fail_host(ask: Ask, name: FromPath[str], data: JSONBody[s.FailRequest]) -> s.Outcomes:
        authorization.host(ask, name)
        return core.outcomes(allowed(await ask.hosts.fail(name, ask.by, note=data.note)))

    @post("/v1/hosts/{name:str}/repair", status_code=200, opt=KEEPS_LIMITS)
    async def repair(ask: Ask, name: FromPath[str]) -> s.Outcomes:
        authorization.host(ask, name)
        return core.outcomes(allowed(await ask.hosts.repair(name, ask.by)))

    return [
        *(evict, delete, fail_machine, evict_group, scale_in, policy),
        *(list_hosts, host, explain, maintain, degrade, fail_host, repair),
    ]


def _policy(policy: Policy, said: s.PolicyRequest) -> Policy:
    wanted: dict[str, Any] = {}
    for key in ("user_event_limit", "all_instances_down"):
        if getattr(said, key) is not msgspec.UNSET:
            wanted[key] = getattr(said, key)
    if said.auto_approve is not msgspec.UNSET:
        wanted["auto_approve"] = tuple(named(EventType, "type", type) for type in said.auto_approve)
    if said.terminate_notice is not msgspec.UNSET:
        notice = said.terminate_notice
        wanted["terminate_notice"] = None if notice is None else length("terminate_notice", notice)
    return msgspec.structs.replace(policy, **wanted)
