"""The enumerations and limits that the types of the control API refer to by name.

The types of `schema` are shared with the client, which imports neither the service nor the core.
They name a value (`documented(enum="EventType")`), which is filled in here for the document.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from forewarn.core.deciding.holds import HoldKind
from forewarn.core.events import (
    MAX_DESCRIPTION,
    MAX_DURATION_SECONDS,
    MAX_EVENT_MACHINES,
    MAX_NOTICE,
    EventType,
    Source,
    Status,
)
from forewarn.core.fleet import GroupKind, Health
from forewarn.core.rollouts.lanes import MAX_SELECTED
from forewarn.core.rollouts.progress import StepState, WaitKind
from forewarn.core.rollouts.window_syntax import MAX_WINDOWS
from forewarn.core.time import SECOND
from forewarn.service.faults import kinds, model, validate
from forewarn.service.platform.hosts import MaintenanceMode
from forewarn.service.rollouts import rollouts
from forewarn.service.rollouts.gates import MAX_GATE_TIMEOUT
from forewarn.service.rollouts.request import MAX_AT_ONCE, MAX_BAKE


def values(enumeration: Iterable[enum.Enum]) -> list[Any]:
    return [member.value for member in enumeration]


VALUES: Mapping[str, Any] = {
    "EventType": values(EventType),
    "Status": values(Status),
    "Source": values(Source),
    "GroupKind": values(GroupKind),
    "Health": values(Health),
    "MaintenanceMode": values(MaintenanceMode),
    "RolloutState": list(rollouts.STATES),
    "StepState": values(StepState),
    "HoldKind": values(HoldKind),
    "WaitKind": values(WaitKind),
    "FaultKind": values(kinds.FaultKind),
    "FaultState": list(model.STATES),
    "FaultMethod": ["", *validate.METHODS],
    "MAX_DESCRIPTION": MAX_DESCRIPTION,
    "MAX_NOTICE": MAX_NOTICE // SECOND,
    "MAX_DURATION_SECONDS": MAX_DURATION_SECONDS,
    "MAX_EVENT_MACHINES": MAX_EVENT_MACHINES,
    "MAX_SELECTED": MAX_SELECTED,
    "MAX_WINDOWS": MAX_WINDOWS,
    "MAX_AT_ONCE": MAX_AT_ONCE,
    "MAX_BAKE": MAX_BAKE // SECOND,
    "MAX_GATE_TIMEOUT": MAX_GATE_TIMEOUT // SECOND,
    "MAX_FAULT_TIMES": validate.MAX_FAULT_TIMES,
    "MAX_FAULT_BODY": validate.MAX_FAULT_BODY,
    "MAX_SEED": validate.MAX_SEED,
}
_KEYWORDS = ("enum", "maximum", "maxLength", "maxItems")  # of JSON Schema, with named values


def resolved(schema: Any) -> Any:
    """Return the schema with every name of a value replaced by the value."""
    if isinstance(schema, dict):
        return {
            key: VALUES[value] if key in _KEYWORDS and isinstance(value, str) else resolved(value)
            for key, value in schema.items()
        }
    return [resolved(item) for item in schema] if isinstance(schema, list) else schema
