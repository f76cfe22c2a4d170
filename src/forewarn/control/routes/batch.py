"""Operations on several machines in the control API: all in one commit, or none of them."""

from __future__ import annotations

from typing import Any

from litestar import post
from litestar.params import JSONBody

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext
from forewarn.control.http.errors import unwrap
from forewarn.control.http.operation import FIRST_EVENT_LINKS, KeyedResponse, Operation
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import EventType
from forewarn.core.access import Role

MACHINES = {"machines": ["web_0", "web_1"]}  # of an example
ALL_OR_NONE: dict[str, Any] = {
    "tag": "machines",
    "keyed_response": KeyedResponse.OUTCOMES,
    "links": FIRST_EVENT_LINKS,
    "example": MACHINES,
    "refuses": (409,),
}


@post(
    "/v1/batch/restart",
    **Operation(
        id="restartMachines",
        summary="Restart several machines as their user, in one commit or not at all",
        role=Role.TENANT,
        respects_limits=True,
        commands=("machine restart",),
        command_example="machine restart web_0 web_1",
        **ALL_OR_NONE,
    ).options,
)
async def restart_machines(call: Call, data: JSONBody[s.MachinesRequest]) -> s.Outcomes:
    """Each machine gets a Reboot of its own. If any of them cannot be restarted, nothing is done,
    and `errors` has every refusal."""
    return await _user_maintenance(call, data.machines, EventType.REBOOT)


@post(
    "/v1/batch/redeploy",
    **Operation(
        id="redeployMachines",
        summary="Redeploy several machines as their user, in one commit or not at all",
        role=Role.TENANT,
        respects_limits=True,
        commands=("machine redeploy",),
        command_example="machine redeploy web_0 web_1",
        **ALL_OR_NONE,
    ).options,
)
async def redeploy_machines(call: Call, data: JSONBody[s.MachinesRequest]) -> s.Outcomes:
    """Each machine gets a Redeploy of its own. If any of them cannot be redeployed, nothing is
    done, and `errors` has every refusal."""
    return await _user_maintenance(call, data.machines, EventType.REDEPLOY)


@post(
    "/v1/batch/evict",
    **Operation(
        id="evictMachines",
        summary="Evict several spot machines, in one commit or not at all",
        commands=("machine evict",),
        command_example="machine evict web_0 web_1",
        **ALL_OR_NONE,
    ).options,
)
async def evict_machines(call: Call, data: JSONBody[s.MachinesRequest]) -> s.Outcomes:
    """Each machine gets a Preempt of its own. If any of them cannot be evicted, nothing is done,
    and `errors` has every refusal."""
    return core.outcomes(unwrap(await call.removals.evict_each(data.machines, call.by)))


@post(
    "/v1/batch/delete",
    **Operation(
        id="deleteMachines",
        summary="Delete several machines, in one commit or not at all",
        respects_limits=True,
        commands=("machine delete",),
        command_example="machine delete web_0 web_1",
        **ALL_OR_NONE,
    ).options,
)
async def delete_machines(call: Call, data: JSONBody[s.MachinesRequest]) -> s.Outcomes:
    """Each machine gets a Terminate of its own if the policy of its group requires it. If any of
    them cannot be deleted, nothing is done, and `errors` has every refusal."""
    authorization.require_machines(call, *data.machines)
    return core.outcomes(unwrap(await call.removals.delete_each(data.machines, call.by)))


async def _user_maintenance(call: CallContext, machines: list[str], type: EventType) -> s.Outcomes:
    authorization.require_machines(call, *machines)
    done = await call.platform.user_maintenance_of_each(machines, type, call.by)
    return core.outcomes(unwrap(done))
