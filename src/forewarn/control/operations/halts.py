"""Operations of the control API on halts."""

from __future__ import annotations

from forewarn.control.operations.operation import REPEATABLE, Operation
from forewarn.control.schema import halts as h
from forewarn.control.schema import queries as q

PLACE_HALT = Operation(
    "POST /v1/halts",
    "Halt the fleet, or a part of it",
    h.Halt,
    takes=h.HaltRequest,
    why_no_key=REPEATABLE,
    refuses=(404, 409),
    command="halt place --label rack=r7 --note 'smoke in row 7'",
    example={"label": "tier=web", "note": "smoke in row 7"},
    help=(
        "Halt the whole fleet, or a part of it. Until the halt is released, no event starts, no "
        "matter who announced, approved or requested it; events that have started continue."
    ),
)

LIST_HALTS = Operation(
    "GET /v1/halts",
    "List active halts",
    list[h.Halt],
    query=q.TimedPageQuery,
    respects_limits=True,
    paged=True,
    command="halt list",
    help="List active halts.",
)

GET_HALT = Operation("GET /v1/halts/{id}", "Get an active halt", h.Halt, refuses=(409,))

RELEASE_HALT = Operation(
    "POST /v1/halts/{id}/release",
    "Release a halt",
    h.Halt,
    takes=h.ReleaseRequest,
    why_no_key="a halt that has been released cannot be released again",
    refuses=(409,),
    command="halt release 4933F66C",
    example={"note": "row 7 is fine"},
    help="Release a halt. Events that waited for it start as soon as nothing else holds them.",
)
