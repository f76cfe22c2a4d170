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
from forewarn.testing.scenarios.engine import pending, verbs
from forewarn.testing.scenarios.engine.check_expectations import Facts, check
from forewarn.testing.scenarios.engine.event_tracker import EventTracker, TrackedEvent
from forewarn.testing.scenarios.engine.pace import Pace
from forewarn.testing.scenarios.engine.pending import Pending
from forewarn.testing.scenarios.model import Scenario, Step, When
from forewarn.testing.scenarios.result import CommandExit, Result, StepResult
from forewarn.testing.session import Session

LEAST_WITHIN: Duration = 2 * SECOND  # at any speed, since clients poll once a second

# The hints of the service, in the words of a scenario file.
HINTS = {
    Hint.SHORT_NOTICE: "write short_notice: true to override",
    Hint.EVACUATE: "or write evacuate: true",
}


class Player:
    """Plays one scenario. `problems` are reasons why it could not be played to the end;
    `on_step` is called with a description of each step that is carried out.
    """

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
        self._event_ids: dict[str, list[str]] = {}  # ids of events, by name
        self._rollouts: dict[str, list[str]] = {}
        self._faults: dict[str, list[str]] = {}
        self._groups = {
            machine.name: name
            for name, define in scenario.fleet.groups.items()
            for machine in define.machines
        }
        self._started = False
        self._started_at = guard.monotonic()
        self._start = self._now()
        self.problems: list[str] = []

    def _now(self) -> Time:
        return self._session.node.writer.now().at

    @property
    def _end(self) -> Time | None:
        end = self._scenario.ends
        return None if end is None else self._start + self._paced(end)

    def play(self, problem: Callable[[], str]) -> None:
        """Play to the end, or until `problem` returns a reason to stop."""
        self._start = self._now()
        self._started = True
        self._fire()  # steps that are due from the start
        while not self._finished():
            self._pace.settle()
            if reason := problem():
                self.problems.append(reason)
                return
            if not self._fire() and not self._pace.go_on(self._times()):
                break
        self._pace.finish()

    def _finished(self) -> bool:
        if self._end is not None:
            return self._now() >= self._end
        if any(
            item.remaining and not self._unreachable_reason(item.step) for item in self._pending
        ):
            return False
        with self._tracker.changed:
            active = any(True for _ in self._tracker.active())
        return not active and not any(self._rollout_in_progress(name) for name in self._rollouts)

    def _times(self) -> list[Time]:
        """Return the times at which something is sure to happen."""
        times = [item.due for item in self._pending if item.remaining and item.due is not None]
        return times if self._end is None else [*times, self._end]

    def _fire(self) -> bool:
        """Carry out all steps that are due; return whether there was one."""
        self._collect_rollout_events()
        now = self._now()
        ready: list[tuple[Time, Pending]] = []
        for item in self._pending:
            if item.remaining and item.due is None:
                when = item.step.when
                raising = self._rollout_in_progress(when.name)
                item.due = pending.due(
                    when, self._start, self._awaited_events(when), raising, self._paced
                )
            if item.remaining and item.due is not None and item.due <= now:
                ready.append((item.due, item))
        for _, item in sorted(ready, key=lambda pair: pair[0]):
            self._carry_out(item)
        return bool(ready)

    def _carry_out(self, item: Pending) -> None:
        step = item.step
        text = pending.describe(step)
        at = (self._now() - self._start) / SECOND
        event_ids = self._event_ids.get(getattr(step.entry, "event", ""), [])
        faults = self._faults.get(getattr(step.entry, "fault", ""), [])
        node = self._session.node
        outcome = self._session.run(verbs.do(node, step, event_ids, self._paced, faults))
        self._session.settle()
        if isinstance(outcome, Refused):
            refused = outcome.with_hint(HINTS)
            self._on_step(f"{text}: refused: {refused}")
            played = StepResult(line=step.line, step=text, at=at, refused=refused)
        else:
            self._on_step(text)
            played = StepResult(line=step.line, step=text, at=at, notes=outcome.notes)
            self._remember(step, outcome)
        item.carried_out(played, self._paced(step.every))

    def _remember(self, step: Step, outcome: verbs.StepOutcome) -> None:
        if outcome.rollout:
            self._rollouts.setdefault(step.name or outcome.rollout, []).append(outcome.rollout)
        if step.name and outcome.fault:
            self._faults.setdefault(step.name, []).append(outcome.fault)
        elif step.name:
            ids = self._event_ids.setdefault(step.name, [])
            ids.extend(id for id in outcome.events if id not in ids)

    def _collect_rollout_events(self) -> None:
        """Add the events that rollouts have raised since the last call."""
        for name, ids in self._rollouts.items():
            events = self._event_ids.setdefault(name, [])
            for id in ids:
                raised = self._session.call(verbs.raised_by, self._session.node, id)
                events.extend(event for event in raised if event not in events)

    def _rollout_in_progress(self, name: str) -> bool:
        ids = self._rollouts.get(name, [])
        return any(self._session.call(verbs.is_in_progress, self._session.node, id) for id in ids)

    def _events(self, name: str) -> list[TrackedEvent]:
        with self._tracker.changed:
            ids = self._event_ids.get(name, [])
            return [self._tracker.events[id] for id in ids if id in self._tracker.events]

    def _awaited_events(self, when: When) -> list[TrackedEvent]:
        """Return the events that a step waits for: of one machine, only those of its group."""
        events = self._events(when.name)
        visible = [event for event in events if event.group == self._groups.get(when.by)]
        return visible if when.by and visible else events

    def _unreachable_reason(self, step: Step) -> str:
        """Return why a step cannot become due any more, or nothing if it can."""
        when = step.when
        if when.at is not None:
            return ""
        if reason := pending.unreachable_reason(when, self._awaited_events(when)):
            return reason
        if self._event_ids.get(when.name) or self._rollout_in_progress(when.name):
            return ""
        sources = [item for item in self._pending if item.step.name == when.name]
        if all(not item.remaining for item in sources):
            return f"'{when.name}' raised no event"
        return next(
            (reason for item in sources if (reason := self._unreachable_reason(item.step))), ""
        )

    def result(self, ended: tuple[CommandExit, ...]) -> Result:
        self._collect_rollout_events()
        facts = Facts(
            events={name: self._events(name) for name in self._event_ids},
            under_test=self._scenario.under_test,
            verdict=self._session.verdict(),
            ended=ended,
            paced=self._lenient_duration,
            groups=self._groups,
        )
        with self._tracker.changed:
            lines = tuple(self._tracker.lines)
            if self._tracker.dropped:
                self.problems.append(f"{self._tracker.dropped} lines of the trace were dropped")
        expectations = self._scenario.expectations if self._started else ()
        return Result(
            scenario=self._scenario.name,
            about=self._scenario.about,
            expectations=tuple(check(expectation, facts) for expectation in expectations),
            steps=tuple(played for item in self._pending for played in self._results_of(item)),
            problems=tuple(self.problems),
            verdict=facts.verdict,
            ended=ended,
            seconds=(self._now() - self._start) / SECOND,
            took=guard.monotonic() - self._started_at,
            lines=lines,
        )

    def _results_of(self, item: Pending) -> list[StepResult]:
        if not item.remaining or self.problems:
            return item.played
        reason = self._unreachable_reason(item.step) or self._why_not_yet(item)
        text = pending.describe(item.step)
        return [*item.played, StepResult(line=item.step.line, step=text, why_not=reason)]

    def _why_not_yet(self, item: Pending) -> str:
        if item.due is not None:
            after = in_words(item.due - self._start)
            return f"it was due after {after}, and the scenario ended before"
        when = item.step.when
        by = f" by {when.by}" if when.by else ""
        return f"the scenario ended before '{when.name}' was {when.moment.value}{by}"

    def _lenient_duration(self, duration: Duration) -> Duration:
        paced = self._paced(duration)
        return paced if paced == duration else max(paced, LEAST_WITHIN)
