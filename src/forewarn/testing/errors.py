"""The test kit's exception, and turning the service's refusals into it."""

from __future__ import annotations

from typing import Any

from forewarn.core import Refused
from forewarn.core.refusal import Hint


class RefusedError(Exception):
    """The service, or the kit, refused to do it; the message is what an operator would read."""


# What a hint of the service means to a test.
HINTS: dict[Hint, str] = {
    Hint.FORCE: "pass force=True to override",
    Hint.SHORT_NOTICE: "pass short_notice=True to override",
    Hint.IGNORE_WINDOWS: "pass ignore_windows=True to override",
    Hint.EVACUATE: "or pass evacuate=True",
    Hint.CLEAR_FAULTS: "clear some first",
}


def refusal(refused: Refused) -> str:
    return refused.with_hint(HINTS)


def allowed(outcome: Any) -> Any:
    """Return the outcome, or raise RefusedError if it is a refusal."""
    if isinstance(outcome, Refused):
        raise RefusedError(refusal(outcome))
    return outcome
