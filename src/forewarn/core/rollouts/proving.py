"""Which gates must have passed, though nobody remembers: what was announced since proves it.

What gates answer is not stored. Within a lane the next step is the proof; this is about the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.core.rollouts.model import Rollout
from forewarn.core.rollouts.progress import LaneProgress
from forewarn.core.time import Duration, Now, Time


def proven_until(rollout: Rollout, lanes: Sequence[LaneProgress], now: Now) -> Time:
    """Lanes that had baked by then have passed their gate: every place was taken by others.

    A lane is certainly in progress from when a step is announced until it has ended, and baked if
    it was carried out. When as many as may be at once were, none beside them was, at its gate.
    """
    bake = now.rules.paced(rollout.bake)
    changes: list[tuple[Time, int]] = []
    for lane in lanes:
        for begins, ends in _merged(lane.busy, bake, now.at + 1):
            changes += [(begins, 1), (ends, -1)]
    changes.sort()  # at one instant, ends come before beginnings
    proven, busy = -1, 0
    for at, change in changes:
        if busy == rollout.at_once:
            proven = at - 1
        busy += change
    return proven


def _merged(
    busy: Sequence[tuple[Time, Time | None, bool]], bake: Duration, open_end: Time
) -> list[tuple[Time, Time]]:
    """Without those of no length, and without overlaps."""
    found: list[tuple[Time, Time]] = []
    for begins, ended_at, carried_out in sorted(busy, key=lambda one: one[0]):
        ends = open_end if ended_at is None else min(ended_at + bake * carried_out, open_end)
        if found and begins <= found[-1][1]:
            found[-1] = found[-1][0], max(ends, found[-1][1])
        elif begins < ends:
            found.append((begins, ends))
    return found
