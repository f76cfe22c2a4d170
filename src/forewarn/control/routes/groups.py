"""Groups in the control API: the list, their policy, and verbs about all machines of one."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from forewarn.control.http import authorization, filters
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, allowed, in_thread, length, named, selector
from forewarn.control.http.operation import (
    FIRST_EVENT_LINKS,
    REPEATABLE,
    Creates,
    Operation,
    links_to,
)
from forewarn.control.http.paging import MAX_PAGE, After, Limit, cut, linked, named_mark
from forewarn.control.http.parameters import ByLabel, Name, query
from forewarn.control.http.preconditions import group_tag
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import EventType, Group, GroupKind, Policy


def known_group(name: str) -> Group:
    found = context().platform.machine_index.group(name)
    if found is None:
        raise RefusedError(context().platform.machine_index.unknown_group(name))
    return found


def one_group(name: str) -> s.Group:
    return core.group(known_group(name))


@get(
    "/v1/groups",
    responses={200: ResponseSpec(list[s.Group])},
    **Operation(
        id="listGroups",
        tag="groups",
        summary="List groups",
        respects_limits=True,
        paged=True,
        links=links_to("getGroup", "setPolicy", "disableGroup", parameter="name", place="0/name"),
        commands=("group list",),
        command_example="group list",
    ).options,
)
async def list_groups(
    request: Request[Any, Any, Any],
    call: Call,
    label: ByLabel = None,
    kind: Annotated[str | None, query("Only groups of this kind.", enum="GroupKind")] = None,
    enabled: Annotated[
        bool | None, query("Only groups that ask for their events, or only those that do not.")
    ] = None,
    limit: Limit = MAX_PAGE,
    after: After = None,
) -> Response[bytes]:
    """By their names."""
    labels, ends = selector(label) or (), named_mark(after)
    wanted = None if kind is None else named(GroupKind, "kind of group", kind)
    there = [one for one in context().platform.machine_index.groups() if call.sees(one.name)]

    def page() -> list[s.Group]:
        found, more = cut(filters.groups(there, labels, wanted, enabled, ends), limit)
        if more:
            last = (found[-1].name,)
            linked(call.headers, request.url.path, request.scope["query_string"], last)
        return [core.group(group) for group in found]

    return await in_thread(page)


@get(
    "/v1/groups/{name:str}",
    sync_to_thread=False,
    **Operation(
        id="getGroup",
        tag="groups",
        summary="Get a group",
        respects_limits=True,
        tagged=True,
        commands=("group show",),
        command_example="group show web",
    ).options,
)
def get_group(call: Call, name: Name) -> s.Group:
    authorization.group(call, name)
    call.headers["ETag"] = group_tag(known_group(name))
    return one_group(name)


@post(
    "/v1/groups/{name:str}/disable",
    **Operation(
        id="disableGroup",
        tag="groups",
        summary="Disable Scheduled Events for a group, as if it had never polled",
        respects_limits=True,
        creates=Creates.GROUP,
        conditional=True,
        links=links_to("getGroup", parameter="name", place="name"),
        commands=("group disable",),
        command_example="group disable web",
    ).options,
)
async def disable_group(call: Call, name: Name) -> s.Group:
    authorization.group(call, name)
    allowed(await call.platform.disable(name, call.by))
    return one_group(name)


@post(
    "/v1/groups/{name:str}/evict",
    **Operation(
        id="evictGroup",
        tag="groups",
        summary="Evict all spot machines of a group",
        respects_limits=True,
        creates=Creates.OUTCOMES,
        conditional=True,
        links=FIRST_EVENT_LINKS,
        commands=("group evict",),
        command_example="group evict web",
    ).options,
)
async def evict_group(call: Call, name: Name) -> s.Outcomes:
    authorization.scale_set(call, name)
    return core.outcomes(allowed(await call.removals.evict_all(name, call.by)))


@post(
    "/v1/groups/{name:str}/scale-in",
    **Operation(
        id="scaleIn",
        tag="groups",
        summary="Scale a scale set in, deleting the highest numbers first",
        respects_limits=True,
        creates=Creates.OUTCOMES,
        conditional=True,
        links=FIRST_EVENT_LINKS,
        commands=("group scale-in",),
        command_example="group scale-in web --count 1",
        example={"count": 1},
    ).options,
)
async def scale_in(call: Call, name: Name, data: JSONBody[s.ScaleInRequest]) -> s.Outcomes:
    authorization.scale_set(call, name)
    return core.outcomes(
        allowed(await call.removals.scale_in(name, call.by, count=data.count, to=data.to))
    )


@patch(
    "/v1/groups/{name:str}/policy",
    **Operation(
        id="setPolicy",
        tag="groups",
        summary="Change a group's policy; what is left out stays as it is",
        respects_limits=True,
        keyless=REPEATABLE,
        conditional=True,
        commands=("group policy",),
        command_example="group policy web --terminate-notice 5m",
        example={"terminate_notice": 300},
    ).options,
)
async def set_policy(call: Call, name: Name, data: JSONBody[s.PolicyRequest]) -> s.Group:
    authorization.group(call, name)
    _policy(Policy(), data)  # what cannot be meant is refused before anything is changed
    done = await call.platform.set_policy(name, lambda was: _policy(was, data), call.by)
    return core.group(allowed(done))


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
