"""Judges windows: the times in which planned work may start, approved or not.

A start is seen some time after it happened. Any start that is seen before the window opens is
proof; after the window has closed, only that of an event that was still Scheduled then.
"""

from collections.abc import Iterable

from forewarn.judge.answers.sightings import Sightings
from forewarn.judge.findings import Findings
from forewarn.judge.reading.order import TOLERANCE
from forewarn.judge.reading.records import Impact, Trace, Window


class Windows:
    def __init__(self, trace: Trace) -> None:
        self._margin = TOLERANCE + trace.clock_error
        self._ignoring = trace.ignores_windows.keys()
        self._by_event: dict[str, tuple[Window, ...]] = {}
        for window in trace.windows:
            windows = self._by_event.get(window.event, ())
            if window not in windows:
                self._by_event[window.event] = (*windows, window)
        self._groups = frozenset(name for fleet in trace.fleets for name in fleet.windowed)

    def may_hold(self, group: str | None) -> bool:
        """Return whether maintenance of the group may wait for windows that the trace does not
        tell."""
        return group in self._groups

    def open(self, id: str, since: float, until: float) -> bool:
        """Return whether the windows of the event were certainly open in all that time."""
        return all(
            window.opens + self._margin < since
            and (window.closes is None or until + self._margin < window.closes)
            for window in self._by_event.get(id, ())
        )

    def judge(self, sightings: Sightings, impacts: Iterable[Impact], findings: Findings) -> None:
        if not self._by_event:
            return
        for impact in impacts:
            problem = self._problem(impact.event, impact.t, sightings)
            if problem:
                machine = impact.machines[0] if impact.machines else None
                message = f"It was carried out {problem}."
                findings.add("window", message, t=impact.t, event=impact.event, machine=machine)
        for id, sighting in sightings.started.items():
            problem = self._problem(id, sighting.exchange.t, sightings)
            if problem:
                findings.add(
                    "window",
                    f"It was Started {problem}.",
                    t=sighting.exchange.t,
                    event=id,
                    group=sighting.caller.group,
                    machine=sighting.caller.machine,
                )

    def _problem(self, id: str, t: float, sightings: Sightings) -> str:
        """Return how an event that had started by `t` missed its windows; empty if not proven."""
        windows = () if id in self._ignoring else self._by_event.get(id, ())
        if windows and all(t + self._margin < window.opens for window in windows):
            return "before its window opened"
        scheduled = sightings.last_scheduled.get(id)
        if not windows or scheduled is None or t <= scheduled.exchange.asked:
            return ""
        asked = scheduled.exchange.asked
        closed = all(
            window.closes is not None and window.closes + self._margin < asked for window in windows
        )
        return "after its window had closed" if closed else ""
