"""The verdict over HTTP: what guests did about their events, and beginning anew."""

from __future__ import annotations

import msgspec
from litestar import get, post

from forewarn.control.http import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import RefusedError, allowed
from forewarn.control.http.operation import Operation
from forewarn.control.http.parameters import ByEvent, ByMachine
from forewarn.core.refusal import conflict
from forewarn.verdict.observer import Observer
from forewarn.verdict.verdict import Verdict

NOT_OBSERVING = (
    "this service keeps no account of what guests do; start it with observe = true"
    " (the default of 'forewarn dev')"
)


@get(
    "/v1/verdict",
    **Operation(
        id="getVerdict",
        tag="verdict",
        summary="Get what guests did about their events, and what was wrong with it",
        respects_limits=True,
        refuses=(404, 409),
        commands=("verdict",),
        command_example="verdict --machine web_0",
    ).options,
)
async def get_verdict(call: Call, machine: ByMachine = None, event: ByEvent = None) -> Verdict:
    """As things stand now: of everybody, of one machine, about one event."""
    found = _observer().verdict()
    if machine is not None:
        authorization.machines(call, machine)
        machine_index = context().platform.machine_index
        if machine_index.machine(machine) is None and not found.knows(machine):
            raise RefusedError(machine_index.unknown_machine(machine))
        found = found.of(machine)
    if event is not None:
        id = await authorization.event(call, event)
        found = found.about(allowed(await context().platform.event(id)).id)
    return _within(call, found)


@post(
    "/v1/verdict/forget",
    sync_to_thread=False,
    **Operation(
        id="forgetVerdict",
        tag="verdict",
        summary="Start the verdict over",
        keyless="nothing of it is stored",
        refuses=(409,),
        commands=("verdict",),
        command_example="verdict --forget",
    ).options,
)
def forget_verdict() -> Verdict:
    """Begin anew; what is going on is still known, but nothing is held against anybody."""
    observer = _observer()
    observer.forget()
    return observer.verdict()


def _observer() -> Observer:
    observer = context().observer
    if observer is None:
        raise RefusedError(conflict(NOT_OBSERVING))
    return observer


def _within(call: CallContext, verdict: Verdict) -> Verdict:
    """What a caller who is limited may see of it."""
    if not call.limited:
        return verdict
    return msgspec.structs.replace(
        verdict,
        courses=tuple(one for one in verdict.courses if call.sees(one.group)),
        conducts=tuple(one for one in verdict.conducts if call.sees(one.group)),
        unannounced=tuple(one for one in verdict.unannounced if call.sees(one.group)),
        complaints=tuple(one for one in verdict.complaints if call.sees(one.group)),
        remarks=(),
    )
