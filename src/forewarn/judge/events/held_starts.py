"""Judges that nothing starts while a halt, a window or blackout, an uninformed machine, or one that
is disconnected forbids it.

A start is reported if the whole time in which it must have happened is forbidden. What the service
itself has recorded as the time of a start is believed; otherwise it lies between the last document
that shows the event Scheduled and the first sign that it had started. Failures never wait.
"""

from collections.abc import Iterable, Iterator

from forewarn.judge.answers.sightings import Sightings
from forewarn.judge.findings import Findings
from forewarn.judge.holds.standing_holds import HeldTime, Part, StandingHolds, Unit
from forewarn.judge.reading.facts import Facts
from forewarn.judge.reading.gaps import Gaps
from forewarn.judge.reading.records import Trace

from .approvals import EarliestApprovals
from .disconnected import IMPACT

HALTED = "started-while-halted"
OUTSIDE_WINDOW = "started-outside-window"
UNINFORMED = "started-uninformed"
GRACE = "grace-start"


class HeldStarts:
    def __init__(
        self,
        trace: Trace,
        gaps: Gaps,
        holds: StandingHolds,
        approvals: EarliestApprovals,
        sightings: Sightings,
        facts: Facts,
        findings: Findings,
    ) -> None:
        self._trace = trace
        self._gaps = gaps
        self._holds = holds
        self._approvals = approvals
        self._sightings = sightings
        self._facts = facts
        self._findings = findings
        self._impacts: dict[str, float] = {}  # when each event was first carried out

    def judge(self) -> None:
        if not self._holds.exist:
            return
        for impact in self._trace.impacts:
            self._impacts[impact.event] = min(impact.t, self._impacts.get(impact.event, impact.t))
        units = {
            unit.parts[0].id: unit
            for id in (*self._facts.events, *self._trace.recorded)
            for unit in (self._holds.unit(id),)
        }
        for unit in units.values():
            started = self._started(unit)
            if started is None:
                continue
            # Of a host maintenance, an event that has ended before holds the others no longer.
            part = Unit(tuple(filter(self._has_started, unit.parts)), unit.joint)
            self._report(HALTED, unit.parts[0], self._holds.halted(part), *started)
            self._report(OUTSIDE_WINDOW, unit.parts[0], self._holds.closed(part), *started)
            self._report(UNINFORMED, unit.parts[0], self._holds.uninformed(unit), *started)
            unapproved = all(
                self._approvals.certainly_unapproved(id, started[1]) for id in unit.ids
            )
            if (
                not self._report(IMPACT, unit.parts[0], self._holds.disconnected(part), *started)
                and unapproved
            ):
                self._report(GRACE, unit.parts[0], self._holds.joined(part), *started)
        self._judge_unannounced()

    def _started(self, unit: Unit) -> tuple[float, float] | None:
        """Return the time in which these events must have started; None if they did not, or were
        not announced."""
        if any("strike" in self._trace.moves.get(id, ()) for id in unit.ids):
            return None
        lines = [self._holds.recorded(id).started for id in unit.ids]
        recorded = min((t for t in lines if t is not None), default=None)
        if recorded is not None:
            return recorded, recorded
        scheduled, started = self._sightings.last_scheduled, self._sightings.started
        waiting = [scheduled[id].exchange.asked for id in unit.ids if id in scheduled]
        begun = [started[id].exchange.t for id in unit.ids if id in started]
        begun += [self._impacts[id] for id in unit.ids if id in self._impacts]
        if not waiting or not begun:
            return None
        since, until = max(waiting), min(begun)
        if all(self._approvals.certainly_unapproved(id, until) for id in unit.ids):
            known = [self._facts.events[id] for id in unit.ids if id in self._facts.events]
            due = [facts.not_before for facts in known if facts.not_before is not None]
            since = max([since, *(float(time) for time in due if time <= until)])
        return (since, until) if since <= until else None

    def _has_started(self, part: Part) -> bool:
        return (
            self._holds.recorded(part.id).started is not None
            or part.id in self._sightings.started
            or part.id in self._impacts
        )

    def _judge_unannounced(self) -> None:
        """Report what was carried out at once in spite of a halt, or on a machine disconnected."""
        raised: dict[str, float] = {}  # the line may be written again
        for line in self._trace.unannounced:
            since = raised[line.event] = min(line.t, raised.get(line.event, line.t))
            until = self._impacts.get(line.event)
            if until is not None and since <= until:
                part = Part(line.event, line.group, line.machines)
                unit = Unit((part,))
                self._report(HALTED, part, self._holds.halted(unit), since, until)
                self._report(IMPACT, part, self._holds.disconnected(unit), since, until)

    def _report(
        self, rule: str, part: Part, times: Iterable[HeldTime], since: float, until: float
    ) -> bool:
        """Report a start between two times if all of that is forbidden; return whether it is."""
        margin = self._holds.margin
        if self._gaps.hide(since, until):
            return False
        for time in _merged(time for time in times if time.certain):
            if time.begin + margin <= since and until + margin <= time.end:
                message = f"It was started {time.reason}."
                self._findings.add(rule, message, t=until, event=part.id, group=part.group)
                return True
        return False


def _merged(times: Iterable[HeldTime]) -> Iterator[HeldTime]:
    """Yield times that do not overlap: each that follows another without a gap is part of it."""
    last: HeldTime | None = None
    for time in sorted(times, key=lambda time: time.begin):
        if last is not None and time.begin <= last.end:
            last = HeldTime(last.begin, max(last.end, time.end), last.reason, last.certain)
            continue
        if last is not None:
            yield last
        last = time
    if last is not None:
        yield last
