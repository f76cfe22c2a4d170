"""How things stand with an agent, as one value: for its health, its metrics and `agent status`.

Read off its client and its stories when somebody asks. Nothing is kept here, and of hooks only what
anybody on the machine may know: no options, no output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from forewarn import __version__
from forewarn.agent.planning.attempts import standing
from forewarn.agent.planning.plan import overdue_at, prepared
from forewarn.agent.planning.steps import CaseWithRuns
from forewarn.agent.state.runs import Run
from forewarn.client.events import Event
from forewarn.client.status import EndpointStatus
from forewarn.support.guard import monotonic


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    now: datetime  # by the service's clock
    machine: str  # empty: not known yet
    dry: bool
    standing: EndpointStatus
    guard: float = 0.0  # when it was taken, on the machine's monotonic clock
    events: tuple[Event, ...] = ()  # that are listed
    stories: tuple[CaseWithRuns, ...] = ()  # of cases that are open, or still remembered

    @property
    def open(self) -> tuple[CaseWithRuns, ...]:
        return tuple(story for story in self.stories if story.case.open)

    @property
    def silence(self) -> float:
        """Seconds without an answer that was as it should be; 0 if the last one was."""
        stands = self.standing
        return max(0.0, (self.now - stands.since).total_seconds()) if stands.trouble else 0.0

    @property
    def at_work(self) -> int:
        """Commands that run, or are about to."""
        return sum(run.active for story in self.open for run in story.runs)

    @property
    def overdue(self) -> int:
        """The number of commands that are still running after their time limit and `OVERDUE`."""
        runs = (run for story in self.open for run in story.runs)
        return sum(_overdue(run, self.guard) for run in runs)

    @property
    def to_undo(self) -> int:
        """Hooks that are prepared, and not put back yet."""
        return sum(not _undo(story, name).settled for story, name in _prepared(self.open))

    @property
    def given_up(self) -> tuple[tuple[CaseWithRuns, str], ...]:
        """Hooks whose undo was given up, and has not succeeded for a later event since."""
        found = [(story, name) for story, name in _prepared(self.stories)]
        good: dict[str, int] = {}
        for story, name in found:
            for run in story.of(name, "undo"):
                if run.good:
                    good[name] = max(run.number, good.get(name, 0))
        return tuple(
            (story, name)
            for story, name in found
            if _undo(story, name).given_up and story.of(name, "undo")[-1].number > good.get(name, 0)
        )

    @property
    def waiting(self) -> int:
        """Events for which this machine has said that it is ready, and that have not begun."""
        return sum(
            case.ready is not None and not (case.approved or case.started or case.over)
            for case in (story.case for story in self.open)
        )


def picture_of(agent: Any) -> AgentStatus:
    """Of an `Agent`."""
    identity, looked = agent.identity, agent.looked
    return AgentStatus(
        now=agent.client.now(),
        machine="" if identity is None else identity.name,
        dry=agent.dry,
        standing=agent.client.standing,
        guard=monotonic(),
        events=() if looked is None else looked.document.events,
        stories=tuple(agent.story(case) for case in agent.cases),
    )


def _overdue(run: Run, guard: float) -> bool:
    at = overdue_at(run)
    return at is not None and guard >= at


def _prepared(stories: Iterable[CaseWithRuns]) -> Iterator[tuple[CaseWithRuns, str]]:
    return ((story, hook.name) for story in stories for hook, _ in prepared(story))


def _undo(story: CaseWithRuns, name: str) -> Any:
    hook = next(hook for hook in story.case.hooks if hook.name == name)
    return standing(story.of(name, "undo"), hook, "undo")


# As it is told


class RunView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    hook: str
    stage: str
    attempt: int
    state: str  # ordered, working, overdue, done, lost
    outcome: str = ""
    code: int | None = None
    seconds: float | None = None


class CaseView(msgspec.Struct, frozen=True, kw_only=True):
    event: Event
    mine: bool
    rule: str
    approve: str
    state: str  # see `state_of`
    seen: datetime
    ready: datetime | None
    approved: datetime | None
    over: str | None
    closed: datetime | None
    runs: tuple[RunView, ...]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    machine: str
    dry: bool
    now: datetime
    endpoint: EndpointStatus
    silence: float
    events: tuple[Event, ...]
    cases: tuple[CaseView, ...]  # the newest first


def status(picture: AgentStatus) -> Status:
    stories = sorted(picture.stories, key=lambda story: story.case.seen, reverse=True)
    return Status(
        version=__version__,
        machine=picture.machine,
        dry=picture.dry,
        now=picture.now,
        endpoint=picture.standing,
        silence=picture.silence,
        events=picture.events,
        cases=tuple(_case(story, picture.guard) for story in stories),
    )


def _case(story: CaseWithRuns, guard: float) -> CaseView:
    case = story.case
    return CaseView(
        event=case.event,
        mine=case.mine,
        rule=case.rule.name,
        approve=case.rule.approve,
        state=state_of(story),
        seen=case.seen,
        ready=case.ready,
        approved=case.approved,
        over=case.over,
        closed=case.closed,
        runs=tuple(_run(run, guard) for run in story.runs),
    )


def _run(run: Run, guard: float) -> RunView:
    result = run.result
    return RunView(
        hook=run.hook,
        stage=run.stage,
        attempt=run.attempt,
        state="overdue" if _overdue(run, guard) else run.state,
        outcome="" if result is None else result.outcome,
        code=None if result is None else result.code,
        seconds=None if result is None else result.seconds,
    )


def state_of(story: CaseWithRuns) -> str:
    """In a few words: what is being done about it."""
    case = story.case
    given_up = [name for _, name in _prepared([story]) if _undo(story, name).given_up]
    if given_up:
        return f"undo of {', '.join(given_up)} given up"
    if case.closed:
        return f"{case.over}, all put back" if prepared(story) else str(case.over)
    if at_work := [run for run in story.runs if run.active]:
        return ", ".join(f"{run.stage} of {run.hook}" for run in at_work)
    if case.over:
        return "to be put back"
    if case.started:
        return "started"
    if case.approved:
        return "approved"
    return "ready, waits for others" if case.ready else "scheduled"
