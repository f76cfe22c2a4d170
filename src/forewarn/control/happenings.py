"""What can happen to machines, groups and hosts: the handlers of these verbs."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody

from forewarn.control import schema as s
from forewarn.control import views
from forewarn.control.answers import (
    RefusedError,
    allowed,
    aside,
    instant,
    length,
    named,
    outcome,
    selector,
)
from forewarn.control.desk import Ask, Desk
from forewarn.core import EventType, Policy
from forewarn.core.refusal import unknown
from forewarn.service.hosts import DEGRADED_NOTICE, How


def handlers(desk: Desk) -> list[Any]:
    platform, hosts = desk.platform, desk.hosts

    @post("/v1/machines/{name:str}/evict", status_code=200)
    async def evict(ask: Ask, name: FromPath[str]) -> s.Outcome:
        return outcome(await ask.leaving.evict(name, ask.by))

    @post("/v1/machines/{name:str}/delete", status_code=200)
    async def delete(ask: Ask, name: FromPath[str]) -> s.Outcome:
        return outcome(await ask.leaving.delete(name, ask.by))

    @post("/v1/machines/{name:str}/fail", status_code=200)
    async def fail_machine(
        ask: Ask, name: FromPath[str], data: JSONBody[s.FailMachineRequest]
    ) -> s.Outcome:
        type = named(EventType, "type", data.type)
        return outcome(await ask.leaving.fail(name, type, ask.by))

    @post("/v1/groups/{name:str}/evict", status_code=200)
    async def evict_group(ask: Ask, name: FromPath[str]) -> s.Outcomes:
        return views.outcomes(allowed(await ask.leaving.evict_all(name, ask.by)))

    @post("/v1/groups/{name:str}/scale-in", status_code=200)
    async def scale_in(
        ask: Ask, name: FromPath[str], data: JSONBody[s.ScaleInRequest]
    ) -> s.Outcomes:
        return views.outcomes(
            allowed(await ask.leaving.scale_in(name, ask.by, count=data.count, to=data.to))
        )

    @patch("/v1/groups/{name:str}/policy", status_code=200)
    async def policy(ask: Ask, name: FromPath[str], data: JSONBody[s.PolicyRequest]) -> s.Group:
        group = platform.inventory.group(name)
        if group is None:
            raise RefusedError(unknown(platform.inventory.unknown_group(name)))
        wanted = _policy(group.policy, data)
        return views.group(allowed(await ask.platform.set_policy(name, wanted, ask.by)))

    @get("/v1/hosts", responses={200: ResponseSpec(list[s.Host])})
    async def list_hosts(label: FromQuery[str | None] = None) -> Response[bytes]:
        wanted = selector(label) or ()
        found, groups = hosts.hosts(), list(platform.inventory.groups())
        return await aside(lambda: views.hosts(found, wanted, groups))

    @get("/v1/hosts/{name:str}", sync_to_thread=False)
    def host(name: FromPath[str]) -> s.Host:
        found = allowed(hosts.host(name))
        return views.host(found, hosts.machines_on(name), hosts.events_about(name))

    @get("/v1/hosts/{name:str}/explain", sync_to_thread=False)
    def explain(name: FromPath[str]) -> s.HostExplanation:
        return views.host_explanation(allowed(hosts.explain(name)))

    @post("/v1/hosts/{name:str}/maintain", status_code=200)
    async def maintain(
        ask: Ask, name: FromPath[str], data: JSONBody[s.MaintainRequest]
    ) -> s.Outcomes:
        return views.outcomes(
            allowed(
                await ask.hosts.maintain(
                    name,
                    named(How, "way to maintain a host", data.how),
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

    @post("/v1/hosts/{name:str}/degrade", status_code=200)
    async def degrade(
        ask: Ask, name: FromPath[str], data: JSONBody[s.DegradeRequest]
    ) -> s.Outcomes:
        notice = DEGRADED_NOTICE if data.notice is None else length("notice", data.notice)
        return views.outcomes(
            allowed(await ask.hosts.degrade(name, ask.by, notice=notice, note=data.note))
        )

    @post("/v1/hosts/{name:str}/fail", status_code=200)
    async def fail_host(ask: Ask, name: FromPath[str], data: JSONBody[s.FailRequest]) -> s.Outcomes:
        return views.outcomes(allowed(await ask.hosts.fail(name, ask.by, note=data.note)))

    @post("/v1/hosts/{name:str}/repair", status_code=200)
    async def repair(ask: Ask, name: FromPath[str]) -> s.Outcomes:
        return views.outcomes(allowed(await ask.hosts.repair(name, ask.by)))

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
