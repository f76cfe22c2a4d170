"""Who may what: the role that a call needs, and what lies within a token's limit.

A handler says beside its path what it needs (`opt=ADMIN`); unless it says so, looking needs a
viewer and everything else an operator. A limited token is let into a handler only if that one says
that it keeps to limits (`opt=KEEPS_LIMITS`), which it does with the functions here. They do
nothing for whoever is not limited; for whoever is, what is outside and what is not there are the
same, in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from forewarn.control.http.context import Asked, Caller
from forewarn.control.openapi.operation import Makes
from forewarn.core import Event, Machine, Refused
from forewarn.core.access import Limit, Role
from forewarn.core.deciding.holds import Hold
from forewarn.core.rollouts.model import Rollout
from forewarn.service.access.secret import hidden
from forewarn.service.platform.explain import Explanation, says
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.support.text import listing

OPEN: Mapping[str, Any] = {"open": True}  # to everybody, token or not
ADMIN: Mapping[str, Any] = {"role": Role.ADMIN}
VIEWER: Mapping[str, Any] = {"role": Role.VIEWER}  # of a call that looks, whatever its method
KEEPS_LIMITS: Mapping[str, Any] = {"limits": True}
LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_SHOWN_NAME = 100  # characters of what somebody asked for

WITH_OTHERS = "it goes together with events of other groups on its host, and waits with them"

MISSING = (
    "this service needs a token: send 'Authorization: Bearer fw_…' (for the forewarn command, put"
    " it into FOREWARN_TOKEN, or into a file named by FOREWARN_TOKEN_FILE)"
)


def role_for(handler: BaseRouteHandler) -> Role | None:
    """What a call needs; None: nothing."""
    if handler.opt.get("open"):
        return None
    role = handler.opt.get("role")
    if isinstance(role, Role):
        return role
    methods = set(getattr(handler, "http_methods", ()))
    return Role.VIEWER if methods and methods <= LOOKS else Role.OPERATOR


def decided(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
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
    if not caller.limit.none and not handler.opt.get("limits"):
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


def outside(ask: Asked, what: str, name: str) -> PermissionDeniedException:
    shown = hidden(name[:MAX_SHOWN_NAME])
    return PermissionDeniedException(
        f"token '{ask.by}' is limited to {in_words(ask.caller.limit)}; {what} '{shown}' is not"
        " within that, or is not there"
    )


def group(ask: Asked, name: str) -> None:
    if ask.limited and (ask.platform.machine_index.group(name) is None or not ask.sees(name)):
        raise outside(ask, "group", name)


def scale_set(ask: Asked, name: str) -> None:
    """By its name all of its groups, for the few verbs that take it; or one group by its own."""
    if not ask.limited:
        return
    found = [g for g in ask.platform.machine_index.groups() if name in (g.name, g.place.scale_set)]
    if not found or not all(ask.sees(one.name) for one in found):
        raise outside(ask, "group", name)


def machines(ask: Asked, *names: str) -> None:
    if not ask.limited:
        return
    for name in names:
        group = ask.platform.machine_index.group_of(name)
        if group is None or not ask.sees(group):
            raise outside(ask, "machine", name)


def groups(ask: Asked) -> tuple[str, ...] | None:
    """To which a question is to be narrowed; None: to none."""
    return tuple(ask.tokens.allowed(ask.caller.limit)) if ask.limited else None


async def event(ask: Asked, id: str, *, whole: bool = False) -> str:
    """The id to go on with; `whole`: with all that the event goes together with."""
    if not ask.limited:
        return id
    found = await ask.platform.event(id)
    if isinstance(found, Refused) or not ask.sees(found.group):
        raise outside(ask, "event", id)
    if whole and found.joint is not None and not all(map(ask.sees, found.joint.groups)):
        raise PermissionDeniedException(
            f"event {found.id} goes together with those of other groups on its host, and token"
            f" '{ask.by}' is limited to {in_words(ask.caller.limit)}"
        )
    return found.id


def host(ask: Asked, name: str, *, whole: bool = True) -> None:
    """All that is on it and planned for it, or at least one machine."""
    if not (host_is_ones_own(ask, name) if whole else host_seen(ask, name)):
        raise outside(ask, "host", name)


def host_is_ones_own(ask: Asked, name: str) -> bool:
    """With all that is on it and planned for it; what nothing is on is nobody's."""
    groups = groups_on(ask, name) if ask.limited else ()
    return not ask.limited or (bool(groups) and all(map(ask.sees, groups)))


def host_seen(ask: Asked, name: str) -> bool:
    """Is at least one machine on it?"""
    return not ask.limited or any(map(ask.sees, groups_on(ask, name)))


def on_host(ask: Asked, name: str) -> tuple[list[Machine], list[Event]]:
    """What is on it and planned for it, as far as the caller sees."""
    machine_index = ask.platform.machine_index
    machines, events = ask.hosts.machines_on(name), ask.hosts.events_about(name)
    return (
        [one for one in machines if ask.sees(machine_index.group_of(one.name) or "")],
        [one for one in events if ask.sees(one.group)],
    )


def groups_on(ask: Asked, host: str) -> set[str]:
    machine_index = ask.platform.machine_index
    groups = {machine_index.group_of(machine.name) or "" for machine in ask.hosts.machines_on(host)}
    return groups | {event.group for event in ask.hosts.events_about(host)}


def rollout_seen(ask: Asked, rollout: Rollout) -> bool:
    """All of its groups, and all that is on its hosts."""
    if not ask.limited:
        return True
    groups = {step.group for step in rollout.steps if step.group}
    for name in {step.host for step in rollout.steps if step.host}:
        groups |= groups_on(ask, name) or {""}
    return all(map(ask.sees, groups))


async def rollout(ask: Asked, id: str) -> str:
    """The id to go on with."""
    if not ask.limited:
        return id
    found = await ask.rollouts.find(id)
    if isinstance(found, Refused) or not rollout_seen(ask, found):
        raise outside(ask, "rollout", id)
    return found.id


def selected(ask: Asked, wanted: RolloutRequest) -> None:
    """What a rollout that is asked for would go over: what it names, and no more."""
    if not ask.limited:
        return
    if wanted.selection.labels:
        raise PermissionDeniedException(
            f"token '{ask.by}' is limited to {in_words(ask.caller.limit)}, and labels may select"
            " more than that; name the groups"
        )
    if wanted.gate is not None and wanted.gate.http:
        raise PermissionDeniedException(
            f"token '{ask.by}' is limited to {in_words(ask.caller.limit)}, and an address would be"
            " asked by the service from where it runs; name a gate command (gate_command), or have"
            " somebody start this whose token has no limit"
        )
    for name in wanted.selection.groups:
        group(ask, name)
    for name in wanted.selection.hosts:
        host(ask, name)
    draft = ask.rollouts.draft(wanted)
    if isinstance(draft, Refused):
        return  # and will be told why, which is about nothing else than what it named
    if not rollout_seen(ask, draft):
        raise PermissionDeniedException(
            f"this selects groups that token '{ask.by}' does not reach: it is limited to"
            f" {in_words(ask.caller.limit)}"
        )


async def answered(ask: Asked, makes: Makes | None, answer: Any, path: str, name: str) -> None:
    """May this caller still be told what was answered to a request of its own? By the groups that
    the answer is about, as they are labelled now."""
    if not ask.limited:
        return
    match makes:
        case Makes.OUTCOME | Makes.RESTORED:
            about = [answer["group"]]
        case Makes.GROUP:
            about = [answer["name"]]
        case Makes.OUTCOMES:
            about = [event["group"] for event in answer["events"]]
        case _:
            about = []
            await rollout(ask, answer["id"])
    if not all(map(ask.sees, about)):
        raise PermissionDeniedException(
            f"token '{ask.by}' is limited to {in_words(ask.caller.limit)}; what was done under this"
            " key is not within that any more"
        )
    if makes is Makes.OUTCOMES and not about:
        (host if path.startswith("/v1/hosts/") else scale_set)(ask, name)


def explained(ask: Asked, found: Explanation) -> Explanation:
    """What an event waits for; where that has to do with others, without their names."""
    joint = found.event.joint
    if joint is None or all(map(ask.sees, joint.groups)):
        return found
    holds = tuple(
        Hold(kind=hold.kind, says=WITH_OTHERS, since=hold.since, until=hold.until)
        for hold in found.holds
    )
    return msgspec.structs.replace(found, holds=holds, says=says(found.event, holds))


class TokenEnded(Exception):
    """In the middle of an answer: the connection is cut, so that nobody takes it for whole."""


def still_or_ended(ask: Asked) -> None:
    if not still(ask):
        raise TokenEnded(f"token '{ask.by}' is revoked or has expired")


def still(ask: Asked) -> bool:
    """May this caller be told more? For whoever is told something for as long as it lasts."""
    token = ask.caller.token
    return ask.tokens.valid(token) if token else not ask.tokens.needed
