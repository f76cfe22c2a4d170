"""Hosts in the control API: listing them, and maintenance, failure, repair, cordon, node and
enrollment of a host."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, context, require_known_hosts
from forewarn.control.http.errors import (
    duration_of,
    encode_in_thread,
    instant,
    parse_enum,
    parse_selector,
    unwrap,
)
from forewarn.control.http.operation import FIRST_EVENT_LINKS, KeyedResponse, Operation, links_to
from forewarn.control.http.paging import (
    MAX_PAGE,
    After,
    Limit,
    add_next_link,
    parse_name_cursor,
    take_page,
)
from forewarn.control.http.parameters import ByHealth, ByLabel, Name
from forewarn.control.http.preconditions import host_tag
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core.access import Role
from forewarn.core.events import EventType
from forewarn.core.fleet import Health
from forewarn.service.platform.enrollment import NewEnrollment
from forewarn.service.platform.hosts import DEGRADED_NOTICE, MaintenanceMode
from forewarn.support.instants import to_datetime


@get(
    "/v1/hosts",
    responses={200: ResponseSpec(list[s.Host])},
    **Operation(
        id="listHosts",
        tag="hosts",
        summary="List hosts",
        respects_limits=True,
        paged=True,
        links=links_to(
            "getHost",
            "explainHost",
            "maintainHost",
            "degradeHost",
            "repairHost",
            parameter="name",
            place="0/name",
        ),
        commands=("host list", "status"),
        command_example="host list",
    ).options,
)
async def list_hosts(
    request: Request[Any, Any, Any],
    call: Call,
    label: ByLabel = None,
    health: ByHealth = None,
    limit: Limit = MAX_PAGE,
    after: After = None,
) -> Response[bytes]:
    """Ordered by name."""
    labels, cursor = parse_selector(label) or (), parse_name_cursor(after)
    host_health = None if health is None else parse_enum(Health, "health", health)
    visible = [h for h in context().hosts.hosts() if authorization.host_visible(call, h.name)]
    groups = [g for g in context().platform.machine_index.groups() if call.sees(g.name)]
    node_of = context().hosts.node_of

    def page() -> list[s.Host]:
        hosts, more = take_page(filters.hosts(visible, labels, host_health, cursor), limit)
        if more:
            last = (hosts[-1].name,)
            add_next_link(call.headers, request.url.path, request.scope["query_string"], last)
        return core.hosts(hosts, groups, node_of)

    return await encode_in_thread(page)


@get(
    "/v1/hosts/{name:str}",
    sync_to_thread=False,
    **Operation(
        id="getHost",
        tag="hosts",
        summary="Get a host",
        respects_limits=True,
        tagged=True,
        commands=("host show",),
        command_example="host show host-a",
    ).options,
)
def get_host(call: Call, name: Name) -> s.Host:
    """A token that is limited to groups sees only its own machines and events on the host, and gets
    an ETag only if it sees everything."""
    authorization.require_host(call, name, whole=False)
    hosts = context().hosts
    host = unwrap(hosts.host(name))
    # A tag covers everything on the host: it would reveal changes of groups outside the limit.
    if authorization.host_within_limit(call, name):
        call.headers["ETag"] = host_tag(host, hosts.machines_on(name), hosts.events_about(name))
    return core.host(host, *authorization.visible_on_host(call, name), hosts.node_of(host))


@get(
    "/v1/hosts/{name:str}/explain",
    sync_to_thread=False,
    **Operation(
        id="explainHost",
        tag="hosts",
        summary="Explain what is planned for a host and what it waits for",
        respects_limits=True,
        refuses=(503,),
        commands=("host explain", "host show"),
        command_example="host explain host-a",
    ).options,
)
def explain_host(call: Call, name: Name) -> s.HostExplanation:
    authorization.require_host(call, name)
    require_known_hosts()
    return core.host_explanation(unwrap(context().hosts.explain(name)))


@post(
    "/v1/hosts/{name:str}/maintain",
    **Operation(
        id="maintainHost",
        tag="hosts",
        summary="Schedule maintenance of a host",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        links=FIRST_EVENT_LINKS,
        commands=("host maintain",),
        command_example="host maintain host-a --type Freeze",
        example={"mode": "Freeze"},
    ).options,
)
async def maintain_host(call: Call, name: Name, data: JSONBody[s.MaintainRequest]) -> s.Outcomes:
    """Announces one event for each group with machines on the host. They start together, unless
    `evacuate` moves the machines away one by one."""
    return core.outcomes(
        unwrap(
            await call.hosts.maintain(
                name,
                parse_enum(MaintenanceMode, "maintenance mode", data.mode),
                call.by,
                evacuate=data.evacuate,
                notice=None if data.notice is None else duration_of("notice", data.notice),
                not_before=None if data.not_before is None else instant(data.not_before),
                short_notice=data.short_notice,
                ignore_windows=data.ignore_windows,
                description=data.description,
                ticket=data.ticket,
                duration=data.duration,
            )
        )
    )


@post(
    "/v1/hosts/{name:str}/degrade",
    **Operation(
        id="degradeHost",
        tag="hosts",
        summary="Report that a host is expected to fail, and redeploy its machines",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        links=FIRST_EVENT_LINKS,
        commands=("host degrade",),
        command_example="host degrade host-a --notice 7d",
        example={"notice": 604800},
    ).options,
)
async def degrade_host(call: Call, name: Name, data: JSONBody[s.DegradeRequest]) -> s.Outcomes:
    notice = DEGRADED_NOTICE if data.notice is None else duration_of("notice", data.notice)
    return core.outcomes(
        unwrap(
            await call.hosts.degrade(
                name,
                call.by,
                notice=notice,
                note=data.note,
                ignore_windows=data.ignore_windows,
            )
        )
    )


@post(
    "/v1/hosts/{name:str}/fail",
    **Operation(
        id="failHost",
        tag="hosts",
        summary="Report that a host has failed",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        links=FIRST_EVENT_LINKS,
        commands=("host fail",),
        command_example="host fail host-a --type Reboot",
        example={"type": "Reboot", "note": "power supply"},
    ).options,
)
async def fail_host(call: Call, name: Name, data: JSONBody[s.FailRequest]) -> s.Outcomes:
    """All machines on the host are moved to other hosts without notice."""
    type = parse_enum(EventType, "event type", data.type)
    return core.outcomes(unwrap(await call.hosts.fail(name, call.by, note=data.note, type=type)))


@post(
    "/v1/hosts/{name:str}/repair",
    **Operation(
        id="repairHost",
        tag="hosts",
        summary="Report that a host is repaired",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        commands=("host repair",),
        command_example="host repair host-a",
    ).options,
)
async def repair_host(call: Call, name: Name) -> s.Outcomes:
    return core.outcomes(unwrap(await call.hosts.repair(name, call.by)))


@post(
    "/v1/hosts/{name:str}/cordon",
    **Operation(
        id="cordonHost",
        tag="hosts",
        summary="Cordon a host",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        commands=("host cordon",),
        command_example="host cordon host-a",
        example={"note": "new fans"},
    ).options,
)
async def cordon_host(call: Call, name: Name, data: JSONBody[s.CordonRequest]) -> s.Outcomes:
    """Machines that are on the host stay there."""
    return core.outcomes(unwrap(await call.hosts.cordon(name, call.by, note=data.note)))


@post(
    "/v1/hosts/{name:str}/uncordon",
    **Operation(
        id="uncordonHost",
        tag="hosts",
        summary="Uncordon a host",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        commands=("host uncordon",),
        command_example="host uncordon host-a",
    ).options,
)
async def uncordon_host(call: Call, name: Name) -> s.Outcomes:
    return core.outcomes(unwrap(await call.hosts.uncordon(name, call.by)))


@post(
    "/v1/hosts/{name:str}/drain",
    **Operation(
        id="drainHost",
        tag="hosts",
        summary="Cordon a host, and move its machines to other hosts",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        links=FIRST_EVENT_LINKS,
        commands=("host drain",),
        command_example="host drain host-a",
        example={"notice": 1800},
    ).options,
)
async def drain_host(call: Call, name: Name, data: JSONBody[s.DrainRequest]) -> s.Outcomes:
    """Each machine gets a Freeze of its own and is moved by a live migration."""
    notice = None if data.notice is None else duration_of("notice", data.notice)
    return core.outcomes(
        unwrap(
            await call.hosts.maintain(
                name, MaintenanceMode.LIVE_MIGRATION, call.by, evacuate=True, notice=notice
            )
        )
    )


@post(
    "/v1/hosts/{name:str}/return",
    **Operation(
        id="returnHost",
        tag="hosts",
        summary="Put a host back into service",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        commands=("host return",),
        command_example="host return host-a",
    ).options,
)
async def return_host(call: Call, name: Name) -> s.Outcomes:
    """Withdraws what is still planned to move its machines away, and uncordons it. Machines that
    have left it stay where they are."""
    return core.outcomes(unwrap(await call.hosts.put_back(name, call.by)))


@post(
    "/v1/hosts/{name:str}/without-node",
    **Operation(
        id="withoutNode",
        tag="hosts",
        summary="Declare that no node serves a host",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        commands=("host without-node",),
        command_example="host without-node host-a",
    ).options,
)
async def without_node(call: Call, name: Name) -> s.Outcomes:
    """Events that waited only because the node of the host is unreachable start as soon as nothing
    else holds them. If a node still serves its machines, they are disturbed without having been
    told. Refused while the node has joined. When a node joins again, the host is expected to have
    one again."""
    return core.outcomes(unwrap(await call.hosts.without_node(name, call.by)))


@post(
    "/v1/hosts/{name:str}/revoke",
    **Operation(
        id="revokeHost",
        tag="hosts",
        summary="Revoke the certificates of a host's node",
        keyed_response=KeyedResponse.OUTCOMES,
        conditional=True,
        commands=("host revoke",),
        command_example="host revoke host-a",
    ).options,
)
async def revoke_host(call: Call, name: Name) -> s.Outcomes:
    """Its node is disconnected at once, and no certificate and no token of the host is accepted
    until it is enrolled again. While it has no node, nothing starts for its machines."""
    return core.outcomes(unwrap(await call.hosts.revoke(name, call.by)))


@post(
    "/v1/enrollments",
    **Operation(
        id="enrollHosts",
        tag="hosts",
        summary="Create a token with which nodes get their certificates",
        status=201,
        role=Role.ADMIN,
        why_no_key="its response contains a secret and is not stored; create another one",
        refuses=(404, 409),
        commands=("host enroll",),
        command_example="host enroll host-a",
        example={"host": "host-a"},
    ).options,
)
async def enroll_hosts(call: Call, data: JSONBody[s.EnrollmentRequest]) -> s.Enrollment:
    """The service stores only a digest of the token. For each host it can be used once; a new token
    for a host takes the place of the one before. A host that has a node needs `again`."""
    wanted = NewEnrollment(
        host=data.host,
        selector=parse_selector(data.label) or (),
        hosts=data.hosts,
        lasts=None if data.expires_in is None else duration_of("expires_in", data.expires_in),
        again=data.again,
    )
    created = unwrap(await context().enrollments.create(wanted, call.by))
    return s.Enrollment(
        id=created.id,
        token=created.token,
        addresses=list(created.addresses),
        hosts=list(created.hosts),
        expires_at=to_datetime(created.expires_at),
    )
