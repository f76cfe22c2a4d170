"""`Player`: carries out the steps of a timeline when they are due, and makes the result.

How time passes meanwhile is `pace.py`; what a step does is `verbs.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn.core import Refused
from forewarn.core.refusal import Hint
from forewarn.core.time import SECOND, Duration, Time
from forewarn.support import guard
from forewarn.support.text import in_words
from forewarn.testing.scenarios.engine import pending as p
from forewarn.testing.scenarios.engine import verbs
from forewarn.testing.scenarios.engine.check_expectations import Facts, check
from forewarn.testing.scenarios.engine.event_tracker import EventTracker, TrackedEvent
from forewarn.testing.scenarios.engine.pace import Pace
from forewarn.testing.scenarios.engine.pending import Pending
from forewarn.testing.scenarios.model import Scenario, Step, When
from forewarn.testing.scenarios.result import Ended, Played, Result
from forewarn.testing.session import Session

LEAST_WITHIN: Duration = 2 * SECOND  # at any speed, since clients poll once a second

# What a hint of the service means to whoever writes a scenario.
HINTS = {
    Hint.SHORT_NOTICE: "write short_notice: true to override",
    Hint.EVACUATE: "or write evacuate: true",
}


class Player:
    """`problems` are why the scenario could not be played; `on_step` is called with each step."""

    def __init__(
        self,
        session: Session,
        scenario: Scenario,
        tracker: EventTracker,
        pace: Pace,
        on_step: Callable[[str], None],
    ) -> None:
        self._session = session
        self._scenario = scenario
        self._tracker = tracker
        self._pace = pace
        self._on_step = on_step
        self._paced = session.node.config.rules.paced
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
        self.problems: list[str] = []

    def _now(self) -> Time:
        return self._session.node.writer.now().at

    @property
    def _ends(self) -> Time | None:
        ends = self._scenario.ends
        return None if ends is None else self._start + self._paced(ends)

    def play(self, problem: Callable[[], str]) -> None:
        """Play to the end, or until `problem` returns a reason to stop."""
        self._start = self._now()
        self._begun = True
        self._fire()  # steps that are due from the start
        while not self._over():
            self._pace.settle()
            if reason := problem():
                self.problems.append(reason)
                return
            if not self._fire() and not self._pace.go_on(self._times()):
                break
        self._pace.finish()

    def _over(self) -> bool:
        if self._ends is not None:
            return self._now() >= self._ends
        if any(item.left and not self._never(item.step) for item in self._pending):
            return False
        with self._tracker.changed:
            active = any(True for _ in self._tracker.active())
        return not active and not any(self._rolling(name) for name in self._rollouts)

    def _times(self) -> list[Time]:
        """Return the times at which something is sure to happen."""
        times = [item.due for item in self._pending if item.left and item.due is not None]
        return times if self._ends is None else [*times, self._ends]

    def _fire(self) -> bool:
        """Carry out all steps that are due; return whether there was one."""
        self._gather()
        now = self._now()
        ready: list[tuple[Time, Pending]] = []
        for item in self._pending:
            if item.left and item.due is None:
                when = item.step.when
                raising = self._rolling(when.name)
                item.due = p.due(when, self._start, self._meant(when), raising, self._paced)
            if item.left and item.due is not None and item.due <= now:
                ready.append((item.due, item))
        for _, item in sorted(ready, key=lambda pair: pair[0]):
            self._do(item)
        return bool(ready)

    def _do(self, item: Pending) -> None:
        step = item.step
        text = p.in_words(step)
        at = (self._now() - self._start) / SECOND
        about = self._named.get(getattr(step.words, "event", ""), [])
        faults = self._faults.get(getattr(step.words, "fault", ""), [])
        node = self._session.node
        done = self._session.run(verbs.do(node, step, about, self._paced, faults))
        self._session.settle()
        if isinstance(done, Refused):
            refused = done.in_words(HINTS)
            self._on_step(f"{text}: refused: {refused}")
            played = Played(line=step.line, step=text, at=at, refused=refused)
        else:
            self._on_step(text)
            played = Played(line=step.line, step=text, at=at, notes=done.notes)
            self._remember(step, done)
        item.carried_out(played, self._paced(step.every))

    def _remember(self, step: Step, done: verbs.Done) -> None:
        if done.rollout:
            self._rollouts.setdefault(step.name or done.rollout, []).append(done.rollout)
        if step.name and done.fault:
            self._faults.setdefault(step.name, []).append(done.fault)
        elif step.name:
            known = self._named.setdefault(step.name, [])
            known.extend(id for id in done.events if id not in known)

    def _gather(self) -> None:
        """Take note of the events that rollouts have raised since."""
        for name, ids in self._rollouts.items():
            known = self._named.setdefault(name, [])
            for id in ids:
                raised = self._session.call(verbs.raised_by, self._session.node, id)
                known.extend(event for event in raised if event not in known)

    def _rolling(self, name: str) -> bool:
        ids = self._rollouts.get(name, [])
        return any(self._session.call(verbs.is_rolling, self._session.node, id) for id in ids)

    def _events(self, name: str) -> list[TrackedEvent]:
        with self._tracker.changed:
            ids = self._named.get(name, [])
            return [self._tracker.events[id] for id in ids if id in self._tracker.events]

    def _meant(self, when: When) -> list[TrackedEvent]:
        """Return the events that a step waits for: of one machine, only those of its group."""
        events = self._events(when.name)
        shown = [event for event in events if event.group == self._groups.get(when.by)]
        return shown if when.by and shown else events

    def _never(self, step: Step) -> str:
        """Return why a step cannot become due any more, or nothing if it can."""
        when = step.when
        if when.at is not None:
            return ""
        if why := p.never(when, self._meant(when)):
            return why
        if self._named.get(when.name) or self._rolling(when.name):
            return ""
        sources = [item for item in self._pending if item.step.name == when.name]
        if all(not item.left for item in sources):
            return f"'{when.name}' raised no event"
        return next((why for item in sources if (why := self._never(item.step))), "")

    def result(self, ended: tuple[Ended, ...]) -> Result:
        self._gather()
        facts = Facts(
            named={name: self._events(name) for name in self._named},
            speakers=self._scenario.speakers,
            verdict=self._session.verdict(),
            ended=ended,
            paced=self._lenient,
            groups=self._groups,
        )
        with self._tracker.changed:
            lines = tuple(self._tracker.lines)
            if self._tracker.lost:
                self.problems.append(f"{self._tracker.lost} lines of the trace were not kept")
        wanted = self._scenario.expectations if self._begun else ()
        return Result(
            scenario=self._scenario.name,
            about=self._scenario.about,
            expectations=tuple(check(expectation, facts) for expectation in wanted),
            steps=tuple(played for item in self._pending for played in self._account(item)),
            problems=tuple(self.problems),
            verdict=facts.verdict,
            ended=ended,
            seconds=(self._now() - self._start) / SECOND,
            took=guard.monotonic() - self._since,
            lines=lines,
        )

    def _account(self, item: Pending) -> list[Played]:
        if not item.left or self.problems:
            return item.played
        why = self._never(item.step) or self._why_not_yet(item)
        text = p.in_words(item.step)
        return [*item.played, Played(line=item.step.line, step=text, why_not=why)]

    def _why_not_yet(self, item: Pending) -> str:
        if item.due is not None:
            after = in_words(item.due - self._start)
            return f"it was due after {after}, and the scenario ended before"
        when = item.step.when
        by = f" by {when.by}" if when.by else ""
        return f"the scenario ended before '{when.name}' was {when.moment.value}{by}"

    def _lenient(self, length: Duration) -> Duration:
        paced = self._paced(length)
        return paced if paced == length else max(paced, LEAST_WITHIN)
