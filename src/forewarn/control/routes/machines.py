"""Machines in the control API: listing them and unknown callers, restarting, removing and restoring
them, and failures."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from litestar import Response
from litestar.params import JSONBody

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import (
    RefusedError,
    each_once,
    encode_in_thread,
    outcome,
    parse_enum,
    parse_selector,
    unwrap,
)
from forewarn.control.http.operation import route
from forewarn.control.http.orders import by_group, machine_place
from forewarn.control.http.paging import parse_name_cursor
from forewarn.control.http.parameters import Name, Parameters
from forewarn.control.http.preconditions import machine_tag
from forewarn.control.operations import machines as operations
from forewarn.control.routes.groups import known_group
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q
from forewarn.control.views import core
from forewarn.core import EventType, Group, Machine
from forewarn.core.events import FAILURE_TYPE
from forewarn.service.indexes.coverage import has


@route(operations.LIST_MACHINES)
async def list_machines(call: Call, given: Parameters[q.MachineQuery]) -> Response[bytes]:
    """Those that are alike in the order come by name."""
    if given.group is not None:
        authorization.require_group(call, given.group)
    if given.host is not None:
        authorization.require_host(call, given.host, whole=False)
    labels = parse_selector(given.label) or ()
    polls, now = context().platform.poll_index.polls, context().platform.writer.now().at
    cursor = parse_name_cursor(given.after)
    members = _members(call, given.group, _hosts(given.host, given.health))
    drift = dict(context().inventory.sightings.all())
    place = machine_place(given.order, polls, core.events_of)

    def covered(machine: Machine, coverage: str) -> bool:
        return machine.alive and has(coverage, polls(machine.name), now)

    def page() -> list[s.Machine]:
        matching = filters.machines(members, labels, given, covered, place, cursor)
        machines = call.take_page(matching, given.limit, place or by_group)
        return core.machines(machines, polls, context().metadata_url_of, now, drift)

    return await encode_in_thread(page)


def _hosts(name: str | None, health: str | None) -> list[str] | None:
    """Return the hosts that a list is limited to; None: it is not limited to hosts."""
    if name is None and health is None:
        return None
    hosts = context().hosts.hosts() if name is None else [unwrap(context().hosts.host(name))]
    return [host.name for host in hosts if health in (None, host.health.value)]


def _members(
    call: Call, group: str | None, hosts: list[str] | None
) -> list[tuple[Group, Sequence[Machine]]]:
    """Return the machines that the caller sees, of one group or on some hosts, by their group."""
    if group is None:
        groups = [g for g in context().platform.machine_index.groups() if call.sees(g.name)]
    else:
        groups = [known_group(group)]
    if hosts is None:
        return [(g, g.machines) for g in groups]
    on_hosts = context().hosts.members_on(hosts)
    return [(g, on_hosts[g.name]) for g in groups if g.name in on_hosts]


def known_machine(name: str) -> tuple[Group, Machine]:
    machine_index = context().platform.machine_index
    member = machine_index.machine(name)
    if member is None:
        raise RefusedError(machine_index.unknown_machine(name))
    return member


def machine_view(group: Group, machine: Machine) -> s.Machine:
    platform = context().platform
    polls, now = platform.poll_index.polls(machine.name), platform.writer.now().at
    drift = context().inventory.sightings.all().get(machine.name)
    return core.machine(group, machine, polls, context().metadata_url_of, now, drift=drift)


@route(operations.GET_MACHINE)
def get_machine(call: Call, name: Name) -> s.Machine:
    authorization.require_machines(call, name)
    group, machine = known_machine(name)
    call.headers["ETag"] = machine_tag(group, machine)
    return machine_view(group, machine)


@route(operations.LIST_DRIFT)
def list_drift(call: Call, given: Parameters[q.PageQuery]) -> list[s.MachineDrift]:
    """As the driver sees them, ordered by name. Empty unless the service compares (`inventory` in
    its settings), and on a control node that does not decide."""
    inventory = context().inventory
    found = inventory.sightings.all()
    page = call.page(
        sorted(found), given.limit, lambda name: (name,), parse_name_cursor(given.after)
    )
    return [core.machine_drift(found[name], inventory.problems.get(name, "")) for name in page]


@route(operations.RESTART_MACHINE)
async def restart_machine(call: Call, name: Name) -> s.Outcome:
    """If the group is not enabled, the machine restarts at once and no event is shown."""
    authorization.require_machines(call, name)
    return outcome(await call.platform.user_maintenance(name, EventType.REBOOT, call.by))


@route(operations.REDEPLOY_MACHINE)
async def redeploy_machine(call: Call, name: Name) -> s.Outcome:
    """If the group is not enabled, the machine is redeployed at once and no event is shown."""
    authorization.require_machines(call, name)
    return outcome(await call.platform.user_maintenance(name, EventType.REDEPLOY, call.by))


@route(operations.RESTORE_MACHINE)
async def restore_machine(call: Call, name: Name) -> s.MachineOutcome:
    """A machine that is listed as not back counts as back, although it has not polled."""
    authorization.require_machines(call, name)
    return _machine_outcome(name, unwrap(await call.platform.restore(name, call.by)))


@route(operations.RECORD_MOVE)
async def record_move(call: Call, name: Name, data: JSONBody[s.MovedRequest]) -> s.MachineOutcome:
    """For a machine that was moved without an event, by hand or by another system. Nothing is done
    to the machine. What is planned for its old host does not affect it any more; events that have
    started continue."""
    return _machine_outcome(name, unwrap(await call.platform.record_move(name, data.host, call.by)))


def _machine_outcome(name: str, notes: Sequence[str]) -> s.MachineOutcome:
    view = msgspec.structs.asdict(machine_view(*known_machine(name)))
    return s.MachineOutcome(**view, notes=list(notes))


@route(operations.EVICT_MACHINE)
async def evict_machine(call: Call, name: Name) -> s.Outcome:
    return outcome(await call.removals.evict(name, call.by))


@route(operations.DELETE_MACHINE)
async def delete_machine(call: Call, name: Name) -> s.Outcome:
    authorization.require_machines(call, name)
    return outcome(await call.removals.delete(name, call.by))


@route(operations.FAIL_MACHINE)
async def fail_machine(call: Call, name: Name, data: JSONBody[s.FailMachineRequest]) -> s.Outcome:
    type = FAILURE_TYPE if data.type is None else parse_enum(EventType, "event type", data.type)
    return outcome(await call.removals.fail(name, type, call.by))


@route(operations.LIST_UNKNOWN_CALLERS)
def list_unknown_callers(call: Call, given: Parameters[q.PageQuery]) -> list[s.UnknownCaller]:
    """Addresses that have sent requests to the metadata endpoint and that belong to no machine, to
    one that no longer exists, or to one that is known to be on another host, ordered by address and
    host. They are kept in memory from the start of the service, at most 1,024 of them; those with
    the fewest requests are forgotten first."""
    platform, after = context().platform, parse_name_cursor(given.after)
    callers = platform.poll_index.unknown_callers.all()
    page = call.page(callers, given.limit, lambda item: (item.address, item.host), after)
    return [
        core.unknown_caller(caller, platform.machine_index.at(caller.address)) for caller in page
    ]


# Of several machines: all in one commit, or none of them.


@route(operations.RESTART_MACHINES)
async def restart_machines(call: Call, data: JSONBody[s.MachinesRequest]) -> s.Outcomes:
    """Each machine gets a Reboot of its own. If any of them cannot be restarted, nothing is done,
    and `errors` has every refusal."""
    return await _user_maintenance(call, data, EventType.REBOOT)


@route(operations.REDEPLOY_MACHINES)
async def redeploy_machines(call: Call, data: JSONBody[s.MachinesRequest]) -> s.Outcomes:
    """Each machine gets a Redeploy of its own. If any of them cannot be redeployed, nothing is
    done, and `errors` has every refusal."""
    return await _user_maintenance(call, data, EventType.REDEPLOY)


@route(operations.EVICT_MACHINES)
async def evict_machines(call: Call, data: JSONBody[s.MachinesRequest]) -> s.Outcomes:
    """Each machine gets a Preempt of its own. If any of them cannot be evicted, nothing is done,
    and `errors` has every refusal."""
    return core.outcomes(unwrap(await call.removals.evict_each(_names(data), call.by)))


@route(operations.DELETE_MACHINES)
async def delete_machines(call: Call, data: JSONBody[s.MachinesRequest]) -> s.Outcomes:
    """Each machine gets a Terminate of its own if the policy of its group requires it. If any of
    them cannot be deleted, nothing is done, and `errors` has every refusal."""
    machines = _names(data)
    authorization.require_machines(call, *machines)
    return core.outcomes(unwrap(await call.removals.delete_each(machines, call.by)))


async def _user_maintenance(
    call: CallContext, data: s.MachinesRequest, type: EventType
) -> s.Outcomes:
    machines = _names(data)
    authorization.require_machines(call, *machines)
    done = await call.platform.user_maintenance_of_each(machines, type, call.by)
    return core.outcomes(unwrap(done))


def _names(data: s.MachinesRequest) -> tuple[str, ...]:
    return each_once("machines", data.machines)
