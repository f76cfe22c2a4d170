"""The kinds of changes that can be notified: those of the feed, and how severe each is."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.core.history import RecordKind as K

INFO, WARNING, ERROR = SEVERITIES = ("info", "warning", "error")  # in ascending order

# `seen` is in the history only.
KINDS = tuple(kind.value for kind in K if kind is not K.SEEN)

DEFAULT_KINDS = tuple(
    kind.value
    for kind in (
        K.RAISED,
        K.STRUCK,
        K.POSTPONED,
        K.STARTED,
        K.FINISHED,
        K.WITHDRAWN,
        K.MACHINE_NOT_BACK,
        K.MACHINE_BACK,
        K.HOST_DEGRADED,
        K.HOST_FAILED,
        K.HOST_REPAIRED,
        K.ROLLOUT_STARTED,
        K.ROLLOUT_PAUSED,
        K.ROLLOUT_RESUMED,
        K.ROLLOUT_ABORTED,
        K.ROLLOUT_ENDED,
        K.HALT_PLACED,
        K.HALT_RELEASED,
    )
)

# Those with which an event has another status.
STATUS_CHANGES = tuple(
    kind.value for kind in (K.RAISED, K.STRUCK, K.STARTED, K.FINISHED, K.WITHDRAWN)
)

_SEVERE: Mapping[str, str] = {
    K.STRUCK.value: ERROR,
    K.HOST_FAILED.value: ERROR,
    K.HOST_DEGRADED.value: WARNING,
    K.MACHINE_NOT_BACK.value: WARNING,
    K.ROLLOUT_PAUSED.value: WARNING,
    K.ROLLOUT_ABORTED.value: WARNING,
    K.HALT_PLACED.value: WARNING,
    K.STATE_RESTORED.value: WARNING,
    K.CLOCK_ACCEPTED.value: WARNING,
    K.ANSWERED.value: WARNING,
    K.ATTEMPTED.value: WARNING,
}

SKIPPED = "skipped"  # what a message is about that reports changes which were not sent
TEST = "test"  # what the message of `forewarn notify test` is about


def severity(what: str) -> str:
    return WARNING if what == SKIPPED else _SEVERE.get(what, INFO)


def at_least(what: str, least: str) -> bool:
    return SEVERITIES.index(severity(what)) >= SEVERITIES.index(least)
