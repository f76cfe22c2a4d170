"""Authorization: the role that an operation needs, and what lies within a token's limit.

An operation declares its role; by default, reading needs a viewer and everything else an operator.
A limited token reaches a handler only if its operation declares `respects_limits`; the handler then
calls the `require_…` functions here. They do nothing for callers without a limit. To others they
answer with the same 403 whether a resource is outside the limit or does not exist, so that names
cannot be guessed.

What is the platform's (the maintenance of hosts, evictions, failures, rollouts and their events) is
neither raised nor cancelled with a limited token, whatever its role.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from forewarn.control.http.context import CallContext, Caller, context
from forewarn.control.http.operation import operation_of
from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.core import Event, EventType, Machine, Refused, Source
from forewarn.core.access import Limit, Role
from forewarn.core.deciding.holds import Hold, HoldKind
from forewarn.core.fleet import Host
from forewarn.core.labels import Selector
from forewarn.core.rollouts.model import Rollout
from forewarn.service.access.secret import hidden
from forewarn.service.platform.explain import EventExplanation, summary
from forewarn.support.text import listing

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_SHOWN_NAME = 100  # characters of a requested name that a refusal repeats

# Why the maintenance of a host waits, for whom not all of its groups may be named.
JOINT_HOLDS = {
    HoldKind.JOINT: "its host is maintained once, for all groups on it, and the notice has not"
    " passed and not all of them have approved",
    HoldKind.MACHINE: "a machine on its host is in another event",
    HoldKind.DOMAIN: "another update domain of a group on its host is disturbed",
    HoldKind.WINDOW: "no window for it is open",
    HoldKind.BLACKOUT: "there is a blackout",
    HoldKind.PLACEMENT: "not every machine that may be on its host has been warned",
    HoldKind.HALT: "an operator has halted it",
    HoldKind.REACH: "not every machine on its host can be reached",
}
JOINT_HOLD = "it starts together with the other groups on its host, which wait for something"

MISSING = (
    "this service needs a token: send 'Authorization: Bearer …' (for the forewarn command, put it"
    " into FOREWARN_TOKEN, or into a file named by FOREWARN_TOKEN_FILE)"
)


def role_for(operation: Operation[Any]) -> Role | None:
    """Return the role that an operation needs, or None if it is public."""
    return None if operation.public else Role(operation.needed_role)


def authorize(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Litestar guard of every handler: raise unless the caller may call this operation."""
    operation = operation_of(handler)
    if operation.public:
        return
    caller: Caller | None = connection.scope["state"].get("caller")
    if caller is None:
        raise NotAuthorizedException(MISSING)
    if denial := why_denied(caller, operation):
        raise PermissionDeniedException(denial)


def why_denied(caller: Caller, operation: Operation[Any]) -> str:
    """Return why a caller may not call an operation at all; empty if it may."""
    needed = role_for(operation)
    if needed is not None and not caller.role.includes(needed):
        return f"this needs the role {needed.value}; token '{caller.name}' has {caller.role.value}"
    if not caller.limit.none and not operation.respects_limits:
        return (
            f"this operation is for the platform's operators; token '{caller.name}' is limited to"
            f" {limit_text(caller.limit)}"
        )
    return ""


def limit_text(limit: Limit) -> str:
    parts = []
    if limit.groups:
        parts.append(f"group {listing(limit.groups)}")
    for selector in limit.selectors:
        parts.append(f"groups labelled {','.join(map(str, selector))}")
    return " and ".join(parts)


def outside_limit(call: CallContext, kind: str, name: str) -> PermissionDeniedException:
    shown = hidden(name[:MAX_SHOWN_NAME])
    return PermissionDeniedException(
        f"token '{call.by}' is limited to {limit_text(call.caller.limit)}; {kind} '{shown}' is"
        " outside that limit, or does not exist"
    )


def require_no_limit(call: CallContext, what: str) -> None:
    """Require a token without a limit, for a part of an operation that others may use."""
    if call.limited:
        raise PermissionDeniedException(
            f"{what} can only be set by the platform's operators; token '{call.by}' is limited to"
            f" {limit_text(call.caller.limit)}"
        )


def require_group(call: CallContext, name: str) -> None:
    if call.limited and (call.platform.machine_index.group(name) is None or not call.sees(name)):
        raise outside_limit(call, "group", name)


def require_scale_set(call: CallContext, name: str) -> None:
    """Require all groups of a scale set, for operations that accept its name or a group's."""
    if not call.limited:
        return
    groups = [
        group
        for group in call.platform.machine_index.groups()
        if name in (group.name, group.place.scale_set)
    ]
    if not groups or not all(call.sees(group.name) for group in groups):
        raise outside_limit(call, "group", name)


def require_machines(call: CallContext, *names: str) -> None:
    if not call.limited:
        return
    for name in names:
        group = call.platform.machine_index.group_of(name)
        if group is None or not call.sees(group):
            raise outside_limit(call, "machine", name)


def visible_groups(call: CallContext) -> tuple[str, ...] | None:
    """Return the groups that a query of this caller is restricted to; None: no restriction."""
    return tuple(call.tokens.allowed(call.caller.limit)) if call.limited else None


async def require_event(call: CallContext, id: str) -> str:
    """Return the id of the event that this id, or beginning of one, stands for."""
    return (await _event_within_limit(call, id)).id if call.limited else id


async def require_requested_event(call: CallContext, id: str) -> str:
    """The same, for an event that was requested for machines within the limit: by a user, or by
    deleting a machine with this token. Other events are the platform's."""
    if not call.limited:
        return id
    event = await _event_within_limit(call, id)
    if not may_end(call, event):
        raise PermissionDeniedException(
            f"event {event.id} is the platform's, and token '{call.by}' is limited to"
            f" {limit_text(call.caller.limit)}; ask an operator"
        )
    return event.id


def may_end(call: CallContext, event: Event) -> bool:
    """Whether the caller may cancel, retry and finish an event that it sees."""
    deleted = event.type is EventType.TERMINATE and event.by == call.by
    return not call.limited or event.source is Source.USER or deleted


async def _event_within_limit(call: CallContext, id: str) -> Event:
    event = await call.platform.event(id)
    if isinstance(event, Refused) or not call.sees(event.group):
        raise outside_limit(call, "event", id)
    return event


def require_source(call: CallContext, source: Source) -> None:
    """Require that a new event has a source that the caller can speak for."""
    if call.limited and source is not Source.USER:
        raise PermissionDeniedException(
            f"events with the source {source.value} are raised by the platform's operators; token"
            f" '{call.by}' is limited to {limit_text(call.caller.limit)}, and can raise events"
            f" with the source {Source.USER.value}"
        )


def require_host(call: CallContext, name: str, *, whole: bool = True) -> None:
    """Require everything on a host and planned for it; without `whole`, any part of that."""
    if not (host_within_limit(call, name) if whole else host_visible(call, name)):
        raise outside_limit(call, "host", name)


def host_within_limit(call: CallContext, name: str) -> bool:
    """Whether all machines and events of a host, and machines that may be on it, are within the
    limit; an empty host is not."""
    if not call.limited:
        return True
    index = call.platform.machine_index
    disputed = {index.group_of(machine.name) or "" for machine in call.hosts.disputed_on(name)}
    return host_visible(call, name) and all(map(call.sees, groups_on_host(call, name) | disputed))


def host_visible(call: CallContext, name: str) -> bool:
    """Whether any machine or event of a host is within the limit. Tenants see no hosts, only the
    names of those that their machines are on."""
    if not call.limited:
        return True
    if call.caller.role is Role.TENANT:
        return False
    return any(map(call.sees, groups_on_host(call, name)))


def visible_hosts(call: CallContext, selector: Selector | None = None) -> list[Host]:
    """Return all hosts that are visible. Of thousands, that is quicker than to ask for each."""
    hosts = call.hosts.hosts(selector)
    if not call.limited or call.caller.role is Role.TENANT:
        return [] if call.limited else hosts
    names: set[str] = set()
    for group in call.platform.machine_index.groups():
        if call.sees(group.name):
            names.update(machine.host for machine in group.machines if machine.alive)
            names.update(event.host for event in group.events)
    return [host for host in hosts if host.name in names]


def visible_on_host(call: CallContext, name: str) -> tuple[list[Machine], list[Event]]:
    """Return the machines and events of a host that are within the limit."""
    machine_index = call.platform.machine_index
    machines, events = call.hosts.machines_on(name), call.hosts.events_about(name)
    return (
        [machine for machine in machines if call.sees(machine_index.group_of(machine.name) or "")],
        [event for event in events if call.sees(event.group)],
    )


def groups_on_host(call: CallContext, host: str) -> set[str]:
    machine_index = call.platform.machine_index
    groups = {
        machine_index.group_of(machine.name) or "" for machine in call.hosts.machines_on(host)
    }
    return groups | {event.group for event in call.hosts.events_about(host)}


def rollout_visible(call: CallContext, rollout: Rollout) -> bool:
    """Whether all groups of a rollout, and everything on its hosts, are within the limit."""
    if not call.limited:
        return True
    groups = {step.group for step in rollout.steps if step.group}
    for name in {step.host for step in rollout.steps if step.host}:
        groups |= groups_on_host(call, name) or {""}
    return all(map(call.sees, groups))


async def require_rollout(call: CallContext, id: str) -> str:
    """Return the id of the rollout that this id, or beginning of one, stands for."""
    if not call.limited:
        return id
    rollout = await call.rollouts.find(id)
    if isinstance(rollout, Refused) or not rollout_visible(call, rollout):
        raise outside_limit(call, "rollout", id)
    return rollout.id


def require_replay(call: CallContext, operation: Operation[Any], response: Any, name: str) -> None:
    """Require what a stored response is about, before it is sent again. A group may have other
    labels by now than when the request was carried out."""
    if not call.limited:
        return
    groups: list[str] = []
    if operation.returns in (s.Outcome, s.MachineOutcome):
        groups = [response["group"]]
    elif operation.returns is s.Group:
        groups = [response["name"]]
    elif operation.returns is s.Outcomes:
        groups = [event["group"] for event in response["events"]]
    if not all(map(call.sees, groups)):
        raise PermissionDeniedException(
            f"token '{call.by}' is limited to {limit_text(call.caller.limit)}; what was done under"
            " this key is no longer within that limit"
        )
    if not groups:
        require_scale_set(call, name)


def hide_other_groups(call: CallContext, explanation: EventExplanation) -> EventExplanation:
    """Return an explanation that does not name groups outside the limit: each kind of hold once,
    and until when."""
    joint = explanation.event.joint
    others = any(hold.kind is HoldKind.PLACEMENT for hold in explanation.holds)
    if joint is None or (all(map(call.sees, joint.groups)) and not (call.limited and others)):
        return explanation
    by_kind: dict[HoldKind, list[Hold]] = {}
    for hold in explanation.holds:
        by_kind.setdefault(hold.kind, []).append(hold)
    holds = tuple(_unnamed(kind, alike) for kind, alike in by_kind.items())
    return msgspec.structs.replace(
        explanation, holds=holds, message=summary(explanation.event, holds), advice=()
    )


def _unnamed(kind: HoldKind, alike: list[Hold]) -> Hold:
    untils = [hold.until for hold in alike if hold.until is not None]
    return Hold(
        kind=kind,
        message=JOINT_HOLDS.get(kind, JOINT_HOLD),
        since=min(hold.since for hold in alike),
        until=max(untils) if len(untils) == len(alike) else None,
    )


class TokenEnded(Exception):
    """Raised in the middle of a response whose token has ended. The connection is aborted, so that
    the response cannot be taken for complete."""


def require_valid_token(call: CallContext) -> None:
    if not token_valid(call):
        raise TokenEnded(f"token '{call.by}' is revoked or has expired")


def token_valid(call: CallContext) -> bool:
    """Whether the caller's token is still valid; checked again during long responses."""
    caller = call.caller
    if caller.identity is not None:
        return call.tokens.identity_valid(caller.identity)
    if caller.session is not None and not context().sessions.lasts(caller.token, caller.session):
        return False
    return call.tokens.valid(caller.token) if caller.token else not call.tokens.needed
