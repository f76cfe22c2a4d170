"""A timeline as it is played: what is due is done, what it raised is known by its name, and at the
end it is said what came of it. How time passes meanwhile is `pace.py`."""

from __future__ import annotations

from collections.abc import Callable

from forewarn.core import Refused
from forewarn.core.time import SECOND, Duration, Time
from forewarn.support import guard
from forewarn.support.text import in_words
from forewarn.testing.kit.service import Service
from forewarn.testing.scenarios.engine import pending as p
from forewarn.testing.scenarios.engine import verbs
from forewarn.testing.scenarios.engine.check_expectations import Ended, Facts, find
from forewarn.testing.scenarios.engine.event_tracker import EventTracker, TrackedEvent
from forewarn.testing.scenarios.engine.pace import Pace
from forewarn.testing.scenarios.engine.pending import Pending
from forewarn.testing.scenarios.model import Scenario, Step, When
from forewarn.testing.scenarios.result import Played, Result

LEAST_WITHIN: Duration = 2 * SECOND  # however fast: a client asks once a second


class Player:
    """`trouble` says why there is no point in going on; `tell` hears what is done."""

    def __init__(
        self,
        service: Service,
        scenario: Scenario,
        hearing: EventTracker,
        pace: Pace,
        tell: Callable[[str], None],
    ) -> None:
        self._service = service
        self._scenario = scenario
        self._hearing = hearing
        self._pace = pace
        self._tell = tell
        self._paced = service.node.config.rules.paced
        self._pending = [Pending(step) for step in scenario.steps]
        self._named: dict[str, list[str]] = {}  # ids of events
        self._rollouts: dict[str, list[str]] = {}
        self._faults: dict[str, list[str]] = {}
        self._groups = {
            machine.name: name
            for name, define in scenario.fleet.groups.items()
            for machine in define.machines
        }
        self._begun = False
        self._since = guard.monotonic()
        self._start = self._now()
        self.trouble: list[str] = []

    def _now(self) -> Time:
        return self._service.node.writer.now().at

    @property
    def _ends(self) -> Time | None:
        ends = self._scenario.ends
        return None if ends is None else self._start + self._paced(ends)

    def play(self, trouble: Callable[[], str]) -> None:
        self._start = self._now()
        self._begun = True
        self._fire()  # what is so from the beginning
        while not self._over():
            self._pace.settle()
            if says := trouble():
                self.trouble.append(says)
                return
            if not self._fire() and not self._pace.go_on(self._times()):
                break
        self._pace.farewell()

    def _over(self) -> bool:
        if self._ends is not None:
            return self._now() >= self._ends
        if any(one.left and not self._cannot(one.step) for one in self._pending):
            return False
        with self._hearing.changed:
            active = any(True for _ in self._hearing.active())
        return not active and not any(self._rolls(name) for name in self._rollouts)

    def _times(self) -> list[Time]:
        """Instants at which something is sure to happen."""
        times = [one.due for one in self._pending if one.left and one.due is not None]
        return times if self._ends is None else [*times, self._ends]

    def _fire(self) -> bool:
        """Do all that is due; False if nothing was."""
        self._gather()
        now = self._now()
        ready: list[tuple[Time, Pending]] = []
        for one in self._pending:
            if one.left and one.due is None:
                when = one.step.when
                raising = self._rolls(when.name)
                one.due = p.due(when, self._start, self._meant(when), raising, self._paced)
            if one.left and one.due is not None and one.due <= now:
                ready.append((one.due, one))
        for _, one in sorted(ready, key=lambda pair: pair[0]):
            self._do(one)
        return bool(ready)

    def _do(self, one: Pending) -> None:
        step = one.step
        says = p.in_words(step)
        at = (self._now() - self._start) / SECOND
        about = self._named.get(getattr(step.words, "event", ""), [])
        faults = self._faults.get(getattr(step.words, "fault", ""), [])
        node = self._service.node
        done = self._service.run(verbs.do(node, step, about, self._paced, faults))
        self._service.settle()
        if isinstance(done, Refused):
            self._tell(f"{says}: refused: {done.says}")
            played = Played(line=step.line, says=says, at=at, refused=done.says)
        else:
            self._tell(says)
            played = Played(line=step.line, says=says, at=at, notes=done.notes)
            self._remember(step, done)
        one.happened(played, self._paced(step.every))

    def _remember(self, step: Step, done: verbs.Done) -> None:
        if done.rollout:
            self._rollouts.setdefault(step.name or done.rollout, []).append(done.rollout)
        if step.name and done.fault:
            self._faults.setdefault(step.name, []).append(done.fault)
        elif step.name:
            known = self._named.setdefault(step.name, [])
            known.extend(id for id in done.events if id not in known)

    def _gather(self) -> None:
        """What rollouts have raised since."""
        for name, ids in self._rollouts.items():
            known = self._named.setdefault(name, [])
            for id in ids:
                found = self._service.call(verbs.raised_by, self._service.node, id)
                known.extend(event for event in found if event not in known)

    def _rolls(self, name: str) -> bool:
        ids = self._rollouts.get(name, [])
        return any(self._service.call(verbs.rolls, self._service.node, id) for id in ids)

    def _told(self, name: str) -> list[TrackedEvent]:
        with self._hearing.changed:
            ids = self._named.get(name, [])
            return [self._hearing.events[id] for id in ids if id in self._hearing.events]

    def _meant(self, when: When) -> list[TrackedEvent]:
        """Of one machine only what it is shown can be waited for."""
        events = self._told(when.name)
        shown = [told for told in events if told.group == self._groups.get(when.by)]
        return shown if when.by and shown else events

    def _cannot(self, step: Step) -> str:
        """Why a line will not happen any more; empty if it may."""
        when = step.when
        if when.at is not None:
            return ""
        if why := p.never(when, self._meant(when)):
            return why
        if self._named.get(when.name) or self._rolls(when.name):
            return ""
        namers = [one for one in self._pending if one.step.name == when.name]
        if all(not one.left for one in namers):
            return f"'{when.name}' raised no event"
        return next((why for one in namers if (why := self._cannot(one.step))), "")

    # The end.

    def result(self, ended: tuple[Ended, ...]) -> Result:
        self._gather()
        facts = Facts(
            named={name: self._told(name) for name in self._named},
            speakers=self._scenario.speakers,
            verdict=self._service.verdict(),
            ended=ended,
            least=self._lenient,
            groups=self._groups,
        )
        with self._hearing.changed:
            lines = tuple(self._hearing.lines)
            if self._hearing.lost:
                self.trouble.append(f"{self._hearing.lost} lines of the trace were not kept")
        wanted = self._scenario.expectations if self._begun else ()
        return Result(
            scenario=self._scenario.name,
            about=self._scenario.about,
            findings=tuple(find(one, facts) for one in wanted),
            steps=tuple(played for one in self._pending for played in self._account(one)),
            trouble=tuple(self.trouble),
            verdict=facts.verdict,
            ended=ended,
            seconds=(self._now() - self._start) / SECOND,
            took=guard.monotonic() - self._since,
            lines=lines,
        )

    def _account(self, one: Pending) -> list[Played]:
        if not one.left or self.trouble:
            return one.played
        why = self._cannot(one.step) or self._why_not_yet(one)
        says = p.in_words(one.step)
        return [*one.played, Played(line=one.step.line, says=says, why_not=why)]

    def _why_not_yet(self, one: Pending) -> str:
        if one.due is not None:
            after = in_words(one.due - self._start)
            return f"it was due after {after}, and the scenario ended before"
        when = one.step.when
        by = f" by {when.by}" if when.by else ""
        return f"the scenario ended before '{when.name}' was {when.moment.value}{by}"

    def _lenient(self, length: Duration) -> Duration:
        paced = self._paced(length)
        return paced if paced == length else max(paced, LEAST_WITHIN)
