"""The test kit: the real service inside a test, on a virtual clock.

Names are imported when they are first used, so that the pytest plugin costs nothing until then.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.node.dev import SAMPLE
    from forewarn.testing.errors import RefusedByService
    from forewarn.testing.kit.clock import Clock
    from forewarn.testing.kit.events import Event
    from forewarn.testing.kit.hosts import Host
    from forewarn.testing.kit.inprocess import Response
    from forewarn.testing.kit.machines import Group, Machine
    from forewarn.testing.kit.run_scenario import run_scenario
    from forewarn.testing.kit.service import Service

_MODULES = {
    "SAMPLE": "forewarn.node.dev",
    "Clock": "forewarn.testing.kit.clock",
    "Event": "forewarn.testing.kit.events",
    "Group": "forewarn.testing.kit.machines",
    "Host": "forewarn.testing.kit.hosts",
    "Machine": "forewarn.testing.kit.machines",
    "RefusedByService": "forewarn.testing.errors",
    "Response": "forewarn.testing.kit.inprocess",
    "Service": "forewarn.testing.kit.service",
    "run_scenario": "forewarn.testing.kit.run_scenario",
}

__all__ = [
    "SAMPLE",
    "Clock",
    "Event",
    "Group",
    "Host",
    "Machine",
    "RefusedByService",
    "Response",
    "Service",
    "run_scenario",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'forewarn.testing' has no attribute '{name}'")
