"""Operations of the control API on the verdict."""

from __future__ import annotations

from forewarn.control.operations.operation import NOT_STORED, Operation
from forewarn.control.schema import queries as q
from forewarn.verdict.verdict import Verdict

GET_VERDICT = Operation(
    "GET /v1/verdict",
    "Get what clients did about their events, and what they did wrong",
    Verdict,
    query=q.VerdictQuery,
    respects_limits=True,
    refuses=(404, 409),
    command="verdict --machine web_0",
)

FORGET_VERDICT = Operation(
    "POST /v1/verdict/forget",
    "Start the verdict over",
    Verdict,
    why_no_key=NOT_STORED,
    refuses=(409,),
    command="verdict --forget",
)
