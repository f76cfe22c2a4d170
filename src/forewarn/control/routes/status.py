"""Status, health and metrics in the control API.

/healthz and /readyz need no token and reveal little. /metrics is in Prometheus' text format, or in
that of OpenMetrics if the Accept header asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from litestar import Request, Response

from forewarn import __version__
from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import RefusedError
from forewarn.control.http.filters import EventFilter
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Name
from forewarn.control.operations import service as operations
from forewarn.control.routes.clock import clock_of
from forewarn.control.schema import core as s
from forewarn.control.schema.notify import NotifyState
from forewarn.control.views import core
from forewarn.core import Status
from forewarn.core.fleet import Host
from forewarn.core.refusal import conflict, unknown_name
from forewarn.service.indexes.coverage import count
from forewarn.service.telemetry import attention
from forewarn.service.telemetry.attention import Problem
from forewarn.service.telemetry.exposition import exposition
from forewarn.service.telemetry.health import with_ok
from forewarn.store.port import ControlNode
from forewarn.support import guard
from forewarn.support.instants import from_datetime, to_datetime
from forewarn.support.logs import logger

CONTENT_TYPE = "text/plain; version=0.0.4"  # the charset is added when it is sent

MAX_PROBLEMS = 100  # in one response

log = logger("forewarn")


@route(operations.GET_STATUS)
async def get_status(call: Call) -> s.Status:
    """Numbers and problems are only of what the token may see. Up to 100 problems are listed, those
    of the service first."""
    groups = [group for group in context().platform.machine_index.groups() if call.sees(group.name)]
    now, poll_index = context().platform.writer.now().at, context().platform.poll_index
    certificate = context().certificate_expiry()
    token = None if call.limited else context().tokens.next_expiry
    if call.limited:
        machines = [machine for group in groups for machine in group.machines]
        coverage = await asyncio.to_thread(count, poll_index, machines, now)
        not_back = sum(machine.alive and machine.not_back is not None for machine in machines)
    else:
        counts = context().metrics.fleet_counts
        coverage, not_back = await asyncio.to_thread(counts.coverage, now), counts.not_back
    hosts = authorization.visible_hosts(call)
    events = started = 0
    of_events: list[Problem] = []
    every = EventFilter(sees=call.sees)
    async for event in filters.matching(context().platform.active(), every):
        events += 1
        started += event.status is Status.STARTED
        if problem := attention.of_event(event, now):
            of_events.append(problem)
    problems = await _problems(call, of_events, not_back, hosts)
    return s.Status(
        version=__version__,
        control_node=this_node(),
        clock=clock_of(call),
        metadata=next(iter(context().metadata_urls()), ""),
        metadata_urls=context().metadata_urls(),
        arm=context().arm_url(),
        nodes=0 if call.limited else sum(host.node for host in hosts),
        groups=len(groups),
        machines=sum(len(group.machines) for group in groups),
        hosts=len(hosts),
        events=events,
        started=started,
        coverage=core.coverage(coverage),
        not_back=not_back,
        unknown_callers=0 if call.limited else poll_index.unknown_callers.recent(now),
        certificate_expires=None if certificate is None else to_datetime(certificate),
        token_expires=None if token is None else to_datetime(token),
        problems=[core.status_problem(problem) for problem in problems[:MAX_PROBLEMS]],
        problems_total=len(problems),
    )


async def _problems(
    call: CallContext, of_events: Iterable[Problem], not_back: int, hosts: Iterable[Host]
) -> list[Problem]:
    """Return what somebody should look at, of what the caller may see. What only operators can do
    something about is not shown to a token that is limited to groups."""
    here, now = context(), context().platform.writer.now()
    rollouts, group_of = here.store.registry.rollouts, here.platform.machine_index.group_of
    lost = [since for machines in now.not_back.values() for since in machines.items()]
    since = min((at for name, at in lost if call.sees(group_of(name) or "")), default=None)
    of_rollouts = attention.of_rollouts(rollouts.values())
    notifications = here.notifications()
    halts = await here.halts.list(call.sees if call.limited else None)
    problems = [
        *attention.of_parts(here.health.ready()),
        *attention.of_warnings({} if call.limited else here.health.warnings()),
        *of_events,
        *(p for p in of_rollouts if authorization.rollout_visible(call, rollouts[p.subject])),
        *attention.of_machines(not_back, since),
        *(attention.of_halt(report.halt, report.events) for report in halts),
    ]
    if not call.limited:
        problems += attention.of_certificate(here.certificate_expiry(), guard.wall_us())
        problems += attention.of_token(here.tokens.next_expiry, now.at)
        states = [] if notifications is None else notifications.states()
        problems += [_of_notification(state) for state in states if state.state != "ok"]
    return [*problems, *attention.of_hosts(hosts)]


def _of_notification(state: NotifyState) -> Problem:
    since = None if state.waiting_since is None else from_datetime(state.waiting_since)
    return attention.of_notification(state.name, state.last_error, since)


def this_node() -> s.ThisNode:
    node, leadership, commit = context().node, context().store.leadership, context().store.seq
    if leadership is None:
        leader = s.Leader(name=node.name, address=node.address)
        return s.ThisNode(name=node.name, role="leads", commit=commit, leader=leader)
    known = leadership.leader()
    return s.ThisNode(
        name=node.name,
        role="leads" if leadership.held() else "follows",
        term=leadership.term,
        commit=commit,
        leader=s.Leader(name=known.name, address=known.address) if known and known.held else None,
    )


@route(operations.GET_CONTROL_NODES)
async def list_control_nodes() -> list[s.ControlNode]:
    """The processes that serve this API, of which one decides. Each reports every few seconds; one
    that has not done so for a day, or was forgotten, is no longer listed."""
    return [core.control_node(known) for known in await _control_nodes()]


@route(operations.FORGET_CONTROL_NODE)
async def forget_control_node(call: Call, name: Name) -> s.ControlNode:
    """It is no longer listed, unless it reports again. Returns the node as it had last reported.
    One that is not away is refused."""
    nodes = await _control_nodes()
    named = [known for known in nodes if known.name == name]
    if not named:
        raise RefusedError(unknown_name("control node", name, {known.name for known in nodes}))
    away = [known for known in named if known.away]
    leadership = context().store.leadership
    if not away or leadership is None:
        raise RefusedError(conflict(f"control node '{name}' is not away: stop it first"))
    await leadership.forget(name)
    log.info("a control node was forgotten", by=call.by, name=name)
    return core.control_node(away[-1])


async def _control_nodes() -> Sequence[ControlNode]:
    node, store = context().node, context().store
    if store.leadership is not None:
        return await store.leadership.nodes()
    alone = ControlNode(
        name=node.name,
        address=node.address,
        version=__version__,
        commit=store.seq,
        started=context().started,
        seen=guard.wall_us(),
        leads=True,
    )
    return [alone]


@route(operations.GET_METRICS, media_type=CONTENT_TYPE)
def get_metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    """In Prometheus' text format, or in that of OpenMetrics if the `Accept` header asks for it."""
    text, kind = exposition(context().samples(), request.headers.get("accept", ""))
    return Response(text, media_type=kind)


@route(operations.GET_HEALTH)
def get_health() -> Response[s.HealthReport]:
    """Answers 503 if the service does not work and should be restarted."""
    return _health_response(context().health.healthy())


@route(operations.GET_READINESS)
def get_readiness() -> Response[s.HealthReport]:
    """Answers 503, with the reasons, if the service cannot do its work at the moment."""
    health = context().health
    return _health_response(health.ready(), health.warnings())


@route(operations.GET_LEADERSHIP)
def get_leadership() -> Response[s.HealthReport]:
    """Answers 200 on the control node that decides, and 503 on those that follow it, for load
    balancers. A service with one control node always decides."""
    return _health_response(context().health.leading())


def _health_response(
    problems: dict[str, str], warnings: dict[str, str] | None = None
) -> Response[s.HealthReport]:
    failing = any(problems.values())
    report = s.HealthReport(
        status="failing" if failing else "ok", parts=with_ok(problems), warnings=warnings or {}
    )
    return Response(report, status_code=503 if failing else 200, media_type="application/json")
