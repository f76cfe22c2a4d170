"""Conditional requests: the ETag of a resource, and whether it still is the one that the caller has
seen (If-Match).

A tag covers what operators base decisions on, not how often a machine has polled. It is compared
inside the transaction, with the state that is about to be changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec
from litestar import Request

from forewarn.control.http.context import Context
from forewarn.control.http.errors import ProblemError
from forewarn.control.http.operation import operation_of
from forewarn.control.views import core
from forewarn.core import Event, Group, Machine, Refused
from forewarn.core.fleet import Host
from forewarn.core.refusal import stale
from forewarn.core.rollouts.model import Rollout
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.service.fleet.apply import fleet_of
from forewarn.service.fleet.diff import as_known, declared_host
from forewarn.service.fleet.export import entry_of
from forewarn.service.indexes.coverage import CoverageCounts
from forewarn.store.port import States, Store

ANY = "*"
SHOWN_TAG = 80  # characters of an If-Match that a refusal repeats

CurrentTag: TypeAlias = Callable[[States], str | None]  # None: the resource does not exist

_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')


def machine_tag(group: Group, machine: Machine) -> str:
    return _digest(core.machine(group, machine, None, lambda _: "", 0), machine)


def group_tag(group: Group) -> str:
    return _digest(core.group(group, CoverageCounts()), group.machines, group.place)


def host_tag(host: Host, machines: Iterable[Machine], events: Iterable[Event]) -> str:
    names = sorted(machine.name for machine in machines)
    return _digest(host, names, sorted(event.id for event in events))


def event_tag(event: Event) -> str:
    return _digest(core.event(event))


def rollout_tag(rollout: Rollout, events: Iterable[Event]) -> str:
    """Return the tag of a rollout, which covers the status of its events."""
    return _digest(rollout, sorted((event.id, event.status.value) for event in events))


def bytes_tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _digest(*parts: object) -> str:
    return bytes_tag(b"\0".join(map(msgspec.json.encode, parts)))


def matching(header: str, tag: str, *, weakly: bool = False) -> bool:
    if header.strip() == ANY:
        return True
    tags = _TAG.findall(header)
    return tag in ([given.removeprefix("W/") for given in tags] if weakly else tags)


class Precondition:
    """If-Match and If-None-Match of a request, checked against the states it is committed to."""

    def __init__(
        self, if_match: str, if_none_match: str, what: str, current: CurrentTag, store: Store
    ) -> None:
        self._if_match, self._if_none_match = if_match, if_none_match
        self._what, self._current, self._store = what, current, store
        self.checked = False

    def __call__(self, states: States) -> Refused | None:
        self.checked = True
        tag = self._current(states)
        if (
            self._if_none_match
            and tag is not None
            and matching(self._if_none_match, tag, weakly=True)
        ):
            state = "already exists" if self._if_none_match == ANY else f"has the ETag {tag}"
            header = self._if_none_match[:SHOWN_TAG]
            return stale(
                f"{self._what} {state}, which If-None-Match ({header}) excludes; read it and decide"
                " again"
            )
        if not self._if_match or (tag is not None and matching(self._if_match, tag)):
            return None
        return stale(
            f"{self._what} has changed: If-Match is {self._if_match[:SHOWN_TAG]}, but its ETag is"
            f" now {tag or 'another'}; read it and decide again"
        )

    def check_now(self) -> Refused | None:
        """Check the precondition against the committed state, outside of a transaction."""
        return self(States({}, dict(self._store.groups), registry=self._store.registry))


async def precondition_of(context: Context, request: Request[Any, Any, Any]) -> Precondition | None:
    """Return the precondition of a request on the resource that its path names, or None. If the
    resource does not exist, the handler refuses the request; a malformed tag matches nothing."""
    if_match = ", ".join(request.headers.getall("if-match", []))
    values = request.headers.getall("if-none-match", []) if request.method == "PUT" else []
    if_none_match = ", ".join(values).strip()
    if not if_match and not values:
        return None
    if not operation_of(request.route_handler).conditional:
        raise ProblemError(
            "invalid", "this operation takes no If-Match: it does not change a single resource"
        )
    kind = request.scope["path_template"].split("/")[2]
    name = next(iter(request.path_params.values()), "")
    resource = await _RESOURCES[kind](context, name)
    if resource is None:
        return None
    what, current = resource
    precondition = Precondition(if_match, if_none_match, what, current, context.store)
    request.scope["state"]["precondition"] = precondition
    return precondition


async def _machine(context: Context, name: str) -> tuple[str, CurrentTag] | None:
    group = context.platform.machine_index.group_of(name)
    if group is None:
        return None

    def current(states: States) -> str | None:
        current_group = states[group]
        machine = current_group.machine(name)
        return None if machine is None else machine_tag(current_group, machine)

    return f"machine '{name}'", current


async def _group(_context: Context, name: str) -> tuple[str, CurrentTag] | None:
    def current(states: States) -> str | None:
        group = states[name]
        return group_tag(group) if group.machines else None

    return f"group '{name}'", current


async def _host(context: Context, name: str) -> tuple[str, CurrentTag] | None:
    hosts, machine_index = context.hosts, context.platform.machine_index

    def current(states: States) -> str | None:
        host = states.registry.hosts.get(name)
        if host is None:
            return None
        names = {machine_index.group_of(machine.name) or "" for machine in hosts.machines_on(name)}
        names |= {event.group for event in hosts.events_about(name)}
        # Groups that were changed earlier in this batch are not in the indexes yet.
        groups = [states[group] for group in names | set(states.maps[0])]
        return host_tag(
            host,
            [m for group in groups for m in group.machines if m.host == name and m.alive],
            [e for group in groups for e in group.events if e.host == name],
        )

    return f"host '{name}'", current


async def _event(context: Context, id: str) -> tuple[str, CurrentTag] | None:
    seen = await context.platform.event(id)
    if isinstance(seen, Refused):
        return None
    if seen.status.over:
        return f"event {seen.id}", lambda _: event_tag(seen)

    def current(states: States) -> str | None:
        event = states[seen.group].event(seen.id)
        return None if event is None else event_tag(event)

    return f"event {seen.id}", current


async def _rollout(context: Context, id: str) -> tuple[str, CurrentTag] | None:
    seen = await context.rollouts.find(id)
    if isinstance(seen, Refused):
        return None
    ended = await _ended_events(context, seen)

    def current(states: States) -> str | None:
        rollout = states.registry.rollouts.get(seen.id)
        if rollout is None:
            return None
        return rollout_tag(rollout, [*ended, *_active_events(context, states, rollout)])

    return f"rollout {seen.id}", current


async def _ended_events(context: Context, rollout: Rollout) -> list[Event]:
    return [event for event in await context.rollouts.events(rollout) if event.status.over]


def _active_events(context: Context, states: States, rollout: Rollout) -> list[Event]:
    active = [e.group for e in context.platform.active() if e.cause.startswith(rollout.prefix)]
    groups: Collection[str] = {*active, *states.maps[0]}
    return [e for name in groups for e in states[name].events if e.cause.startswith(rollout.prefix)]


async def current_rollout_tag(context: Context, rollout: Rollout) -> str:
    """Return the tag of a rollout in the committed state."""
    ended = await _ended_events(context, rollout)
    states = States({}, dict(context.store.groups), registry=context.store.registry)
    return rollout_tag(rollout, [*ended, *_active_events(context, states, rollout)])


async def _fleet(context: Context, _name: str) -> tuple[str, CurrentTag] | None:
    """Encode the fleet beforehand, since it is too large for a transaction, which only checks that
    the fleet has not changed since."""
    registry = context.store.registry
    groups, hosts = dict(context.store.groups), dict(registry.hosts)
    configurations = dict(registry.configurations)
    tag = await asyncio.to_thread(fleet_tag, groups, hosts, configurations)

    def current(states: States) -> str | None:
        same = (
            _same_groups(groups, states)
            and _same_hosts(hosts, states.registry.hosts)
            and configurations == states.registry.configurations
        )
        return tag if same else None

    return "the fleet", current


def fleet_tag(
    groups: Mapping[str, Group],
    hosts: Mapping[str, Host],
    configurations: Mapping[str, MaintenanceConfiguration],
) -> str:
    fleet = fleet_of(groups, hosts, configurations, known=True)
    return bytes_tag(msgspec.json.encode(entry_of(fleet)))


def _same_groups(before: Mapping[str, Group], states: States) -> bool:
    """Whether the inventory is the same. An unchanged group is the identical object, so that only
    changed groups are compared."""
    committed = states.maps[-1]
    names = {name for name, group in committed.items() if before.get(name) is not group}
    empty = Group(name="")
    changed = [(before.get(name, empty), states[name]) for name in names | set(states.maps[0])]
    return all(_inventory_of(old) == _inventory_of(new) for old, new in changed)


def _inventory_of(group: Group) -> tuple[object, ...]:
    machines = tuple(map(as_known, group.machines))
    return group.kind, group.policy, group.place, group.labels, machines


def _same_hosts(before: Mapping[str, Host], now: Mapping[str, Host]) -> bool:
    return before.keys() == now.keys() and all(
        declared_host(host) == declared_host(now[name]) for name, host in before.items()
    )


_RESOURCES: dict[str, Callable[[Any, str], Any]] = {
    "machines": _machine,
    "groups": _group,
    "hosts": _host,
    "events": _event,
    "rollouts": _rollout,
    "fleet": _fleet,
}
