"""Operations on several machines in the control API: all in one commit, or none of them."""

from __future__ import annotations

from litestar.params import JSONBody

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext
from forewarn.control.http.errors import each_once, unwrap
from forewarn.control.http.operation import route
from forewarn.control.operations import machines as operations
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import EventType


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
