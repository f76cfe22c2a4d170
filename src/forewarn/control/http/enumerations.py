"""The enumerations and patterns that the types of the control API refer to by name.

The types of `schema` are shared with the client, which imports neither the service nor the core.
They name an enumeration (`documented(enum="EventType")`) or a pattern, which are filled in here:
for parameters, whose values are compared with them, and for the OpenAPI document. Patterns are only
documented; schemathesis compares them with what is accepted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from forewarn.control.http.filters import NO_NODE
from forewarn.control.http.paging import STARTS, TIMED
from forewarn.core.access import Role
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.events import EventType, Source, Status, types_that
from forewarn.core.fleet import GroupKind, Health, OverWhen, Placement
from forewarn.core.history import RecordKind
from forewarn.core.labels import MAX_TERMS
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
from forewarn.service.indexes.overview import OverviewBy, RowOrder, RowState
from forewarn.service.indexes.sightings import DifferenceKind
from forewarn.service.platform.explain import AdviceKind
from forewarn.service.platform.hosts import MAINTENANCE_MODES, NodeState
from forewarn.service.rollouts import rollouts
from forewarn.service.rollouts.request import PauseAfter
from forewarn.service.telemetry.attention import ProblemKind


def values(enumeration: Iterable[enum.Enum]) -> list[Any]:
    return [member.value for member in enumeration]


VALUES: Mapping[str, Any] = {
    "EventType": values(EventType),
    "FailureType": [type.value for type in types_that(lambda traits: not traits.deletes)],
    "RolloutKind": [*values(EventType), LIVE_MIGRATION, EVACUATE_WORK_RETURN],
    "Status": values(Status),
    "Source": values(Source),
    "GroupKind": values(GroupKind),
    "OverWhen": values(OverWhen),
    "Placement": values(Placement),
    "Role": values(Role),
    "Health": values(Health),
    "OverviewBy": values(OverviewBy),
    "RowOrder": values(RowOrder),
    "RowState": values(RowState),
    "NodeState": values(NodeState),
    "NodeFilter": [*values(NodeState), NO_NODE],
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

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._/:@+-]{0,61}[A-Za-z0-9])?)?"
_TERM = rf"({_NAME}\s*!?=\s*{_VALUE}|!?\s*{_NAME})"
_DAYS = r"(000[1-9]|[1-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_TIME = rf"{_DAYS}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_WHAT = "|".join(what.value for what in RecordKind)
ID = r"^[0-9A-Fa-f-]{1,36}$"
PATTERNS: Mapping[str, str] = {
    "Id": ID,
    "Mark": r"^([0-9]{1,18})-([0-9]{1,18})$",
    "Selector": rf"^\s*({_TERM}(\s*,\s*{_TERM}){{0,{MAX_TERMS - 1}}})?\s*$",
    "Timed": TIMED,
    "TimedOrStart": f"{TIMED}|{STARTS}",
    "Whats": rf"^(({_WHAT})(,({_WHAT})){{0,20}})?$",
    "When": rf"^({_TIME}|([0-9]{{1,4}}[dhms]){{1,5}}|[0-9]{{1,9}}(\.[0-9]{{1,9}})?)$",
}


def resolved(schema: Any) -> Any:
    """Return the schema with names of enumerations and patterns replaced by what they name."""
    named = {"enum": VALUES, "pattern": PATTERNS}
    if isinstance(schema, dict):
        return {
            key: named[key].get(value, value)
            if key in named and isinstance(value, str)
            else resolved(value)
            for key, value in schema.items()
        }
    return [resolved(item) for item in schema] if isinstance(schema, list) else schema
