"""The test kit: the real service inside a test, with time one can wind forward.

Names are imported when they are first used, so that the judge runs without the server's packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.node.dev import SAMPLE
    from forewarn.testing.clock import Clock
    from forewarn.testing.errors import RefusedByService
    from forewarn.testing.events import Event
    from forewarn.testing.hosts import Host
    from forewarn.testing.inprocess import Answer
    from forewarn.testing.machines import Group, Machine
    from forewarn.testing.service import Service

_ROOMS = {
    "SAMPLE": "forewarn.node.dev",
    "Answer": "forewarn.testing.inprocess",
    "Clock": "forewarn.testing.clock",
    "Event": "forewarn.testing.events",
    "Group": "forewarn.testing.machines",
    "Host": "forewarn.testing.hosts",
    "Machine": "forewarn.testing.machines",
    "RefusedByService": "forewarn.testing.errors",
    "Service": "forewarn.testing.service",
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
