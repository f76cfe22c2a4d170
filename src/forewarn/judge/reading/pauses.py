"""The pauses after interruptions, in which nothing starts because its NotBefore has passed.

Their length is in the trace; otherwise they are not judged. A start in a pause is reported only if
the event cannot have started before it: it was seen Scheduled after the interruption, or its
NotBefore was reached when the service was already down.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from .fleet import RECORD_SLACK
from .order import DISABLED_AFTER, TOLERANCE, Sighting
from .records import Trace

# The wall clock may drift; more than this at once is a step.
_STEP = 2.0


@dataclass(frozen=True, slots=True)
class _Pause:
    t: float  # when it began: the service was up again, or the clock had been stepped
    served: float  # the latest time at which the service was up before
    outage: bool


class Pauses:
    def __init__(self, trace: Trace) -> None:
        self._grace = trace.grace
        self._margin = (0.0 if trace.complete else RECORD_SLACK) + trace.clock_error
        self._disabled = trace.disabled
        self._pauses = sorted(
            [
                *_outages(trace, 2 * self._margin),
                # In the time that a clock skips, nothing was served.
                *(
                    _Pause(step.t, step.t - max(0.0, step.seconds), False)
                    for step in trace.steps
                    if step.far(_STEP)
                ),
            ],
            key=lambda pause: pause.t,
        )
        self._lifetimes: dict[str, tuple[float, float]] = {}

    def add(self, id: str, answered: float, asked: float) -> None:
        """Add times at which an event existed: of an answer with it, and of a request for one."""
        first, last = self._lifetimes.get(id, (answered, asked))
        self._lifetimes[id] = min(first, answered), max(last, asked)

    def pause_start(self, t: float, not_before: int | None, scheduled: Sighting) -> float | None:
        """Return the start of the pause in which an unapproved event, seen at `t`, has started.

        `scheduled` is the last sighting of it as Scheduled. None: it may have been correct.
        """
        if self._grace is None or not self.was_enabled(scheduled, t):
            return None
        for pause in reversed(self._pauses):
            if pause.t + self._grace <= t + TOLERANCE + self._margin:
                return None
            was_scheduled = pause.t + self._margin < scheduled.exchange.asked
            was_not_due = not_before is not None and pause.served + self._margin < not_before
            after = pause.t + self._margin < t
            if (
                after
                and (was_scheduled or was_not_due)
                and (not pause.outage or self._same_service(pause))
            ):
                return pause.t
        return None

    def _same_service(self, pause: _Pause) -> bool:
        """Return whether an event existed before and after; else it may be another service."""
        return any(
            first + self._margin < pause.t and pause.t + self._margin < last
            for first, last in self._lifetimes.values()
        )

    def was_enabled(self, scheduled: Sighting, t: float) -> bool:
        """Return whether the group was enabled all the time."""
        since = scheduled.exchange.asked
        return t - since < DISABLED_AFTER and not any(
            since - self._margin <= line.t <= t + self._margin
            and scheduled.caller.group in (None, line.group)
            for line in self._disabled
        )


def _outages(trace: Trace, min_gap: float) -> list[_Pause]:
    """Return a pause for every start of the service but the first; close ones are duplicates."""
    pauses: list[_Pause] = []
    last_reported = trace.ups[0] if trace.ups else 0.0
    for before, up in pairwise(trace.ups):
        if up - last_reported <= min_gap:
            continue
        count = bisect_right(trace.downs, up)
        down = trace.downs[count - 1] if count and not trace.unreadable else before
        if any(gap.host is None and gap.overlaps(down, up) for gap in trace.gaps):
            down = before
        pauses.append(_Pause(up, down if down > before + min_gap else up, True))
        last_reported = up
    return pauses
