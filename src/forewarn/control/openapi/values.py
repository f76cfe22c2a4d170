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
    MAX_READY_NOTE,
    MAX_TICKET,
    EventType,
    Source,
    Status,
)
from forewarn.core.fleet import GroupKind, Health, OverWhen
from forewarn.core.rollouts.model import (
    EVACUATE_WORK_RETURN,
    LIVE_MIGRATION,
    Action,
    Conflicts,
    WorkBy,
)
from forewarn.core.rollouts.progress import StepState, WaitKind
from forewarn.core.rollouts.selection import MAX_SELECTED
from forewarn.core.rollouts.waves import MAX_WAVES
from forewarn.core.time import SECOND
from forewarn.core.windows.syntax import MAX_BLACKOUTS, MAX_WINDOWS
from forewarn.service.faults import kinds, model, validate
from forewarn.service.indexes.coverage import COVERAGES, Coverage
from forewarn.service.indexes.overview import OverviewBy
from forewarn.service.platform.explain import AdviceKind
from forewarn.service.platform.halts import MAX_HALT_GROUPS, MAX_HALT_NOTE
from forewarn.service.platform.hosts import MAINTENANCE_MODES, NodeState
from forewarn.service.platform.platform import MAX_CANCELLED
from forewarn.service.rollouts import rollouts
from forewarn.service.rollouts.gates import MAX_GATE_TIMEOUT
from forewarn.service.rollouts.request import (
    MAX_AT_ONCE,
    MAX_BAKE,
    MAX_FAILURES,
    MAX_LASTS,
    MAX_ORDER_LABELS,
    PauseAfter,
)


def values(enumeration: Iterable[enum.Enum]) -> list[Any]:
    return [member.value for member in enumeration]


VALUES: Mapping[str, Any] = {
    "EventType": values(EventType),
    "RolloutKind": [*values(EventType), LIVE_MIGRATION, EVACUATE_WORK_RETURN],
    "Status": values(Status),
    "Source": values(Source),
    "GroupKind": values(GroupKind),
    "OverWhen": values(OverWhen),
    "Health": values(Health),
    "OverviewBy": values(OverviewBy),
    "NodeState": values(NodeState),
    "Coverage": values(Coverage),
    "CoverageFilter": list(COVERAGES),
    "MaintenanceMode": list(MAINTENANCE_MODES),
    "RolloutState": list(rollouts.STATES),
    "StepState": values(StepState),
    "StepAction": values(Action),
    "AdviceKind": values(AdviceKind),
    "Conflicts": values(Conflicts),
    "PauseAfter": values(PauseAfter),
    "WorkBy": values(WorkBy),
    "HoldKind": values(HoldKind),
    "WaitKind": values(WaitKind),
    "FaultKind": values(kinds.FaultKind),
    "FaultState": list(model.STATES),
    "FaultMethod": ["", *validate.METHODS],
    "MAX_DESCRIPTION": MAX_DESCRIPTION,
    "MAX_TICKET": MAX_TICKET,
    "MAX_NOTICE": MAX_NOTICE // SECOND,
    "MAX_DURATION_SECONDS": MAX_DURATION_SECONDS,
    "MAX_EVENT_MACHINES": MAX_EVENT_MACHINES,
    "MAX_READY_NOTE": MAX_READY_NOTE,
    "MAX_SELECTED": MAX_SELECTED,
    "MAX_WINDOWS": MAX_WINDOWS,
    "MAX_CANCELLED": MAX_CANCELLED,
    "MAX_HALT_NOTE": MAX_HALT_NOTE,
    "MAX_HALT_GROUPS": MAX_HALT_GROUPS,
    "MAX_BLACKOUTS": MAX_BLACKOUTS,
    "MAX_AT_ONCE": MAX_AT_ONCE,
    "MAX_BAKE": MAX_BAKE // SECOND,
    "MAX_LASTS": MAX_LASTS // SECOND,
    "MAX_FAILURES": MAX_FAILURES,
    "MAX_ORDER_LABELS": MAX_ORDER_LABELS,
    "MAX_WAVES": MAX_WAVES,
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
