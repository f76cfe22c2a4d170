"""The verdict in the control API: what clients did about their events."""

from __future__ import annotations

import msgspec

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import RefusedError, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Parameters
from forewarn.control.operations import verdict as operations
from forewarn.control.schema import queries as q
from forewarn.core.refusal import conflict
from forewarn.verdict.observer import Observer
from forewarn.verdict.verdict import Verdict

NOT_OBSERVING = (
    "this service does not observe its clients; start it with observe = true"
    " (the default of 'forewarn dev')"
)


@route(operations.GET_VERDICT)
async def get_verdict(call: Call, given: Parameters[q.VerdictQuery]) -> Verdict:
    """The verdict up to now, on all clients, or only on one machine or about one event."""
    verdict, machine, event = _observer().verdict(), given.machine, given.event
    if machine is not None:
        authorization.require_machines(call, machine)
        machine_index = context().platform.machine_index
        if machine in verdict.machines:
            verdict = verdict.of(machine)
        elif machine_index.machine(machine) is None:
            raise RefusedError(machine_index.unknown_machine(machine))
        else:
            verdict = Verdict(at=verdict.at, remarks=verdict.remarks)
    if event is not None:
        id = await authorization.require_event(call, event)
        id = unwrap(await context().platform.event(id)).id
        known = id in verdict.events
        verdict = verdict.about(id) if known else Verdict(at=verdict.at, remarks=verdict.remarks)
    return _visible_part(call, verdict)


@route(operations.FORGET_VERDICT)
def forget_verdict() -> Verdict:
    """Discards all complaints. Events that are active are still known."""
    observer = _observer()
    observer.forget()
    return observer.verdict()


def _observer() -> Observer:
    observer = context().observer
    if observer is None:
        raise RefusedError(conflict(NOT_OBSERVING))
    return observer


def _visible_part(call: CallContext, verdict: Verdict) -> Verdict:
    """Return the part of a verdict that is within the caller's limit."""
    if not call.limited:
        return verdict
    return msgspec.structs.replace(
        verdict,
        courses=tuple(course for course in verdict.courses if call.sees(course.group)),
        conducts=tuple(conduct for conduct in verdict.conducts if call.sees(conduct.group)),
        unannounced=tuple(event for event in verdict.unannounced if call.sees(event.group)),
        complaints=tuple(c for c in verdict.complaints if call.sees(c.group)),
        remarks=(),
    )
