"""Windows: when planned work may begin, approved or not.

A start is seen some time after it happened. Before the window opens any sign of it is proof;
after the window has closed, only one of an event that was still Scheduled then.
"""

from collections.abc import Iterable

from .findings import Findings
from .order import TOLERANCE
from .records import Impact, Trace, Window
from .sightings import Sightings


class Windows:
    def __init__(self, trace: Trace) -> None:
        self._margin = TOLERANCE + trace.backstep
        self._of: dict[str, tuple[Window, ...]] = {}
        for window in trace.windows:
            known = self._of.get(window.event, ())
            if window not in known:
                self._of[window.event] = (*known, window)

    def open(self, id: str, since: float, until: float) -> bool:
        """Whether the event may certainly start, as far as windows go, in all that time."""
        return all(
            window.opens + self._margin < since
            and (window.closes is None or until + self._margin < window.closes)
            for window in self._of.get(id, ())
        )

    def judge(self, sightings: Sightings, impacts: Iterable[Impact], findings: Findings) -> None:
        if not self._of:
            return
        for impact in impacts:
            wrong = self._wrong(impact.event, impact.t, sightings)
            if wrong:
                machine = impact.machines[0] if impact.machines else None
                message = f"It was carried out {wrong}."
                findings.add("window", message, t=impact.t, event=impact.event, machine=machine)
        for id, sighting in sightings.started.items():
            wrong = self._wrong(id, sighting.exchange.t, sightings)
            if wrong:
                findings.add(
                    "window",
                    f"It was Started {wrong}.",
                    t=sighting.exchange.t,
                    event=id,
                    group=sighting.caller.group,
                    machine=sighting.caller.machine,
                )

    def _wrong(self, id: str, t: float, sightings: Sightings) -> str:
        """What proves that it did not start in a window, having done so by `t`; empty if none."""
        windows = self._of.get(id, ())
        if windows and all(t + self._margin < window.opens for window in windows):
            return "before its window opened"
        scheduled = sightings.last_scheduled.get(id)
        if not windows or scheduled is None or t <= scheduled.exchange.asked:
            return ""
        asked = scheduled.exchange.asked
        closed = all(w.closes is not None and w.closes + self._margin < asked for w in windows)
        return "after its window had closed" if closed else ""
