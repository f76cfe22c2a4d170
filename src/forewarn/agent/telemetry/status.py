"""The agent's status as one value, for its health, its metrics and `agent status`.

Taken from the client and the cases on request; nothing is stored here. Of hooks it contains only
what every user of the machine may see: no options, no output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from forewarn import __version__
from forewarn.agent.planning.attempts import AttemptSummary, summarize
from forewarn.agent.planning.plan import overdue_at, prepared
from forewarn.agent.planning.steps import CaseProgress
from forewarn.agent.state.runs import Run
from forewarn.client.events import EndpointStatus, Event


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    now: datetime  # by the service's clock
    machine: str  # empty: not known yet
    dry_run: bool
    endpoint: EndpointStatus
    guard: float = 0.0  # when it was taken, on the machine's monotonic clock
    events: tuple[Event, ...] = ()  # that are listed
    cases: tuple[CaseProgress, ...] = ()  # that are open, or closed and still kept

    @property
    def open(self) -> tuple[CaseProgress, ...]:
        return tuple(progress for progress in self.cases if progress.case.open)

    @property
    def silence(self) -> float:
        """Seconds without a valid answer; 0 if the last answer was valid."""
        endpoint = self.endpoint
        return max(0.0, (self.now - endpoint.since).total_seconds()) if endpoint.problem else 0.0

    @property
    def active_runs(self) -> int:
        """The number of commands that are running or about to."""
        return sum(run.active for progress in self.open for run in progress.runs)

    @property
    def overdue(self) -> int:
        """The number of commands that are still running after their time limit and `OVERDUE`."""
        runs = (run for progress in self.open for run in progress.runs)
        return sum(_is_overdue(run, self.guard) for run in runs)

    @property
    def to_undo(self) -> int:
        """The number of hooks that are prepared and not undone yet."""
        return sum(not _undo(progress, name).settled for progress, name in _prepared(self.open))

    @property
    def given_up(self) -> tuple[tuple[CaseProgress, str], ...]:
        """Hooks whose undo was given up, and has not succeeded for a later event since."""
        hooks = [(progress, name) for progress, name in _prepared(self.cases)]
        succeeded: dict[str, int] = {}  # the number of the last undo that did
        for progress, name in hooks:
            for run in progress.runs_of(name, "undo"):
                if run.succeeded:
                    succeeded[name] = max(run.number, succeeded.get(name, 0))
        return tuple(
            (progress, name)
            for progress, name in hooks
            if _undo(progress, name).given_up
            and progress.runs_of(name, "undo")[-1].number > succeeded.get(name, 0)
        )

    @property
    def waiting(self) -> int:
        """The number of events that this machine is ready for, and that have not started."""
        return sum(
            case.ready is not None and not (case.approved or case.started or case.over)
            for case in (progress.case for progress in self.open)
        )


def _is_overdue(run: Run, guard: float) -> bool:
    at = overdue_at(run)
    return at is not None and guard >= at


def _prepared(cases: Iterable[CaseProgress]) -> Iterator[tuple[CaseProgress, str]]:
    return ((progress, hook.name) for progress in cases for hook, _ in prepared(progress))


def _undo(progress: CaseProgress, name: str) -> AttemptSummary:
    hook = next(hook for hook in progress.case.hooks if hook.name == name)
    return summarize(progress.runs_of(name, "undo"), hook, "undo")


# As JSON


class RunView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    hook: str
    stage: str
    attempt: int
    state: str  # ordered, running, overdue, done, lost
    outcome: str = ""
    code: int | None = None
    seconds: float | None = None


class CaseView(msgspec.Struct, frozen=True, kw_only=True):
    event: Event
    mine: bool
    rule: str
    approve: str
    state: str  # see `describe_state`
    seen: datetime
    ready: datetime | None
    approved: datetime | None
    over: str | None
    closed: datetime | None
    runs: tuple[RunView, ...]


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `GET /status`."""

    version: str
    machine: str
    dry_run: bool
    now: datetime
    endpoint: EndpointStatus
    silence: float
    events: tuple[Event, ...]
    cases: tuple[CaseView, ...]  # the newest first


def status_view(status: AgentStatus) -> StatusView:
    newest = sorted(status.cases, key=lambda progress: progress.case.seen, reverse=True)
    return StatusView(
        version=__version__,
        machine=status.machine,
        dry_run=status.dry_run,
        now=status.now,
        endpoint=status.endpoint,
        silence=status.silence,
        events=status.events,
        cases=tuple(_case_view(progress, status.guard) for progress in newest),
    )


def _case_view(progress: CaseProgress, guard: float) -> CaseView:
    case = progress.case
    return CaseView(
        event=case.event,
        mine=case.mine,
        rule=case.rule.name,
        approve=case.rule.approve,
        state=describe_state(progress),
        seen=case.seen,
        ready=case.ready,
        approved=case.approved,
        over=case.over,
        closed=case.closed,
        runs=tuple(_run_view(run, guard) for run in progress.runs),
    )


def _run_view(run: Run, guard: float) -> RunView:
    result = run.result
    return RunView(
        hook=run.hook,
        stage=run.stage,
        attempt=run.attempt,
        state="overdue" if _is_overdue(run, guard) else run.state,
        outcome="" if result is None else result.outcome,
        code=None if result is None else result.code,
        seconds=None if result is None else result.seconds,
    )


def describe_state(progress: CaseProgress) -> str:
    """Describe in a few words what is being done about an event."""
    case = progress.case
    given_up = [name for _, name in _prepared([progress]) if _undo(progress, name).given_up]
    if given_up:
        return f"undo of {', '.join(given_up)} given up"
    if case.closed:
        return f"{case.over}, everything undone" if prepared(progress) else str(case.over)
    if active := [run for run in progress.runs if run.active]:
        return ", ".join(f"{run.stage} of {run.hook}" for run in active)
    if case.over:
        return "waiting to be undone"
    if case.started:
        return "started"
    if case.approved:
        return "approved"
    return "ready, waiting for other machines" if case.ready else "scheduled"
