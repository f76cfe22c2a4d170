"""Reimages of the members of a scale set: a rollout of Redeploys in place, one update domain after
the other. Its id is that of the operation."""

from __future__ import annotations

from typing import Any

from forewarn.arm.errors import ArmError, not_allowed, unwrap
from forewarn.arm.inventory import Inventory
from forewarn.arm.operations import accepted, rollout_id
from forewarn.arm.request import Answer, Request
from forewarn.arm.routes.scale_sets import (
    INSTANCE,
    SCALE_SET,
    member_of,
    named_members,
    scale_set_of,
)
from forewarn.arm.routing import route
from forewarn.arm.scale_set_update import PROFILE
from forewarn.arm.times import moment
from forewarn.core import EventType, Group, Machine
from forewarn.core.access import Role
from forewarn.core.rollouts.model import Rollout
from forewarn.core.rollouts.selection import Selection
from forewarn.service.indexes.placement import REIMAGE
from forewarn.service.rollouts.request import RolloutRequest

DESCRIPTION = "Virtual machine is going to be reimaged."
CODES = {"done": "Completed", "aborted": "Cancelled", "expired": "Faulted", "blocked": "Faulted"}


@route("POST", SCALE_SET + "/reimage", role=Role.OPERATOR, limited=False)
@route("POST", SCALE_SET + "/reimageall", role=Role.OPERATOR, limited=False)
async def reimage_instances(request: Request) -> Answer:
    return await _reimage(request, named_members(request))


@route("POST", INSTANCE + "/reimage", role=Role.OPERATOR, limited=False)
@route("POST", INSTANCE + "/reimageall", role=Role.OPERATOR, limited=False)
async def reimage_instance(request: Request) -> Answer:
    return await _reimage(request, [member_of(request)])


@route("POST", SCALE_SET + "/osRollingUpgrade", role=Role.OPERATOR, limited=False)
async def start_rolling_upgrade(request: Request) -> Answer:
    return await _reimage(request, Inventory(request.call).instances(scale_set_of(request), None))


@route("POST", SCALE_SET + "/rollingUpgrades/cancel", role=Role.OPERATOR, limited=False)
async def cancel_rolling_upgrade(request: Request) -> Answer:
    latest = _latest(request)
    if latest is None or latest.ended_at is not None:
        raise not_allowed(f"No upgrade of scale set '{request.names['scale_set']}' is under way.")
    unwrap(await request.call.rollouts.abort(latest.id, request.call.by, "cancelled by the API"))
    return Answer()


@route("GET", SCALE_SET + "/rollingUpgrades/latest", limited=False)
async def get_latest_rolling_upgrade(request: Request) -> Answer:
    if (latest := _latest(request)) is None:
        name = request.names["scale_set"]
        raise ArmError(404, "NotFound", f"Scale set '{name}' has had no upgrade.")
    report = unwrap(await request.call.rollouts.report(latest.id))
    steps = [step for lane in report.next.lanes for step in lane.steps]
    over = sum(len(step.step.machines) for step in steps if step.state.over)
    at = moment(latest.created_at)
    status: dict[str, Any] = {"code": CODES.get(report.state, "RollingForward"), "startTime": at}
    status |= {"lastAction": "Start", "lastActionTime": at}
    progress = dict.fromkeys(("failedInstanceCount", "inProgressInstanceCount"), 0)
    progress |= {"successfulInstanceCount": over}
    progress |= {"pendingInstanceCount": latest.size.machines - over}
    return Answer(body={"properties": {"runningStatus": status, "progress": progress}})


async def _reimage(request: Request, members: list[tuple[Group, Machine]]) -> Answer:
    notices = [group.policy.image_notice for group, _ in members]
    known = [notice for notice in notices if notice is not None]
    if not known or len(known) < len(notices):
        raise not_allowed(
            "Instances are not reimaged unannounced; first enable"
            f" {PROFILE}.osImageNotificationProfile."
        )
    id, call = request.operation_id(), request.call
    wanted = RolloutRequest(
        type=EventType.REDEPLOY,
        selection=Selection(machines=tuple(machine.name for _, machine in members)),
        by=call.by,
        notice=max(known),
        short_notice=True,
        description=DESCRIPTION,
    )
    unwrap(await call.rollouts.start(wanted, rollout_id(id)))
    return accepted(request, id, ())


def _latest(request: Request) -> Rollout | None:
    names = {group.name for group in scale_set_of(request).groups}
    found = [
        rollout
        for rollout in request.context.store.registry.rollouts.values()
        if rollout.id.startswith(REIMAGE) and names & {step.group for step in rollout.steps}
    ]
    return max(found, key=lambda rollout: rollout.created_at, default=None)
