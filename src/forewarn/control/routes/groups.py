"""Groups in the control API: listing them, changing a policy, and removing machines of a group."""

from __future__ import annotations

import msgspec
from litestar import Response
from litestar.params import JSONBody

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, encode_in_thread, parse_selector, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.orders import group_place, in_order
from forewarn.control.http.paging import parse_name_cursor
from forewarn.control.http.parameters import Name, Parameters
from forewarn.control.http.preconditions import group_tag
from forewarn.control.http.requests import arguments
from forewarn.control.operations import groups as operations
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q
from forewarn.control.views import core, maintenance
from forewarn.core import Group, Policy
from forewarn.core.deciding.configurations import never_maintained
from forewarn.support.text import either_of

# Of a policy.
PLATFORM_RULES = ("windows", "blackouts", "may_postpone", "over_when", "back_within")


def known_group(name: str) -> Group:
    machine_index = context().platform.machine_index
    group = machine_index.group(name)
    if group is None:
        raise RefusedError(machine_index.unknown_group(name))
    return group


def group_view(group: Group) -> s.Group:
    return core.group(group, context().platform.coverage(group.machines))


@route(operations.LIST_GROUPS)
async def list_groups(call: Call, given: Parameters[q.GroupQuery]) -> Response[bytes]:
    """Those that are alike in the order come by name."""
    labels, cursor = parse_selector(given.label) or (), parse_name_cursor(given.after)
    visible = [g for g in context().platform.machine_index.groups() if call.sees(g.name)]
    coverage = context().platform.coverage
    place = group_place(given.order, lambda group: coverage(group.machines))

    def page() -> list[s.Group]:
        matching = filters.groups(visible, labels, given)
        groups = call.take_page(
            in_order(matching, place, cursor, given.limit + 1), given.limit, place
        )
        return [group_view(group) for group in groups]

    return await encode_in_thread(page)


@route(operations.GET_GROUP)
def get_group(call: Call, name: Name) -> s.Group:
    authorization.require_group(call, name)
    group = known_group(name)
    call.headers["ETag"] = group_tag(group)
    return group_view(group)


@route(operations.GET_GROUP_WINDOWS)
def get_group_windows(call: Call, name: Name) -> s.GroupWindows:
    authorization.require_group(call, name)
    group = known_group(name)
    return maintenance.group_windows(group, context().platform.writer.now())


@route(operations.DISABLE_GROUP)
async def disable_group(call: Call, name: Name) -> s.Group:
    """The group is disabled until one of its machines polls again."""
    authorization.require_group(call, name)
    unwrap(await call.platform.disable(name, call.by))
    return group_view(known_group(name))


@route(operations.EVICT_GROUP)
async def evict_group(call: Call, name: Name) -> s.Outcomes:
    """`name` is the name of a group, or of a scale set. Each machine gets a Preempt of its own."""
    return core.outcomes(unwrap(await call.removals.evict_all(name, call.by)))


@route(operations.SCALE_IN)
async def scale_in(call: Call, name: Name, data: JSONBody[s.ScaleInRequest]) -> s.Outcomes:
    """`name` is the name of a group, or of a scale set."""
    authorization.require_scale_set(call, name)
    return core.outcomes(
        unwrap(await call.removals.scale_in(name, call.by, count=data.count, to=data.to))
    )


@route(operations.SET_POLICY)
async def set_policy(call: Call, name: Name, data: JSONBody[s.PolicyRequest]) -> s.GroupOutcome:
    """Fields that are omitted keep their values. If windows or blackouts leave no time at which
    maintenance may start, a note says so."""
    authorization.require_group(call, name)
    if any(getattr(data, key) is not msgspec.UNSET for key in PLATFORM_RULES):
        authorization.require_no_limit(call, f"{either_of(PLATFORM_RULES)} of a group")
    changes = arguments(data, Policy)
    group = unwrap(
        await call.platform.set_policy(
            name, lambda policy: msgspec.structs.replace(policy, **changes), call.by
        )
    )
    limits = data.windows is not msgspec.UNSET or data.blackouts is not msgspec.UNSET
    notes = never_maintained([group], call.platform.writer.now()) if limits else ()
    return s.GroupOutcome(**msgspec.structs.asdict(group_view(group)), notes=list(notes))
