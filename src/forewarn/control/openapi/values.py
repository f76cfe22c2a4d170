"""The enumerations that the types of the control API refer to by name.

The types of `schema` are shared with the client, which imports neither the service nor the core.
They name an enumeration (`documented(enum="EventType")`), which is filled in here for the
document.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from forewarn.control.http.orders import GroupOrder, HostOrder, MachineOrder
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.events import (
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
from forewarn.service.faults import kinds, model, validate
from forewarn.service.indexes.coverage import COVERAGES, Coverage
from forewarn.service.indexes.events import EventOrder
from forewarn.service.indexes.overview import OverviewBy, RowOrder, RowState
from forewarn.service.indexes.sightings import DifferenceKind
from forewarn.service.platform.explain import AdviceKind
from forewarn.service.platform.hosts import MAINTENANCE_MODES, NodeState
from forewarn.service.rollouts import rollouts
from forewarn.service.rollouts.request import (
    PauseAfter,
)
from forewarn.service.telemetry.attention import ProblemKind


def values(enumeration: Iterable[enum.Enum]) -> list[Any]:
    return [member.value for member in enumeration]


VALUES: Mapping[str, Any] = {
    "EventType": values(EventType),
    "RolloutKind": [*values(EventType), LIVE_MIGRATION, EVACUATE_WORK_RETURN],
    "Status": values(Status),
    "EventOrder": values(EventOrder),
    "HostOrder": values(HostOrder),
    "GroupOrder": values(GroupOrder),
    "MachineOrder": values(MachineOrder),
    "Source": values(Source),
    "GroupKind": values(GroupKind),
    "OverWhen": values(OverWhen),
    "Health": values(Health),
    "OverviewBy": values(OverviewBy),
    "RowOrder": values(RowOrder),
    "RowState": values(RowState),
    "NodeState": values(NodeState),
    "Coverage": values(Coverage),
    "Drift": values(DifferenceKind),
    "CoverageFilter": list(COVERAGES),
    "MaintenanceMode": list(MAINTENANCE_MODES),
    "RolloutState": list(rollouts.STATES),
    "StepState": values(StepState),
    "StepAction": values(Action),
    "AdviceKind": values(AdviceKind),
    "Conflicts": values(Conflicts),
    "PauseAfter": values(PauseAfter),
    "WorkBy": values(WorkBy),
    "ProblemKind": values(ProblemKind),
    "HoldKind": values(HoldKind),
    "WaitKind": values(WaitKind),
    "FaultKind": values(kinds.FaultKind),
    "FaultState": list(model.STATES),
    "FaultMethod": ["", *validate.METHODS],
}


def resolved(schema: Any) -> Any:
    """Return the schema with every name of an enumeration replaced by its values."""
    if isinstance(schema, dict):
        return {
            key: VALUES[value] if key == "enum" and isinstance(value, str) else resolved(value)
            for key, value in schema.items()
        }
    return [resolved(item) for item in schema] if isinstance(schema, list) else schema
