"""Authorization: the role that an operation needs, and what lies within a token's limit.

An operation declares its role; unless it does, reading needs a viewer and everything else an
operator. A limited token reaches a handler only if its operation declares `respects_limits`; the
handler then checks with the functions here. They do nothing for callers without a limit; for
others, what is outside the limit and what does not exist are refused in the same words.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from forewarn.control.http.context import CallContext, Caller
from forewarn.control.http.operation import Creates, operation_of
from forewarn.core import Event, Machine, Refused
from forewarn.core.access import Limit, Role
from forewarn.core.deciding.holds import Hold
from forewarn.core.rollouts.model import Rollout
from forewarn.service.access.secret import hidden
from forewarn.service.platform.explain import EventExplanation, summary
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.support.text import listing

LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_SHOWN_NAME = 100  # characters of what somebody asked for

WITH_OTHERS = "it goes together with events of other groups on its host, and waits with them"

MISSING = (
    "this service needs a token: send 'Authorization: Bearer fw_…' (for the forewarn command, put"
    " it into FOREWARN_TOKEN, or into a file named by FOREWARN_TOKEN_FILE)"
)


def role_for(handler: BaseRouteHandler) -> Role | None:
    """Return the role that a handler needs, or None if it is public."""
    operation = operation_of(handler)
    if operation.public:
        return None
    if operation.role is not None:
        return operation.role
    methods = set(getattr(handler, "http_methods", ()))
    return Role.VIEWER if methods and methods <= LOOKS else Role.OPERATOR


def authorize(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """The guard of every handler: raises what whoever may not is told."""
    needed = role_for(handler)
    if needed is None:
        return
    caller: Caller | None = connection.scope["state"].get("caller")
    if caller is None:
        raise NotAuthorizedException(MISSING)
    if not caller.role.includes(needed):
        raise PermissionDeniedException(
            f"this needs the role {needed.value}; token '{caller.name}' has {caller.role.value}"
        )
    if not caller.limit.none and not operation_of(handler).respects_limits:
        raise PermissionDeniedException(
            f"this is about the whole fleet; token '{caller.name}' is limited to"
            f" {in_words(caller.limit)}"
        )


def in_words(limit: Limit) -> str:
    said = []
    if limit.groups:
        said.append(f"group {listing(limit.groups)}")
    if limit.labels:
        said.append(f"groups labelled {','.join(map(str, limit.labels))}")
    return " and ".join(said)


def outside(call: CallContext, what: str, name: str) -> PermissionDeniedException:
    shown = hidden(name[:MAX_SHOWN_NAME])
    return PermissionDeniedException(
        f"token '{call.by}' is limited to {in_words(call.caller.limit)}; {what} '{shown}' is not"
        " within that, or is not there"
    )


def group(call: CallContext, name: str) -> None:
    if call.limited and (call.platform.machine_index.group(name) is None or not call.sees(name)):
        raise outside(call, "group", name)


def scale_set(call: CallContext, name: str) -> None:
    """By its name all of its groups, for the few verbs that take it; or one group by its own."""
    if not call.limited:
        return
    found = [g for g in call.platform.machine_index.groups() if name in (g.name, g.place.scale_set)]
    if not found or not all(call.sees(one.name) for one in found):
        raise outside(call, "group", name)


def machines(call: CallContext, *names: str) -> None:
    if not call.limited:
        return
    for name in names:
        group = call.platform.machine_index.group_of(name)
        if group is None or not call.sees(group):
            raise outside(call, "machine", name)


def groups(call: CallContext) -> tuple[str, ...] | None:
    """To which a question is to be narrowed; None: to none."""
    return tuple(call.tokens.allowed(call.caller.limit)) if call.limited else None


async def event(call: CallContext, id: str, *, whole: bool = False) -> str:
    """The id to go on with; `whole`: with all that the event goes together with."""
    if not call.limited:
        return id
    found = await call.platform.event(id)
    if isinstance(found, Refused) or not call.sees(found.group):
        raise outside(call, "event", id)
    if whole and found.joint is not None and not all(map(call.sees, found.joint.groups)):
        raise PermissionDeniedException(
            f"event {found.id} goes together with those of other groups on its host, and token"
            f" '{call.by}' is limited to {in_words(call.caller.limit)}"
        )
    return found.id


def host(call: CallContext, name: str, *, whole: bool = True) -> None:
    """All that is on it and planned for it, or at least one machine."""
    if not (host_is_ones_own(call, name) if whole else host_seen(call, name)):
        raise outside(call, "host", name)


def host_is_ones_own(call: CallContext, name: str) -> bool:
    """With all that is on it and planned for it; what nothing is on is nobody's."""
    groups = groups_on(call, name) if call.limited else ()
    return not call.limited or (bool(groups) and all(map(call.sees, groups)))


def host_seen(call: CallContext, name: str) -> bool:
    """Is at least one machine on it?"""
    return not call.limited or any(map(call.sees, groups_on(call, name)))


def on_host(call: CallContext, name: str) -> tuple[list[Machine], list[Event]]:
    """What is on it and planned for it, as far as the caller sees."""
    machine_index = call.platform.machine_index
    machines, events = call.hosts.machines_on(name), call.hosts.events_about(name)
    return (
        [one for one in machines if call.sees(machine_index.group_of(one.name) or "")],
        [one for one in events if call.sees(one.group)],
    )


def groups_on(call: CallContext, host: str) -> set[str]:
    machine_index = call.platform.machine_index
    groups = {
        machine_index.group_of(machine.name) or "" for machine in call.hosts.machines_on(host)
    }
    return groups | {event.group for event in call.hosts.events_about(host)}


def rollout_seen(call: CallContext, rollout: Rollout) -> bool:
    """All of its groups, and all that is on its hosts."""
    if not call.limited:
        return True
    groups = {step.group for step in rollout.steps if step.group}
    for name in {step.host for step in rollout.steps if step.host}:
        groups |= groups_on(call, name) or {""}
    return all(map(call.sees, groups))


async def rollout(call: CallContext, id: str) -> str:
    """The id to go on with."""
    if not call.limited:
        return id
    found = await call.rollouts.find(id)
    if isinstance(found, Refused) or not rollout_seen(call, found):
        raise outside(call, "rollout", id)
    return found.id


def selected(call: CallContext, wanted: RolloutRequest) -> None:
    """What a rollout that is asked for would go over: what it names, and no more."""
    if not call.limited:
        return
    if wanted.selection.labels:
        raise PermissionDeniedException(
            f"token '{call.by}' is limited to {in_words(call.caller.limit)}, and labels may select"
            " more than that; name the groups"
        )
    if wanted.gate is not None and wanted.gate.http:
        raise PermissionDeniedException(
            f"token '{call.by}' is limited to {in_words(call.caller.limit)}, and an address would"
            " be asked by the service from where it runs; name a gate command (gate_command), or"
            " have somebody start this whose token has no limit"
        )
    for name in wanted.selection.groups:
        group(call, name)
    for name in wanted.selection.hosts:
        host(call, name)
    draft = call.rollouts.draft(wanted)
    if isinstance(draft, Refused):
        return  # and will be told why, which is about nothing else than what it named
    if not rollout_seen(call, draft):
        raise PermissionDeniedException(
            f"this selects groups that token '{call.by}' does not reach: it is limited to"
            f" {in_words(call.caller.limit)}"
        )


async def answered(
    call: CallContext, creates: Creates | None, answer: Any, path: str, name: str
) -> None:
    """May this caller still be told what was answered to a request of its own? By the groups that
    the answer is about, as they are labelled now."""
    if not call.limited:
        return
    match creates:
        case Creates.OUTCOME | Creates.RESTORED:
            about = [answer["group"]]
        case Creates.GROUP:
            about = [answer["name"]]
        case Creates.OUTCOMES:
            about = [event["group"] for event in answer["events"]]
        case _:
            about = []
            await rollout(call, answer["id"])
    if not all(map(call.sees, about)):
        raise PermissionDeniedException(
            f"token '{call.by}' is limited to {in_words(call.caller.limit)}; what was done under"
            " this key is not within that any more"
        )
    if creates is Creates.OUTCOMES and not about:
        (host if path.startswith("/v1/hosts/") else scale_set)(call, name)


def explained(call: CallContext, found: EventExplanation) -> EventExplanation:
    """What an event waits for; where that has to do with others, without their names."""
    joint = found.event.joint
    if joint is None or all(map(call.sees, joint.groups)):
        return found
    holds = tuple(
        Hold(kind=hold.kind, message=WITH_OTHERS, since=hold.since, until=hold.until)
        for hold in found.holds
    )
    return msgspec.structs.replace(found, holds=holds, message=summary(found.event, holds))


class TokenEnded(Exception):
    """In the middle of an answer: the connection is cut, so that nobody takes it for whole."""


def still_or_ended(call: CallContext) -> None:
    if not still(call):
        raise TokenEnded(f"token '{call.by}' is revoked or has expired")


def still(call: CallContext) -> bool:
    """May this caller be told more? For whoever is told something for as long as it lasts."""
    token = call.caller.token
    return call.tokens.valid(token) if token else not call.tokens.needed
