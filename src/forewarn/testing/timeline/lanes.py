"""`Lanes`: hears the lines of a trace, and can say at any moment what the picture is.

Within bounds, and whatever the lines are: what cannot be read is left out. Nothing here draws.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from forewarn.testing.timeline import exchanges, steps
from forewarn.testing.timeline.lines import moment
from forewarn.testing.timeline.memory import TimelineMemory
from forewarn.testing.timeline.values import EventBar, Picture

Hearing: TypeAlias = Callable[[TimelineMemory, Mapping[str, Any], float], None]

HEARINGS: Mapping[str, Hearing] = {
    "fleet": steps.fleet,
    "exchange": exchanges.exchange,
    "event": steps.event,
    "approval": steps.approval,
    "impact": steps.impact,
    "unannounced": steps.unannounced,
    "over": steps.over,
    "up": steps.up,
    "down": steps.down,
    "step": steps.step,
    "disabled": steps.disabled,
    "end": steps.end,
}


class Lanes:
    """`tell`, if given, is called with the time and the words of each change, as it is heard."""

    def __init__(self, tell: Callable[[float, str], None] | None = None) -> None:
        self._memory = TimelineMemory()
        self._tell = tell
        self._lock = threading.Lock()  # heard in the service's thread, drawn in another

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> Lanes:
        """A whole recording, whose lines may stand in any order."""
        made = cls()
        for line in sorted(lines, key=lambda line: moment(line.get("t")) or 0.0):
            made.hear(line)
        return made

    def hear(self, line: Mapping[str, Any]) -> None:
        """One line of a trace, as it happens."""
        t, kind = moment(line.get("t")), line.get("kind")
        hearing = HEARINGS.get(kind) if isinstance(kind, str) else None
        if t is None or hearing is None:
            return
        with self._lock:
            memory = self._memory
            memory.begins = t if memory.begins is None else min(memory.begins, t)
            hearing(memory, line, t)
            memory.now = max(memory.now, t)
            untold, memory.untold = memory.untold, []
        if self._tell is not None:  # without the lock: whoever is told may be drawing
            for at, says in untold:
                self._tell(at, says)

    def passed(self, t: float) -> None:
        """Time has gone on until `t`, though nothing happened."""
        with self._lock:
            if self._memory.begins is not None and moment(t) is not None:
                self._memory.now = max(self._memory.now, t)

    def picture(self) -> Picture:
        """As things stand now."""
        with self._lock:
            memory = self._memory
            happenings = tuple(event.value() for event in memory.events.values())
            of: dict[str, list[str]] = {}
            for happening in happenings:
                for name in happening.machines:
                    of.setdefault(name, []).append(happening.id)
            kept = memory.lanes.values()
            lanes = [lane.value(tuple(of.get(lane.machine, ()))) for lane in kept]
            places = {name: at for at, name in enumerate(dict.fromkeys(x.group for x in lanes))}
            begins = memory.begins or 0.0
            now = max(memory.now, begins)
            return Picture(
                begins=begins,
                now=now,
                ends=_ends(happenings, now),
                lanes=tuple(sorted(lanes, key=lambda lane: places[lane.group])),
                happenings=happenings,
                away=tuple(memory.away),
                newest=tuple(memory.newest),
                forgotten=memory.forgotten,
                unheard=memory.unheard,
                recorded=memory.begins is not None,
            )


def _ends(happenings: Iterable[EventBar], now: float) -> float:
    """So far that what is announced can be seen coming."""
    ahead = [
        happening.not_before
        for happening in happenings
        if happening.not_before is not None
        and happening.visible is not None
        and happening.over is None
        and happening.started is None
    ]
    return max([now, *ahead])
