"""What a test is told when the service, or the kit, would not do what it asked for."""

from __future__ import annotations

from typing import Any

from forewarn.core import Refused


class RefusedByService(Exception):
    """The service would not do it; the message is what an operator would have read."""


def allowed(outcome: Any) -> Any:
    """What came of it, unless it was refused."""
    if isinstance(outcome, Refused):
        raise RefusedByService(outcome.says)
    return outcome
