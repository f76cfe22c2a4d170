"""Machines in the control API: listing them, and restarting, removing, restoring or failing one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar import Response
from litestar.params import JSONBody

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import (
    RefusedError,
    encode_in_thread,
    outcome,
    parse_enum,
    parse_name,
    parse_selector,
    unwrap,
)
from forewarn.control.http.filters import MachineFilter
from forewarn.control.http.operation import route
from forewarn.control.http.orders import MachineOrder, by_group, machine_place
from forewarn.control.http.paging import (
    MAX_PAGE,
    After,
    Limit,
    parse_name_cursor,
)
from forewarn.control.http.parameters import ByGroup, ByHealth, ByHost, ByLabel, Name, query
from forewarn.control.http.preconditions import machine_tag
from forewarn.control.operations import machines as operations
from forewarn.control.routes.groups import known_group
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import EventType, Group, Machine
from forewarn.core.events import FAILURE_TYPE
from forewarn.core.fleet import Health
from forewarn.service.indexes.coverage import COVERAGES, has


@route(operations.LIST_MACHINES)
async def list_machines(
    call: Call,
    group: ByGroup = None,
    label: ByLabel = None,
    host: ByHost = None,
    health: ByHealth = None,
    gone: Annotated[
        bool | None, query("True: only machines that no longer exist; false: only those that do.")
    ] = None,
    not_back: Annotated[
        bool | None,
        query(
            "True: only machines that have not polled since an event was carried out on them;"
            " false: only the others."
        ),
    ] = None,
    enabled: Annotated[
        bool | None, query("True: only machines of enabled groups; false: only the others.")
    ] = None,
    coverage: Annotated[
        str | None,
        query(
            "Only machines with this coverage: those that have polled in the last hour"
            " (`listening`), before that (`silent`) or never (`never-polled`), or those that were"
            " shown events of their own and have never approved one (`never-approves`).",
            enum="CoverageFilter",
        ),
    ] = None,
    order: Annotated[
        str,
        query(
            "By the names of their groups, by their own, by those of their hosts, or those first"
            " that have most events, or have not polled for the longest time.",
            enum="MachineOrder",
        ),
    ] = MachineOrder.GROUP.value,
    limit: Limit = MAX_PAGE,
    after: After = None,
) -> Response[bytes]:
    """Those that are alike in the order come by name."""
    if group is not None:
        authorization.require_group(call, group)
    if host is not None:
        authorization.require_host(call, host, whole=False)
    criteria = MachineFilter(
        labels=parse_selector(label) or (),
        gone=gone,
        not_back=not_back,
        enabled=enabled,
        coverage=None if coverage is None else parse_name(COVERAGES, "coverage", coverage),
    )
    polls, now = context().platform.poll_index.polls, context().platform.writer.now().at
    cursor = parse_name_cursor(after)
    members = _members(call, group, _hosts(host, health))
    drift = dict(context().inventory.sightings.all())
    place = machine_place(parse_enum(MachineOrder, "order", order), polls, core.events_of)

    def covered(machine: Machine, coverage: str) -> bool:
        return machine.alive and has(coverage, polls(machine.name), now)

    def page() -> list[s.Machine]:
        matching = filters.machines(members, criteria, covered, place, cursor)
        machines = call.take_page(matching, limit, place or by_group)
        return core.machines(machines, polls, context().metadata_url_of, now, drift)

    return await encode_in_thread(page)


def _hosts(name: str | None, health: str | None) -> list[str] | None:
    """Return the hosts that a list is limited to; None: it is not limited to hosts."""
    wanted = None if health is None else parse_enum(Health, "health", health)
    if name is None and wanted is None:
        return None
    hosts = context().hosts.hosts() if name is None else [unwrap(context().hosts.host(name))]
    return [host.name for host in hosts if wanted in (None, host.health)]


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
def list_drift(call: Call, limit: Limit = MAX_PAGE, after: After = None) -> list[s.MachineDrift]:
    """As the driver sees them, ordered by name. Empty unless the service compares (`inventory` in
    its settings), and on a control node that does not decide."""
    inventory = context().inventory
    found = inventory.sightings.all()
    page = call.take_page(
        sorted(name for name in found if name > (after or "")), limit, lambda item: (item,)
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
