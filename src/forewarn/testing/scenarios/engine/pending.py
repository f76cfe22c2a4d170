"""Steps of a timeline that have not been carried out yet: when each is due, if it ever will be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from forewarn.core.time import SECOND, Duration, Time
from forewarn.testing.scenarios.engine.event_tracker import TrackedEvent
from forewarn.testing.scenarios.model import Moment, Step, When
from forewarn.testing.scenarios.result import StepResult


class Pending:
    """A step, and how often it still has to be carried out."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.remaining = step.times
        self.due: Time | None = None
        self.played: list[StepResult] = []

    @property
    def begun(self) -> bool:
        return bool(self.played)

    def carried_out(self, played: StepResult, every: Duration) -> None:
        self.played.append(played)
        self.remaining = 0 if played.refused else self.remaining - 1
        if self.due is not None:
            self.due += every


def due(
    when: When,
    start: Time,
    events: Sequence[TrackedEvent],
    still_raising: bool,
    paced: Callable[[Duration], Duration],
) -> Time | None:
    """Return when a step is due, if that is known yet.

    If it waits for several events, it is due when the last of them has reached the moment.
    """
    if when.at is not None:
        return start + paced(when.at)
    times = [event.at(when.moment, when.by) for event in events]
    if not times or any(at is None for at in times):
        return None
    if still_raising and when.moment in (Moment.OVER, Moment.FINISHED):
        return None
    latest = max(at for at in times if at is not None)
    return round(latest * SECOND) + paced(when.delay)


def unreachable_reason(when: When, events: Iterable[TrackedEvent]) -> str:
    """Return why the moment cannot be reached any more, or nothing if it can."""
    for event in events:
        by = f" by {when.by}" if when.by else ""
        reached = event.at(when.moment, when.by) is not None
        if not reached and (event.over is not None or not event.can_reach(when.moment)):
            state = "over" if event.over is not None else "Started"
            if event.withdrawn:
                state = "withdrawn"
            return (
                f"'{when.name}' ({event}) was {state} without having been {when.moment.value}{by}"
            )
    return ""


def describe(step: Step) -> str:
    """Describe a step, for example `restart web_0`."""
    entry = step.entry
    about = [
        str(value)
        for field in ("kind", "type", "machine", "group", "host", "event", "fault", "lost")
        if (value := getattr(entry, field, ""))
    ]
    about += [*getattr(entry, "machines", ()), *getattr(entry, "groups", ())]
    return " ".join([step.verb, *about])
