"""The test kit: the real service inside a test, with time one can wind forward.

Names are imported when they are first used, so that the judge runs without the server's packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.node.dev import SAMPLE
    from forewarn.testing.kit.clock import Clock
    from forewarn.testing.kit.errors import RefusedByService
    from forewarn.testing.kit.events import Event
    from forewarn.testing.kit.hosts import Host
    from forewarn.testing.kit.inprocess import Answer
    from forewarn.testing.kit.machines import Group, Machine
    from forewarn.testing.kit.service import Service

_ROOMS = {
    "SAMPLE": "forewarn.node.dev",
    "Answer": "forewarn.testing.kit.inprocess",
    "Clock": "forewarn.testing.kit.clock",
    "Event": "forewarn.testing.kit.events",
    "Group": "forewarn.testing.kit.machines",
    "Host": "forewarn.testing.kit.hosts",
    "Machine": "forewarn.testing.kit.machines",
    "RefusedByService": "forewarn.testing.kit.errors",
    "Service": "forewarn.testing.kit.service",
}

__all__ = [
    "SAMPLE",
    "Answer",
    "Clock",
    "Event",
    "Group",
    "Host",
    "Machine",
    "RefusedByService",
    "Service",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return getattr(import_module(_ROOMS[name]), name)
    raise AttributeError(f"module 'forewarn.testing' has no attribute '{name}'")
