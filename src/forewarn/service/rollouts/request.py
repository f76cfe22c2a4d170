"""Turn a request for a rollout into the rollout, or refuse it."""

from __future__ import annotations

import msgspec

from forewarn.core import EventType, Refused
from forewarn.core.events import (
    MAX_DESCRIPTION,
    MAX_DURATION_SECONDS,
    MAX_NOTICE,
    UNKNOWN_DURATION,
)
from forewarn.core.refusal import Hint, invalid
from forewarn.core.rollouts.lanes import Selection, lanes
from forewarn.core.rollouts.model import Gate, Rollout
from forewarn.core.rollouts.next_step import appointment
from forewarn.core.rollouts.window_syntax import MAX_WINDOWS
from forewarn.core.rollouts.windows import LOOK_AHEAD, Window
from forewarn.core.time import DAY, Duration, Now
from forewarn.service.rollouts.gates import Gates
from forewarn.store.port import Store
from forewarn.support.text import in_words

MAX_AT_ONCE = 1_000  # lanes
MAX_BAKE: Duration = 7 * DAY


class RolloutRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout to be planned or started."""

    type: EventType
    selection: Selection
    by: str
    notice: Duration | None = None
    short_notice: bool = False
    description: str = ""
    duration: int = UNKNOWN_DURATION
    at_once: int = 1
    windows: tuple[Window, ...] = ()
    gate: Gate | None = None
    bake: Duration = 0


def draft_rollout(
    wanted: RolloutRequest, id: str, store: Store, gates: Gates, now: Now
) -> Rollout | Refused:
    """Return the rollout for a request, or why there can be none."""
    lanes_or_refusal = (
        _request_problem(wanted, now)
        or (gates.gate_problem(wanted.gate) if wanted.gate else None)
        or lanes(
            id,
            wanted.type,
            wanted.selection,
            store.groups,
            store.registry.hosts,
        )
    )
    if isinstance(lanes_or_refusal, Refused):
        return lanes_or_refusal
    draft = Rollout(
        id=id,
        type=wanted.type,
        lanes=lanes_or_refusal,
        by=wanted.by,
        created_at=now.at,
        selection=str(wanted.selection),
        notice=wanted.notice,
        short_notice=wanted.short_notice,
        description=wanted.description,
        duration=wanted.duration,
        at_once=wanted.at_once,
        windows=wanted.windows,
        gate=wanted.gate,
        bake=wanted.bake,
    )
    if appointment(draft, now) is None:
        return invalid(
            f"none of the windows opens within {in_words(LOOK_AHEAD)}; check their days and hours"
        )
    return draft


def _request_problem(wanted: RolloutRequest, now: Now) -> Refused | None:
    promised = wanted.type.traits.notice
    notice = promised if wanted.notice is None else wanted.notice
    if not 0 <= notice <= MAX_NOTICE:
        return invalid(
            f"a notice must be from 0 s to {in_words(MAX_NOTICE)}, not {in_words(notice)}"
        )
    if (paced := now.rules.paced(notice)) > MAX_NOTICE:
        return invalid(
            f"at this service's speed of {now.rules.speed:g} a notice of {in_words(notice)} takes"
            f" {in_words(paced)}; at most {in_words(MAX_NOTICE)} is allowed"
        )
    if notice < promised and not wanted.short_notice:
        return invalid(
            f"a {wanted.type.value} needs at least {in_words(promised)} of notice,"
            f" not {in_words(notice)}",
            hint=Hint.SHORT_NOTICE,
        )
    if not 1 <= wanted.at_once <= MAX_AT_ONCE:
        return invalid(f"at_once must be from 1 to {MAX_AT_ONCE}, not {wanted.at_once}")
    if not 0 <= wanted.bake <= MAX_BAKE:
        return invalid(f"a bake time must be from 0 s to {in_words(MAX_BAKE)}")
    if not UNKNOWN_DURATION <= wanted.duration <= MAX_DURATION_SECONDS:
        return invalid(
            f"duration {wanted.duration} is not a valid duration of the impact; give whole seconds"
            f" from 0 to {MAX_DURATION_SECONDS}, or -1 for unknown"
        )
    if len(wanted.windows) > MAX_WINDOWS:
        return invalid(f"a rollout can have at most {MAX_WINDOWS} windows")
    return reason_problem(wanted.description)


def reason_problem(text: str) -> Refused | None:
    if len(text) <= MAX_DESCRIPTION:
        return None
    return invalid(f"the text has {len(text)} characters; at most {MAX_DESCRIPTION} are allowed")
