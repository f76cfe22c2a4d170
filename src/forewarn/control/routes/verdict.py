"""The verdict over HTTP: what guests did about their events, and beginning anew."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import get, post
from litestar.params import FromQuery

from forewarn.control.http import authorization
from forewarn.control.http.authorization import KEEPS_LIMITS
from forewarn.control.http.context import Ask, Asked, AtHand, Context
from forewarn.control.http.errors import RefusedError, allowed
from forewarn.core.refusal import conflict, unknown
from forewarn.verdict.observer import Observer
from forewarn.verdict.verdict import Verdict

NOBODY = (
    "this service keeps no account of what guests do; start it with observe = true"
    " ('forewarn dev' does unless told --no-observe)"
)


def handlers(desk: AtHand) -> list[Any]:
    @get("/v1/verdict", opt=KEEPS_LIMITS)
    async def verdict(
        ask: Ask, machine: FromQuery[str | None] = None, event: FromQuery[str | None] = None
    ) -> Verdict:
        """As things stand now: of everybody, of one machine, about one event."""
        found = _observer(desk()).verdict()
        if machine is not None:
            authorization.machines(ask, machine)
            machine_index = desk().platform.machine_index
            if machine_index.machine(machine) is None and not found.knows(machine):
                raise RefusedError(unknown(machine_index.unknown_machine(machine)))
            found = found.of(machine)
        if event is not None:
            id = await authorization.event(ask, event)
            found = found.about(allowed(await desk().platform.event(id)).id)
        return _within(ask, found)

    @post("/v1/verdict/forget", status_code=200, sync_to_thread=False)
    def forget() -> Verdict:
        """Begin anew; what is going on is still known, but nothing is held against anybody."""
        observer = _observer(desk())
        observer.forget()
        return observer.verdict()

    return [verdict, forget]


def _observer(desk: Context) -> Observer:
    if desk.observer is None:
        raise RefusedError(conflict(NOBODY))
    return desk.observer


def _within(ask: Asked, verdict: Verdict) -> Verdict:
    """What a caller who is limited may see of it."""
    if not ask.limited:
        return verdict
    return msgspec.structs.replace(
        verdict,
        courses=tuple(one for one in verdict.courses if ask.sees(one.group)),
        conducts=tuple(one for one in verdict.conducts if ask.sees(one.group)),
        unannounced=tuple(one for one in verdict.unannounced if ask.sees(one.group)),
        complaints=tuple(one for one in verdict.complaints if ask.sees(one.group)),
        remarks=(),
    )
