"""The calls about faults."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.control.openapi.operation import REPEATABLE, Link, Operation, listed

OPERATIONS: Mapping[str, Operation] = {
    "POST /v1/faults": Operation(
        id="addFault",
        tag="faults",
        summary="Let something go wrong on purpose",
        status=201,
        keyless="nothing of it is stored",
        refuses=(400, 404, 409),
        links=(
            Link("getFault", "id", "$response.body#/id"),
            Link("clearFault", "id", "$response.body#/id"),
        ),
        commands=("fault add",),
        says="fault add gone --machine web_0 --times 3",
        example={"kind": "gone", "machines": ["web_0"], "times": 3},
    ),
    "GET /v1/faults": Operation(
        id="listFaults",
        tag="faults",
        summary="Faults and what has come of them, a page at a time",
        paged=True,
        refuses=(400,),
        links=listed("getFault", parameter="id"),
        commands=("fault list",),
        says="fault list",
    ),
    "GET /v1/faults/{id}": Operation(
        id="getFault",
        tag="faults",
        summary="One fault",
        says="fault list",
    ),
    "DELETE /v1/faults/{id}": Operation(
        id="clearFault",
        tag="faults",
        summary="Take a fault away",
        keyless=REPEATABLE,
        commands=("fault clear",),
        says="fault clear f1",
    ),
    "DELETE /v1/faults": Operation(
        id="clearFaults",
        tag="faults",
        summary="Take all faults away",
        keyless=REPEATABLE,
        commands=("fault clear",),
        says="fault clear",
    ),
}
