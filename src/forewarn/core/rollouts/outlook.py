"""What a rollout is still to announce, summed for a calendar, which is no place for every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from forewarn.core.rollouts.forecast import Planned
from forewarn.core.rollouts.model import Rollout
from forewarn.core.time import Time
from forewarn.core.windows.openings import next_span


class PlannedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one wave that are expected to start in the same window of the rollout, or, if it has
    no windows, all steps of the wave."""

    rollout: Rollout
    wave: int
    opens: Time | None  # of the window
    begins: Time
    ends: Time
    steps: int
    machines: tuple[str, ...]


def outlook(
    rollout: Rollout, planned: Iterable[Planned], selected: Callable[[str], bool]
) -> tuple[PlannedSteps, ...]:
    """Sum planned steps, as far as they are about selected machines."""
    waves = {lane.name: lane.wave for lane in rollout.lanes}
    together: dict[tuple[int, Time | None], list[Planned]] = {}
    for item in planned:
        if any(map(selected, item.step.machines)):
            span = next_span(rollout.windows, item.not_before) if rollout.windows else None
            key = waves[item.lane], None if span is None else span.opens
            together.setdefault(key, []).append(item)
    return tuple(
        PlannedSteps(
            rollout=rollout,
            wave=wave,
            opens=opens,
            begins=min(item.not_before for item in items),
            ends=max(item.ends_at for item in items),
            steps=len(items),
            machines=tuple(filter(selected, (n for item in items for n in item.step.machines))),
        )
        for (wave, opens), items in together.items()
    )
