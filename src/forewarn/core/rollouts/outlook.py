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
    part: str = ""  # of the fleet
    wave: int
    opens: Time | None  # of the window
    begins: Time
    ends: Time
    steps: int
    machines: tuple[str, ...]


def outlook(
    rollout: Rollout,
    planned: Iterable[Planned],
    selected: Callable[[str], bool],
    part_of: Callable[[str], str] = lambda _: "",
) -> tuple[PlannedSteps, ...]:
    """Sum planned steps, as far as they are about selected machines. `part_of` is the part of the
    fleet that a machine is in, such as its host: steps are summed for each."""
    waves = {lane.name: lane.wave for lane in rollout.lanes}
    together: dict[tuple[str, int, Time | None], list[tuple[Planned, list[str]]]] = {}
    for item in planned:
        parts: dict[str, list[str]] = {}
        for machine in filter(selected, item.step.machines):
            parts.setdefault(part_of(machine), []).append(machine)
        if not parts:
            continue
        span = next_span(rollout.windows, item.not_before) if rollout.windows else None
        for part, machines in parts.items():
            key = part, waves[item.lane], None if span is None else span.opens
            together.setdefault(key, []).append((item, machines))
    return tuple(
        PlannedSteps(
            rollout=rollout,
            part=part,
            wave=wave,
            opens=opens,
            begins=min(item.not_before for item, _ in items),
            ends=max(item.ends_at for item, _ in items),
            steps=len(items),
            machines=tuple(name for _, machines in items for name in machines),
        )
        for (part, wave, opens), items in together.items()
    )
