"""The test kit: the real service inside a test, on a virtual clock.

Names are imported when they are first used, so that the pytest plugin costs nothing until then.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.node.dev import SAMPLE
    from forewarn.testing.durations import Duration
    from forewarn.testing.errors import RefusedError
    from forewarn.testing.kit.clock import Clock
    from forewarn.testing.kit.documents import (
        Document,
        DocumentEvent,
        VersionedDocument,
        VersionedEvent,
    )
    from forewarn.testing.kit.events import Announcement, During, Event
    from forewarn.testing.kit.faults import Fault, Faults
    from forewarn.testing.kit.fleets import GroupDetails
    from forewarn.testing.kit.hosts import Host
    from forewarn.testing.kit.inprocess import Response
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

_MODULES = {
    "SAMPLE": "forewarn.node.dev",
    "Announcement": "forewarn.testing.kit.events",
    "Clock": "forewarn.testing.kit.clock",
    "Document": "forewarn.testing.kit.documents",
    "DocumentEvent": "forewarn.testing.kit.documents",
    "Duration": "forewarn.testing.durations",
    "During": "forewarn.testing.kit.events",
    "Event": "forewarn.testing.kit.events",
    "EventSource": "forewarn.testing.names",
    "EventStatus": "forewarn.testing.names",
    "EventType": "forewarn.testing.names",
    "Fault": "forewarn.testing.kit.faults",
    "FaultKind": "forewarn.testing.names",
    "FaultMethod": "forewarn.testing.names",
    "Faults": "forewarn.testing.kit.faults",
    "Group": "forewarn.testing.kit.machines",
    "GroupDetails": "forewarn.testing.kit.fleets",
    "GroupKind": "forewarn.testing.names",
    "Host": "forewarn.testing.kit.hosts",
    "Machine": "forewarn.testing.kit.machines",
    "MaintenanceMode": "forewarn.testing.names",
    "RefusedError": "forewarn.testing.errors",
    "Response": "forewarn.testing.kit.inprocess",
    "Service": "forewarn.testing.kit.service",
    "VersionedDocument": "forewarn.testing.kit.documents",
    "VersionedEvent": "forewarn.testing.kit.documents",
    "run_scenario": "forewarn.testing.kit.run_scenario",
}

__all__ = [
    "SAMPLE",
    "Announcement",
    "Clock",
    "Document",
    "DocumentEvent",
    "Duration",
    "During",
    "Event",
    "EventSource",
    "EventStatus",
    "EventType",
    "Fault",
    "FaultKind",
    "FaultMethod",
    "Faults",
    "Group",
    "GroupDetails",
    "GroupKind",
    "Host",
    "Machine",
    "MaintenanceMode",
    "RefusedError",
    "Response",
    "Service",
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
