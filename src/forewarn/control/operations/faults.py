"""Operations of the control API on injected faults."""

from __future__ import annotations

from forewarn.control.operations.operation import NOT_STORED, Operation
from forewarn.control.schema import faults as f
from forewarn.control.schema import queries as q

ADD_FAULT = Operation(
    "POST /v1/faults",
    "Add a fault",
    f.Fault,
    takes=f.FaultRequest,
    status=201,
    role="admin",
    why_no_key=NOT_STORED,
    refuses=(404, 409),
    command="fault add gone --machine web_0 --times 3",
    example={"kind": "gone", "machines": ["web_0"], "times": 3},
    arguments=("kind",),
    help="Inject a fault into the service's responses or events. See 'forewarn fault kinds'.",
    options={"skip": "after", "starts_in": "from", "lasts": "for"},
)

LIST_FAULTS = Operation(
    "GET /v1/faults",
    "List faults, with how often each has taken effect",
    list[f.Fault],
    query=q.PageQuery,
    role="admin",
    paged=True,
    command="fault list",
    help="List all faults, and how often each was applied.",
)

GET_FAULT = Operation("GET /v1/faults/{id}", "Get a fault", f.Fault, role="admin")

CLEAR_FAULT = Operation(
    "DELETE /v1/faults/{id}", "Clear a fault", f.Fault, role="admin", command="fault clear f1"
)

CLEAR_FAULTS = Operation(
    "DELETE /v1/faults", "Clear all faults", list[f.Fault], role="admin", command="fault clear"
)
