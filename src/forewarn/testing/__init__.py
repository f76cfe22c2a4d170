"""The test kit: the real service inside a test, with time one can wind forward.

Names are imported when they are first used, so that the judge runs without the server's packages.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.node.dev import SAMPLE
    from forewarn.testing.inprocess import Answer
    from forewarn.testing.service import Clock, RefusedByService, Service

__all__ = ["SAMPLE", "Answer", "Clock", "RefusedByService", "Service"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from forewarn.node import dev
        from forewarn.testing import inprocess, service

        return getattr({"Answer": inprocess, "SAMPLE": dev}.get(name, service), name)
    raise AttributeError(f"module 'forewarn.testing' has no attribute '{name}'")
