"""`Lanes`: collects the lines of a trace and returns the picture of them at any time.

Memory is bounded whatever the lines are; lines that cannot be read are ignored. Nothing here draws.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from forewarn.testing.errors import RefusedError
from forewarn.testing.timeline import exchanges, steps
from forewarn.testing.timeline.memory import TimelineMemory
from forewarn.testing.timeline.values import EventBar, Picture
from forewarn.traces.lines import instant, time_of

if TYPE_CHECKING:
    from forewarn.testing.session import HasSession

Handler: TypeAlias = Callable[[TimelineMemory, Mapping[str, Any], float], None]

HANDLERS: Mapping[str, Handler] = {
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
    "disconnected": steps.disconnected,
    "joined": steps.joined,
    "disabled": steps.disabled,
    "scenario": steps.scenario,
    "end": steps.end,
}


class Lanes:
    """The lanes of a timeline, filled line by line from a trace.

    Args:
        on_change: Called with the time, in seconds since 1970, and a sentence for each change.
    """

    def __init__(self, on_change: Callable[[float, str], None] | None = None) -> None:
        self._memory = TimelineMemory()
        self._on_change = on_change
        self._lock = threading.Lock()  # filled in the service's thread, drawn in another

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> Lanes:
        """Make lanes of a whole recording.

        Args:
            lines: The lines of its trace, in any order.
        """
        lanes = cls()
        for line in sorted(lines, key=lambda line: time_of(line) or 0.0):
            lanes.add(line)
        return lanes

    def add(self, line: Mapping[str, Any]) -> None:
        """Add the next line of a trace, from any thread. A line that cannot be read is ignored.

        Args:
            line: The line, parsed.
        """
        t, kind = time_of(line), line.get("kind")
        handler = HANDLERS.get(kind) if isinstance(kind, str) else None
        if t is None or handler is None:
            return
        with self._lock:
            memory = self._memory
            memory.begins = t if memory.begins is None else min(memory.begins, t)
            handler(memory, line, t)
            memory.now = max(memory.now, t)
            changes, memory.changes = memory.changes, []
        if self._on_change is not None:  # without the lock: the callback may draw
            for at, text in changes:
                self._on_change(at, text)

    def passed(self, t: float) -> None:
        """Extend the picture to a time until which nothing more has happened.

        Args:
            t: The time, in seconds since 1970.
        """
        with self._lock:
            if self._memory.begins is not None and instant(t) is not None:
                self._memory.now = max(self._memory.now, t)

    def picture(self) -> Picture:
        """Return the picture of all lines added so far."""
        with self._lock:
            memory = self._memory
            events = tuple(event.to_value() for event in memory.events.values())
            event_ids: dict[str, list[str]] = {}
            for event in events:
                for name in event.machines:
                    event_ids.setdefault(name, []).append(event.id)
            begins = memory.begins or 0.0
            now = max(memory.now, begins)
            lanes = [
                lane.to_value(tuple(event_ids.get(lane.machine, ())), now)
                for lane in memory.lanes.values()
            ]
            positions = {
                name: at for at, name in enumerate(dict.fromkeys(lane.group for lane in lanes))
            }
            return Picture(
                begins=begins,
                now=now,
                ends=_axis_end(events, now),
                lanes=tuple(sorted(lanes, key=lambda lane: positions[lane.group])),
                events=events,
                outages=tuple(memory.outages),
                latest_changes=tuple(memory.latest_changes),
                scenarios=tuple(memory.scenarios),
                dropped_events=memory.dropped_events,
                dropped_machines=memory.dropped_machines,
                recorded=memory.begins is not None,
            )


def _axis_end(events: Iterable[EventBar], now: float) -> float:
    """Return the end of the axis, which includes the NotBefore of announced events."""
    upcoming = [
        event.not_before
        for event in events
        if event.not_before is not None
        and event.visible is not None
        and event.ended is None
        and event.started is None
    ]
    return max([now, *upcoming])


def watch(service: HasSession, on_change: Callable[[float, str], None] | None = None) -> Lanes:
    """Return lanes that follow a running service from now on.

    Args:
        service: A `forewarn.testing.Service` that has been started.
        on_change: Called with the time and a sentence for every visible change.

    Raises:
        RefusedError: The service was created with `front=True`, so nothing is observed.
    """
    session = service._session
    node = session.node
    trace = node.trace
    if trace is None:
        raise RefusedError("polls answered by the fast path are not observed; use front=False")
    lanes = Lanes(on_change)

    def begin() -> None:  # in the service's loop, so that no line is lost in between
        trace.add_sink(lanes.add)
        trace.fleet(node.store, node.writer.now().at)

    session.call(begin)
    return lanes
