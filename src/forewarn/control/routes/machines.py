"""Machines in the control API: the list, and what can happen to one of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from forewarn.control.http import authorization, filters
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, allowed, in_thread, named, outcome, selector
from forewarn.control.http.filters import MachineFilter
from forewarn.control.http.operation import EVENT_LINKS, Creates, Operation, links_to
from forewarn.control.http.paging import MAX_PAGE, After, Limit, cut, linked, named_mark
from forewarn.control.http.parameters import ByGroup, ByHealth, ByHost, ByLabel, Name, query
from forewarn.control.http.preconditions import machine_tag
from forewarn.control.routes.groups import known_group
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import EventType
from forewarn.core.fleet import Health


@get(
    "/v1/machines",
    responses={200: ResponseSpec(list[s.Machine])},
    **Operation(
        id="listMachines",
        tag="machines",
        summary="List machines",
        respects_limits=True,
        paged=True,
        refuses=(404,),
        links=links_to(
            "getMachine",
            "restartMachine",
            "redeployMachine",
            "evictMachine",
            "failMachine",
            parameter="name",
            place="0/name",
        ),
        commands=("machine list",),
        command_example="machine list --group web",
    ).options,
)
async def list_machines(
    request: Request[Any, Any, Any],
    call: Call,
    group: ByGroup = None,
    label: ByLabel = None,
    host: ByHost = None,
    health: ByHealth = None,
    gone: Annotated[
        bool | None, query("Only machines that are no more, or only those that are.")
    ] = None,
    listening: Annotated[
        bool | None, query("Only machines whose group asks for its events, or only the others.")
    ] = None,
    limit: Limit = MAX_PAGE,
    after: After = None,
) -> Response[bytes]:
    """By the names of their groups, then by their own; `health` is that of the host it is on,
    `listening` whether its group asks for its events."""
    if group is not None:
        authorization.group(call, group)
    if host is not None:
        authorization.host(call, host, whole=False)
        allowed(context().hosts.host(host))
    wanted = MachineFilter(
        labels=selector(label) or (),
        host=host,
        gone=gone,
        listening=listening,
        health=None if health is None else named(Health, "health of a host", health),
    )
    every = (one for one in context().platform.machine_index.groups() if call.sees(one.name))
    there = list(every) if group is None else [known_group(group)]
    hosts = context().store.registry.hosts
    ends = named_mark(after)

    def health_of(name: str) -> Health | None:
        return hosts[name].health if name in hosts else None

    def page() -> list[s.Machine]:
        found, more = cut(filters.machines(there, wanted, health_of, ends), limit)
        if more:
            last = (found[-1][0].name, found[-1][1].name)
            linked(call.headers, request.url.path, request.scope["query_string"], last)
        return core.machines(found, context().platform.poll_index.polls, context().metadata_url_of)

    return await in_thread(page)


def one_machine(name: str) -> s.Machine:
    found = context().platform.machine_index.machine(name)
    if found is None:
        raise RefusedError(context().platform.machine_index.unknown_machine(name))
    return core.machine(
        *found, context().platform.poll_index.polls(name), context().metadata_url_of
    )


@get(
    "/v1/machines/{name:str}",
    sync_to_thread=False,
    **Operation(
        id="getMachine",
        tag="machines",
        summary="Get a machine",
        respects_limits=True,
        tagged=True,
        commands=("machine show", "run"),
        command_example="machine show web_0",
    ).options,
)
def get_machine(call: Call, name: Name) -> s.Machine:
    authorization.machines(call, name)
    shown = one_machine(name)
    found = context().platform.machine_index.machine(name)
    call.headers["ETag"] = machine_tag(*found) if found else ""
    return shown


@post(
    "/v1/machines/{name:str}/restart",
    **Operation(
        id="restartMachine",
        tag="machines",
        summary="Restart a machine as its user, announced as a Reboot",
        respects_limits=True,
        creates=Creates.OUTCOME,
        conditional=True,
        links=EVENT_LINKS,
        commands=("machine restart",),
        command_example="machine restart web_0",
    ).options,
)
async def restart_machine(call: Call, name: Name) -> s.Outcome:
    authorization.machines(call, name)
    return outcome(await call.platform.user_maintenance(name, EventType.REBOOT, call.by))


@post(
    "/v1/machines/{name:str}/redeploy",
    **Operation(
        id="redeployMachine",
        tag="machines",
        summary="Redeploy a machine as its user, announced as a Redeploy",
        respects_limits=True,
        creates=Creates.OUTCOME,
        conditional=True,
        links=EVENT_LINKS,
        commands=("machine redeploy",),
        command_example="machine redeploy web_0",
    ).options,
)
async def redeploy_machine(call: Call, name: Name) -> s.Outcome:
    authorization.machines(call, name)
    return outcome(await call.platform.user_maintenance(name, EventType.REDEPLOY, call.by))


@post(
    "/v1/machines/{name:str}/restore",
    **Operation(
        id="restoreMachine",
        tag="machines",
        summary="Restore a machine that was evicted or deleted",
        respects_limits=True,
        creates=Creates.RESTORED,
        conditional=True,
        links=links_to("getMachine", parameter="name", place="name"),
        commands=("machine restore",),
        command_example="machine restore web_2",
    ).options,
)
async def restore_machine(call: Call, name: Name) -> s.Restored:
    authorization.machines(call, name)
    notes = list(allowed(await call.platform.restore(name, call.by)))
    return s.Restored(**msgspec.structs.asdict(one_machine(name)), notes=notes)


@post(
    "/v1/machines/{name:str}/evict",
    **Operation(
        id="evictMachine",
        tag="machines",
        summary="Evict a spot machine, announced as a Preempt",
        respects_limits=True,
        creates=Creates.OUTCOME,
        conditional=True,
        links=EVENT_LINKS,
        commands=("machine evict",),
        command_example="machine evict web_2",
    ).options,
)
async def evict_machine(call: Call, name: Name) -> s.Outcome:
    authorization.machines(call, name)
    return outcome(await call.removals.evict(name, call.by))


@post(
    "/v1/machines/{name:str}/delete",
    **Operation(
        id="deleteMachine",
        tag="machines",
        summary="Delete a machine, announced as a Terminate where the group's policy asks for it",
        respects_limits=True,
        creates=Creates.OUTCOME,
        conditional=True,
        links=EVENT_LINKS,
        commands=("machine delete",),
        command_example="machine delete web_1",
    ).options,
)
async def delete_machine(call: Call, name: Name) -> s.Outcome:
    authorization.machines(call, name)
    return outcome(await call.removals.delete(name, call.by))


@post(
    "/v1/machines/{name:str}/fail",
    **Operation(
        id="failMachine",
        tag="machines",
        summary="Let a machine fail, without any notice",
        respects_limits=True,
        creates=Creates.OUTCOME,
        conditional=True,
        links=EVENT_LINKS,
        commands=("machine fail",),
        command_example="machine fail web_1 --type Reboot",
        example={"type": "Reboot"},
    ).options,
)
async def fail_machine(call: Call, name: Name, data: JSONBody[s.FailMachineRequest]) -> s.Outcome:
    authorization.machines(call, name)
    type = named(EventType, "type", data.type)
    return outcome(await call.removals.fail(name, type, call.by))
