"""The test kit's exception, and turning the service's refusals into it."""

from __future__ import annotations

from typing import Any

from forewarn.core import Refused


class RefusedByService(Exception):
    """The service, or the kit, refused to do it; the message is what an operator would read."""


def allowed(outcome: Any) -> Any:
    """Return the outcome, or raise RefusedByService if it is a refusal."""
    if isinstance(outcome, Refused):
        raise RefusedByService(outcome.says)
    return outcome
