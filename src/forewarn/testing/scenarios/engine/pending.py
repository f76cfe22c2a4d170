"""Lines of a timeline that have not happened yet: when each is due, and whether it ever will be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from forewarn.core.time import SECOND, Duration, Time
from forewarn.testing.scenarios.engine.event_tracker import TrackedEvent
from forewarn.testing.scenarios.model import Moment, Step, When
from forewarn.testing.scenarios.result import Played


class Pending:
    """One line, as often as it is still to happen."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.left = step.times
        self.due: Time | None = None
        self.played: list[Played] = []

    @property
    def begun(self) -> bool:
        return bool(self.played)

    def happened(self, played: Played, every: Duration) -> None:
        self.played.append(played)
        self.left = 0 if played.refused else self.left - 1
        if self.due is not None:
            self.due += every


def due(
    when: When,
    start: Time,
    events: Sequence[TrackedEvent],
    still_raising: bool,
    paced: Callable[[Duration], Duration],
) -> Time | None:
    """When a line is due, if that is known yet. An event's name may stand for several: then it
    is when the last of them has come to that."""
    if when.at is not None:
        return start + paced(when.at)
    times = [told.at(when.moment, when.by) for told in events]
    if not times or any(at is None for at in times):
        return None
    if still_raising and when.moment in (Moment.OVER, Moment.FINISHED):
        return None
    latest = max(at for at in times if at is not None)
    return round(latest * SECOND) + paced(when.delay)


def never(when: When, events: Iterable[TrackedEvent]) -> str:
    """Why it cannot come to that any more; empty if it can."""
    for told in events:
        by = f" by {when.by}" if when.by else ""
        came = told.at(when.moment, when.by) is not None
        if not came and (told.over is not None or not told.may_come(when.moment)):
            state = "over" if told.over is not None else "Started"
            if told.withdrawn:
                state = "withdrawn"
            return f"'{when.name}' ({told}) was {state} without having been {when.moment.value}{by}"
    return ""


def in_words(step: Step) -> str:
    """`restart web_0`."""
    words = step.words
    about = [
        str(value)
        for field in ("kind", "type", "machine", "group", "host", "event", "fault", "lost")
        if (value := getattr(words, field, ""))
    ]
    about += [*getattr(words, "machines", ()), *getattr(words, "groups", ())]
    return " ".join([step.verb, *about])
