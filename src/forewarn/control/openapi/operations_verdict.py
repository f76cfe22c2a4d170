"""The calls about the verdict."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.control.openapi.operation import Operation

OPERATIONS: Mapping[str, Operation] = {
    "GET /v1/verdict": Operation(
        id="getVerdict",
        tag="verdict",
        summary="What guests did about their events, and what was wrong with it",
        refuses=(400, 404, 409),
        commands=("verdict",),
        says="verdict --machine web_0",
    ),
    "POST /v1/verdict/forget": Operation(
        id="forgetVerdict",
        tag="verdict",
        summary="Begin anew: hold nothing against anybody",
        keyless="nothing of it is stored",
        refuses=(400, 409),
        commands=("verdict",),
        says="verdict --forget",
    ),
}
