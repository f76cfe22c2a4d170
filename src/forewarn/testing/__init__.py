"""The test kit: the real service inside a test, with time one can wind forward.

Names are imported when they are first used, so that the judge runs without the server's packages.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.testing.inprocess import Answer
    from forewarn.testing.service import Clock, RefusedByService, Service

__all__ = ["Answer", "Clock", "RefusedByService", "Service"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from forewarn.testing import inprocess, service

        return getattr(inprocess if name == "Answer" else service, name)
    raise AttributeError(f"module 'forewarn.testing' has no attribute '{name}'")
