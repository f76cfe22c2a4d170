"""Every call of the control API by name: what it is for, what it takes beside its parameters, where
its answer leads, and which command does the same.

Shapes and parameters are read off the handlers themselves (`document.py`); a test fails when a
handler has no entry here, or an entry no handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import Request

from forewarn.control.openapi import (
    operations_events,
    operations_faults,
    operations_machines,
    operations_service,
    operations_verdict,
)
from forewarn.control.openapi.operation import Operation

OPERATIONS: Mapping[str, Operation] = {
    **operations_machines.OPERATIONS,
    **operations_events.OPERATIONS,
    **operations_faults.OPERATIONS,
    **operations_verdict.OPERATIONS,
    **operations_service.OPERATIONS,
}
_NONE = Operation(id="", tag="", summary="")
TAGS = {
    "machines": "What there is, and what can happen to one of them.",
    "groups": "Machines that are told together.",
    "hosts": "What machines run on.",
    "events": "What is announced, and what became of it.",
    "rollouts": "Events over many groups, one update domain at a time.",
    "fleet": "The inventory as a whole, or one thing of it.",
    "history": "Who did what, and when.",
    "feed": "Every change, as it happens.",
    "tokens": "Who may ask.",
    "faults": "What goes wrong on purpose.",
    "verdict": "What guests did about their events.",
    "service": "The service itself.",
}


def of(request: Request[Any, Any, Any]) -> Operation:
    return OPERATIONS.get(f"{request.method} {request.scope['path_template']}", _NONE)
