"""Virtual machines: machines that are not numbered members of a scale set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from forewarn.arm import views
from forewarn.arm.errors import ArmError, not_allowed
from forewarn.arm.inventory import Inventory, is_uniform
from forewarn.arm.options import (
    EXPAND,
    FILTER,
    PAGED,
    STATUS_ONLY,
    expansions,
    flag,
    predicate,
)
from forewarn.arm.paging import page_of_parts
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import COMPUTE, RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.arm.scale_set_update import read_rules
from forewarn.control.http.context import CallContext
from forewarn.control.views.azure import scale_set_id, scale_set_of
from forewarn.core import EventType, Group, Machine, Refused
from forewarn.core.access import Role
from forewarn.service.platform.platform import Outcomes
from forewarn.support.limits import MAX_EVENT_MACHINES
from forewarn.support.text import listing

MACHINES = COMPUTE + "/virtualMachines"
MACHINE = RESOURCE_GROUP + MACHINES + "/{name}"
MAX_MACHINES = MAX_EVENT_MACHINES  # of one request, as for a request to the control API
Members: TypeAlias = list[tuple[Group, Machine]]
FindMembers: TypeAlias = Callable[[], Members]  # may raise ArmError


@route("GET", SUBSCRIPTION + MACHINES, options=(FILTER, EXPAND, STATUS_ONLY, *PAGED))
@route("GET", RESOURCE_GROUP + MACHINES, options=(FILTER, EXPAND, STATUS_ONLY, *PAGED))
async def list_machines(request: Request) -> Answer:
    groups = Inventory(request.call).groups(*request.place)
    now, expand = request.now, expands(request) or flag(request.parameters, STATUS_ONLY)
    wanted = predicate(request.parameters, {"virtualMachineScaleSet/id": _scale_set_id})

    def build() -> Answer:
        parts = (
            ((group.name,), filter(wanted, _machines_in(group)))
            for group in sorted(groups, key=lambda group: group.name)
        )
        return page_of_parts(
            request,
            parts,
            machine_key,
            lambda member: views.virtual_machine(*member, now, expand=expand),
        )

    return await asyncio.to_thread(build)


def _machines_in(group: Group) -> Iterator[tuple[Group, Machine]]:
    return ((group, m) for m in group.machines if m.alive and not is_uniform(group))


def _scale_set_id(member: tuple[Group, Machine]) -> tuple[str, ...]:
    return (scale_set_id(member[0]),) if scale_set_of(member[0]) else ()


@route("GET", MACHINE, options=(EXPAND,))
async def get_machine(request: Request) -> Answer:
    member = machine_of(request)
    return Answer(body=views.virtual_machine(*member, request.now, expand=expands(request)))


@route("PUT", MACHINE, role=Role.OPERATOR)
@route("PATCH", MACHINE, role=Role.OPERATOR)
async def update_machine(request: Request) -> Answer:
    def view(group: Group) -> dict[str, Any]:
        return views.virtual_machine(group, machine_of(request)[1], request.now)

    await change_rules(request, lambda: machine_of(request)[0], view)
    return await get_machine(request)


async def change_rules(
    request: Request, find: Callable[[], Group], view: Callable[[Group], dict[str, Any]]
) -> None:
    """Change the rules for events of a group, as the body says. Raises ArmError."""
    body = request.body()

    async def work(call: CallContext, cause: str) -> Outcomes | Refused:
        try:
            group = find()
        except ArmError as error:
            message = f"{error.message} It can only be made with the fleet file."
            raise not_allowed(message) from error
        shown = view(group)
        owner = "" if "scheduledEventsPolicy" in shown["properties"] else f"group '{group.name}'"
        change = read_rules(body, shown, owner)
        return await call.removals.update_scale_set(
            [group], call.by, change=change, to=None, cause=cause
        )

    await request.operations.carry_out(request, work)


def machine_of(request: Request) -> tuple[Group, Machine]:
    return Inventory(request.call).machine(*request.place, request.names["name"])


def machine_key(member: tuple[Group, Machine]) -> tuple[str, str]:
    return member[0].name, member[1].name


def expands(request: Request) -> bool:
    """Is the instance view wanted? Machines and hosts have no user data to show."""
    return "instanceview" in expansions(request.parameters, "instanceView", "userData")


# Verbs, also for members of scale sets.


async def user_maintenance(request: Request, find: FindMembers, type: EventType) -> Answer:
    """Announce restarts or redeploys, all in one commit or none."""
    return await request.operations.start(
        request,
        lambda call, cause: call.platform.user_maintenance_of_each(
            _names(find), type, call.by, cause
        ),
    )


def _names(find: FindMembers) -> list[str]:
    """Return the names of machines, if they are not too many for one commit."""
    members = find()
    if len(members) > MAX_MACHINES:
        raise too_many(len(members))
    return [machine.name for _, machine in members]


def too_many(count: int) -> ArmError:
    return not_allowed(
        f"A request can be about at most {MAX_MACHINES:,} machines, and this one is about"
        f" {count:,}. Send several requests, each about fewer of them."
    )


async def maintain_now(request: Request, find: FindMembers, *, all_members: bool = False) -> Answer:
    """Approve the planned maintenance of machines, so that it begins now: of all of them in one
    commit, or of none. With `all_members`, those that have none are left out."""
    return await request.operations.start(
        request,
        lambda call, _: call.platform.approve_each(_planned(find(), all_members), call.by),
    )


def _planned(members: Members, all_members: bool) -> list[str]:
    """Return the ids of the maintenance that is planned for machines. Raises ArmError."""
    planned = {
        machine.name: views.maintenance_of(views.events_of(group, machine), under_way=True)
        for group, machine in members
    }
    ids = dict.fromkeys(event.id for event in planned.values() if event is not None)
    without = [name for name, event in planned.items() if event is None]
    if not ids or (without and not all_members):
        raise not_allowed(
            f"No maintenance is planned for {listing(without)} that could be done now."
            if without
            else "There is no machine whose maintenance could be done now."
        )
    return list(ids)


async def delete(request: Request, find: FindMembers) -> Answer:
    """Delete machines, all in one commit or none."""
    return await request.operations.start(
        request, lambda call, cause: call.removals.delete_each(_names(find), call.by, cause)
    )


def offer_restarts(place: str, find: Callable[[Request], Members]) -> None:
    """Declare the restarts and redeploys of the machines at a path."""

    def offer(verb: str, type: EventType) -> None:
        @route("POST", f"{place}/{verb}", role=Role.TENANT)
        async def announce(request: Request) -> Answer:
            return await user_maintenance(request, lambda: find(request), type)

    offer("restart", EventType.REBOOT)
    offer("redeploy", EventType.REDEPLOY)


def offer_verbs(place: str, find: Callable[[Request], Members]) -> None:
    """Declare what can be done to the one machine at a path."""
    offer_restarts(place, find)

    @route("GET", place + "/instanceView")
    async def get_instance_view(request: Request) -> Answer:
        [member] = find(request)
        return Answer(body=views.instance_view(*member, request.now))

    @route("POST", place + "/performMaintenance", role=Role.TENANT)
    async def perform_maintenance(request: Request) -> Answer:
        return await maintain_now(request, lambda: find(request))

    @route("POST", place + "/simulateEviction", role=Role.OPERATOR, limited=False)
    async def evict(request: Request) -> Answer:
        """Evict a spot machine. Clients do not wait until it is gone."""
        await request.operations.carry_out(
            request,
            lambda call, cause: call.removals.evict_each(
                _names(lambda: find(request)), call.by, cause
            ),
        )
        return Answer(status=204)

    @route("DELETE", place, role=Role.OPERATOR)
    async def delete_one(request: Request) -> Answer:
        """Delete a machine, which may be gone already."""
        try:
            return await delete(request, lambda: find(request))
        except ArmError as error:
            if error.code != "ResourceNotFound":
                raise
            return Answer(status=204)


offer_verbs(MACHINE, lambda request: [machine_of(request)])
