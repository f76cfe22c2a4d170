"""/healthz and /readyz: for those who look after the service, without a token and in few words."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, get

from forewarn.control.http.authorization import OPEN
from forewarn.control.http.context import AtHand
from forewarn.service.telemetry.health import parts


class HealthReport(msgspec.Struct, kw_only=True):
    """How it is as a whole, and each part: `ok`, or what is wrong with it."""

    status: str  # ok, or failing
    parts: dict[str, str]


def handlers(desk: AtHand) -> list[Any]:
    @get("/healthz", opt=dict(OPEN), sync_to_thread=False)
    def healthz() -> Response[HealthReport]:
        """Does it work at all? 503 if not: starting it anew is the remedy."""
        return _answer(desk().health.healthy())

    @get("/readyz", opt=dict(OPEN), sync_to_thread=False)
    def readyz() -> Response[HealthReport]:
        """Can it do what it is there for? 503 if not, with the reasons."""
        return _answer(desk().health.ready())

    return [healthz, readyz]


def _answer(said: dict[str, str]) -> Response[HealthReport]:
    failing = any(said.values())
    wellness = HealthReport(status="failing" if failing else "ok", parts=parts(said))
    return Response(wellness, status_code=503 if failing else 200, media_type="application/json")
