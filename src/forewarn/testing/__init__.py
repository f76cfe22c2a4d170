"""The test kit: the real service inside a test, on a virtual clock.

Names are imported when they are first used, so that the pytest plugin costs nothing until then.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.metadata.endpoint.limits import Limits
    from forewarn.node.dev import SAMPLE
    from forewarn.testing.durations import Duration
    from forewarn.testing.errors import RefusedError
    from forewarn.testing.impacts import Impact
    from forewarn.testing.kit.arm import AccessToken, Arm, AsyncCredential, Credential
    from forewarn.testing.kit.clock import Clock
    from forewarn.testing.kit.documents import (
        Document,
        DocumentEvent,
        VersionedDocument,
        VersionedEvent,
    )
    from forewarn.testing.kit.events import Announcement, During, Event
    from forewarn.testing.kit.faults import Fault, FaultOptions, Faults
    from forewarn.testing.kit.fleets import GroupDetails
    from forewarn.testing.kit.hosts import Host
    from forewarn.testing.kit.inprocess import Response
    from forewarn.testing.kit.loaded_scenario import LoadedScenario
    from forewarn.testing.kit.machines import Group, Machine
    from forewarn.testing.kit.run_scenario import run_scenario
    from forewarn.testing.kit.service import Service
    from forewarn.testing.names import (
        EventSource,
        EventStatus,
        EventType,
        FaultKind,
        FaultMethod,
        GroupKind,
        MaintenanceMode,
    )
    from forewarn.testing.scenarios.model import Scenario
    from forewarn.testing.scenarios.result import CommandExit, ExpectationResult, Result, StepResult
    from forewarn.verdict.rules import RuleName
    from forewarn.verdict.values import Complaint, Conduct, Course, Unannounced
    from forewarn.verdict.verdict import Verdict

_MODULES = {
    "SAMPLE": "forewarn.node.dev",
    "AccessToken": "forewarn.testing.kit.arm",
    "Announcement": "forewarn.testing.kit.events",
    "Arm": "forewarn.testing.kit.arm",
    "AsyncCredential": "forewarn.testing.kit.arm",
    "Clock": "forewarn.testing.kit.clock",
    "CommandExit": "forewarn.testing.scenarios.result",
    "Complaint": "forewarn.verdict.values",
    "Conduct": "forewarn.verdict.values",
    "Course": "forewarn.verdict.values",
    "Credential": "forewarn.testing.kit.arm",
    "Document": "forewarn.testing.kit.documents",
    "DocumentEvent": "forewarn.testing.kit.documents",
    "Duration": "forewarn.testing.durations",
    "During": "forewarn.testing.kit.events",
    "Event": "forewarn.testing.kit.events",
    "EventSource": "forewarn.testing.names",
    "EventStatus": "forewarn.testing.names",
    "EventType": "forewarn.testing.names",
    "ExpectationResult": "forewarn.testing.scenarios.result",
    "Fault": "forewarn.testing.kit.faults",
    "FaultKind": "forewarn.testing.names",
    "FaultMethod": "forewarn.testing.names",
    "FaultOptions": "forewarn.testing.kit.faults",
    "Faults": "forewarn.testing.kit.faults",
    "Group": "forewarn.testing.kit.machines",
    "GroupDetails": "forewarn.testing.kit.fleets",
    "GroupKind": "forewarn.testing.names",
    "Host": "forewarn.testing.kit.hosts",
    "Limits": "forewarn.metadata.endpoint.limits",
    "Impact": "forewarn.testing.impacts",
    "LoadedScenario": "forewarn.testing.kit.loaded_scenario",
    "Machine": "forewarn.testing.kit.machines",
    "MaintenanceMode": "forewarn.testing.names",
    "RefusedError": "forewarn.testing.errors",
    "Response": "forewarn.testing.kit.inprocess",
    "Result": "forewarn.testing.scenarios.result",
    "RuleName": "forewarn.verdict.rules",
    "Scenario": "forewarn.testing.scenarios.model",
    "Service": "forewarn.testing.kit.service",
    "StepResult": "forewarn.testing.scenarios.result",
    "Unannounced": "forewarn.verdict.values",
    "Verdict": "forewarn.verdict.verdict",
    "VersionedDocument": "forewarn.testing.kit.documents",
    "VersionedEvent": "forewarn.testing.kit.documents",
    "run_scenario": "forewarn.testing.kit.run_scenario",
}

__all__ = [
    "SAMPLE",
    "AccessToken",
    "Announcement",
    "Arm",
    "AsyncCredential",
    "Clock",
    "CommandExit",
    "Complaint",
    "Conduct",
    "Course",
    "Credential",
    "Document",
    "DocumentEvent",
    "Duration",
    "During",
    "Event",
    "EventSource",
    "EventStatus",
    "EventType",
    "ExpectationResult",
    "Fault",
    "FaultKind",
    "FaultMethod",
    "FaultOptions",
    "Faults",
    "Group",
    "GroupDetails",
    "GroupKind",
    "Host",
    "Impact",
    "Limits",
    "LoadedScenario",
    "Machine",
    "MaintenanceMode",
    "RefusedError",
    "Response",
    "Result",
    "RuleName",
    "Scenario",
    "Service",
    "StepResult",
    "Unannounced",
    "Verdict",
    "VersionedDocument",
    "VersionedEvent",
    "run_scenario",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from forewarn.support import extras

        extras.need("test", "forewarn.testing")
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'forewarn.testing' has no attribute '{name}'")
