"""The pauses after interruptions, in which nothing starts because its NotBefore has passed.

How long they are stands in the trace, or they are not judged. A start in a pause is proof only
of an event that cannot have started before it: one that was seen Scheduled after the
interruption, or whose NotBefore came only when nobody served any more.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from .fleet import RECORD_SLACK
from .order import SILENCE, TOLERANCE, Sighting
from .records import Trace

# The wall clock may drift; more than this at once is a step.
_STEP = 2.0


@dataclass(frozen=True, slots=True)
class _Pause:
    t: float  # when it began: the service was there again, or the clock had been stepped
    served: float  # until when, at the latest, there was service before
    outage: bool


class Pauses:
    def __init__(self, trace: Trace) -> None:
        self._grace = trace.grace
        self._margin = (0.0 if trace.complete else RECORD_SLACK) + trace.backstep
        self._disabled = trace.disabled
        self._pauses = sorted(
            [
                *_outages(trace, 2 * self._margin),
                # Of the time that a clock skips, nothing was served.
                *(
                    _Pause(step.t, step.t - max(0.0, step.seconds), False)
                    for step in trace.steps
                    if step.far(_STEP)
                ),
            ],
            key=lambda pause: pause.t,
        )
        self._lives: dict[str, tuple[float, float]] = {}

    def note(self, id: str, answered: float, asked: float) -> None:
        """An event was there: in an answer complete by then, and in one asked for then."""
        first, last = self._lives.get(id, (answered, asked))
        self._lives[id] = min(first, answered), max(last, asked)

    def began(self, t: float, not_before: int | None, scheduled: Sighting) -> float | None:
        """When the pause began in which an unapproved event certainly started, seen at `t`.

        `scheduled` is the last sighting of it as Scheduled. None: it may have been in order.
        """
        if self._grace is None or not self.listening(scheduled, t):
            return None
        for pause in reversed(self._pauses):
            if pause.t + self._grace <= t + TOLERANCE + self._margin:
                return None
            waited = pause.t + self._margin < scheduled.exchange.asked
            undue = not_before is not None and pause.served + self._margin < not_before
            after = pause.t + self._margin < t
            if after and (waited or undue) and (not pause.outage or self._outlived(pause)):
                return pause.t
        return None

    def _outlived(self, pause: _Pause) -> bool:
        """Whether an event was there before and after: else it may be another service's start."""
        return any(
            first + self._margin < pause.t and pause.t + self._margin < last
            for first, last in self._lives.values()
        )

    def listening(self, scheduled: Sighting, t: float) -> bool:
        """Whether the group was enabled all the time: without a vote there are other ways."""
        since = scheduled.exchange.asked
        return t - since < SILENCE and not any(
            since - self._margin <= line.t <= t + self._margin
            and scheduled.caller.group in (None, line.group)
            for line in self._disabled
        )


def _outages(trace: Trace, apart: float) -> list[_Pause]:
    """Every beginning but the first; what stands close together is one, told twice."""
    found: list[_Pause] = []
    told = trace.ups[0] if trace.ups else 0.0
    for before, up in pairwise(trace.ups):
        if up - told <= apart:
            continue
        ended = bisect_right(trace.downs, up)
        down = trace.downs[ended - 1] if ended and not trace.unreadable else before
        found.append(_Pause(up, down if down > before + apart else up, True))
        told = up
    return found
