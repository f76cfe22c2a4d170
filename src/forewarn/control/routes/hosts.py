"""Hosts in the control API: listing them, and maintenance, failure, repair, cordon, node and
enrollment of a host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, context, require_known_hosts
from forewarn.control.http.errors import (
    encode_in_thread,
    parse_enum,
    parse_name,
    parse_selector,
    unwrap,
)
from forewarn.control.http.operation import route
from forewarn.control.http.orders import host_place, in_order
from forewarn.control.http.paging import parse_name_cursor
from forewarn.control.http.parameters import Name, Parameters
from forewarn.control.http.preconditions import host_tag
from forewarn.control.http.requests import arguments
from forewarn.control.operations import hosts as operations
from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q
from forewarn.control.views import core
from forewarn.control.views.shape import view
from forewarn.core.events import FAILURE_TYPE, EventType
from forewarn.core.refusal import Refused
from forewarn.service.platform.enrollment import NewEnrollment
from forewarn.service.platform.hosts import LIVE_MIGRATION, MAINTENANCE_MODES, Hosts
from forewarn.service.platform.platform import Outcomes

Verb: TypeAlias = Callable[[Hosts, str, str], Awaitable[Outcomes | Refused]]


def _bound(
    operation: Operation[s.Outcomes], verb: Verb, description: str | None = None
) -> HTTPRouteHandler:
    """Return the handler of an operation that needs nothing but the name of the host."""

    async def handler(call: Call, name: Name) -> s.Outcomes:
        return core.outcomes(unwrap(await verb(call.hosts, name, call.by)))

    handler.__doc__ = description
    return route(operation)(handler)


@route(operations.LIST_HOSTS)
async def list_hosts(call: Call, given: Parameters[q.HostQuery]) -> Response[bytes]:
    """Those that are alike in the order come by name."""
    labels, cursor = parse_selector(given.label) or (), parse_name_cursor(given.after)
    visible = authorization.visible_hosts(call)
    groups = [g for g in context().platform.machine_index.groups() if call.sees(g.name)]
    known = context().hosts

    def page() -> list[s.Host]:
        on_hosts = core.on_hosts(groups)
        place = host_place(given.order, on_hosts.machines, on_hosts.events)
        matching = filters.hosts(visible, labels, given, known.node_of)
        hosts = call.take_page(
            in_order(matching, place, cursor, given.limit + 1), given.limit, place
        )
        return core.hosts(hosts, on_hosts, known)

    return await encode_in_thread(page)


@route(operations.GET_HOST)
def get_host(call: Call, name: Name) -> s.Host:
    """A token that is limited to groups sees only its own machines and events on the host, and gets
    an ETag only if it sees everything."""
    authorization.require_host(call, name, whole=False)
    hosts = context().hosts
    host = unwrap(hosts.host(name))
    # A tag covers everything on the host: it would reveal changes of groups outside the limit.
    if authorization.host_within_limit(call, name):
        call.headers["ETag"] = host_tag(host, hosts.machines_on(name), hosts.events_about(name))
    return core.host(host, *authorization.visible_on_host(call, name), hosts)


@route(operations.EXPLAIN_HOST)
def explain_host(call: Call, name: Name) -> s.HostExplanation:
    authorization.require_host(call, name)
    require_known_hosts()
    report = unwrap(context().hosts.explain(name))
    if call.limited:  # who must not know of other hosts
        report = msgspec.structs.replace(report, if_drained="")
    return core.host_explanation(report)


@route(operations.MAINTAIN_HOST)
async def maintain_host(call: Call, name: Name, data: JSONBody[s.MaintainRequest]) -> s.Outcomes:
    """Announces one event for each group with machines on the host. They start together, unless
    `evacuate` moves the machines away one by one."""
    mode = MAINTENANCE_MODES[parse_name(MAINTENANCE_MODES, "maintenance mode", data.mode)]
    fields = arguments(data, Hosts.maintain, without=("mode",))
    return core.outcomes(unwrap(await call.hosts.maintain(name, mode, call.by, **fields)))


@route(operations.DEGRADE_HOST)
async def degrade_host(call: Call, name: Name, data: JSONBody[s.DegradeRequest]) -> s.Outcomes:
    fields = arguments(data, Hosts.degrade)
    return core.outcomes(unwrap(await call.hosts.degrade(name, call.by, **fields)))


@route(operations.FAIL_HOST)
async def fail_host(call: Call, name: Name, data: JSONBody[s.FailRequest]) -> s.Outcomes:
    """All machines on the host are moved to other hosts without notice."""
    type = FAILURE_TYPE if data.type is None else parse_enum(EventType, "event type", data.type)
    return core.outcomes(unwrap(await call.hosts.fail(name, call.by, note=data.note, type=type)))


repair_host = _bound(operations.REPAIR_HOST, Hosts.repair)


@route(operations.CORDON_HOST)
async def cordon_host(call: Call, name: Name, data: JSONBody[s.CordonRequest]) -> s.Outcomes:
    """Machines that are on the host stay there."""
    return core.outcomes(unwrap(await call.hosts.cordon(name, call.by, note=data.note)))


uncordon_host = _bound(operations.UNCORDON_HOST, Hosts.uncordon)


@route(operations.DRAIN_HOST)
async def drain_host(call: Call, name: Name, data: JSONBody[s.DrainRequest]) -> s.Outcomes:
    """Each machine gets a Freeze of its own and is moved by a live migration."""
    fields = arguments(data, Hosts.maintain) | {"evacuate": True}
    return core.outcomes(unwrap(await call.hosts.maintain(name, LIVE_MIGRATION, call.by, **fields)))


return_host = _bound(
    operations.RETURN_HOST,
    Hosts.put_back,
    "Withdraws what is still planned to move its machines away, and uncordons it. Machines "
    "that have left it stay where they are.",
)
without_node = _bound(
    operations.WITHOUT_NODE,
    Hosts.without_node,
    "Events that waited only because the node of the host is unreachable start as soon as "
    "nothing else holds them. If a node still serves its machines, they are disturbed without"
    " having been told. Refused while the node has joined. When a node joins again, the host "
    "is expected to have one again.",
)
revoke_host = _bound(
    operations.REVOKE_HOST,
    Hosts.revoke,
    "Its node is disconnected at once, and no certificate and no token of the host is "
    "accepted until it is enrolled again. While it has no node, nothing starts for its "
    "machines.",
)


@route(operations.ENROLL_HOSTS)
async def enroll_hosts(call: Call, data: JSONBody[s.EnrollmentRequest]) -> s.Enrollment:
    """The service stores only a digest of the token. For each host it can be used once; a new token
    for a host takes the place of the one before. A host that has a node needs `again`."""
    wanted = NewEnrollment(**arguments(data, NewEnrollment))
    created = unwrap(await context().enrollments.create(wanted, call.by))
    return view(s.Enrollment, created)
