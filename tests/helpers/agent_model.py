"""A pretended machine for what the agent plans: runs that end as dice say, a clock that is wound,
and every promise looked at with every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec

from forewarn.agent.config.model import STAGES, Hook, Rule, Stage
from forewarn.agent.planning import plan as planning
from forewarn.agent.planning import steps
from forewarn.agent.planning.attempts import MAX_UNDO_PAUSE
from forewarn.agent.planning.planner import Planner, is_ordered
from forewarn.agent.planning.steps import CaseProgress, Order, World
from forewarn.agent.running.command import build_order
from forewarn.agent.state import cases
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Outcome, Result, Run, RunState
from forewarn.agent.state.store import StateStore
from forewarn.client.events import Event
from forewarn.support.guard import monotonic

BEGINNING = datetime(2027, 1, 15, 8, tzinfo=UTC)


def hook(name: str, stages: tuple[Any, ...] = STAGES, **more: Any) -> Hook:
    return Hook(name=name, commands=dict.fromkeys(stages, ("true",)), stages=stages, **more)


def event(id: str = "E1", notice: float | None = 900.0, **more: Any) -> Event:
    output: dict[str, Any] = {
        "type": "Reboot",
        "status": "Scheduled",
        "resources": ("web_0", "web_1"),
        "source": "Platform",
        "not_before": None if notice is None else BEGINNING + timedelta(seconds=notice),
    }
    return Event(id=id, **(output | more))


def a_case(
    *hooks: Hook, of: Event | None = None, machine: str = "web_0", id: str = "E1.1", **rule: Any
) -> Case:
    named = Rule(name="all", hooks=tuple(one.name for one in hooks), **rule)
    return cases.open_case(id, of or event(), named, hooks, machine, BEGINNING)


def order(
    store: StateStore, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None = None
) -> Run:
    """A run on disk, as the agent orders it."""
    directory = store.hook_directory(case.id, hook.name)
    until = None if left is None else monotonic() + left
    built = build_order(case, hook, stage, attempt, directory, until)
    return store.order(case.id, hook.name, stage, attempt, built)


def done(code: int | None = 0, outcome: Outcome = Outcome.ENDED, ended: float = 0.0) -> Result:
    return Result(outcome=outcome, code=code, ended=ended)


def plan(
    cases_with_runs: Iterable[CaseProgress],
    now: World,
    all_ready: Mapping[str, datetime] = MappingProxyType({}),
    *,
    blind: bool = False,
) -> steps.Plan:
    """As an agent that was just started."""
    planner = Planner()
    for progress in cases_with_runs:
        planner.update(progress)
    return planner.plan(now, all_ready, blind=blind)


class AgentWorld:
    """Cases and their runs, as the agent would have them on disk."""

    def __init__(self, *every: Case, roll: Callable[[str], str] = lambda _: "good") -> None:
        self.cases = {case.id: case for case in every}
        self.runs: dict[str, list[Run]] = {case.id: [] for case in every}
        self.now = BEGINNING
        self.guard = 1_000.0
        self.number = 0
        self.roll = roll
        self.orders: list[tuple[str, str, str]] = []  # case, stage, hook
        self.approved: list[str] = []
        self.all_ready: dict[str, datetime] = {}
        self._planner = Planner()
        self._planned: dict[str, CaseProgress] = {}

    # What happens outside

    def add(self, case: Case) -> None:
        self.cases[case.id] = case
        self.runs[case.id] = []

    def wind(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.guard += seconds

    def start(self, id: str) -> None:
        case = self.cases[id]
        if not case.over:
            started = msgspec.structs.replace(case.event, status="Started", not_before=None)
            self.cases[id] = cases.update_event(case, started, self.now)

    def gone(self, id: str) -> None:
        self.cases[id] = cases.end_event(self.cases[id], self.now)

    def end_a_run(self) -> None:
        """As the dice say; the first that is at work."""
        for id, runs in self.runs.items():
            for index, run in enumerate(runs):
                if run.state == RunState.RUNNING:
                    self.runs[id][index] = self._ended(run, self.roll(run.stage))
                    return

    def crash(self) -> None:
        """The machine dies, and comes back: nobody knows what became of what was at work."""
        for runs in self.runs.values():
            runs[:] = [
                msgspec.structs.replace(run, state=RunState.LOST)
                if run.state == RunState.RUNNING
                else run
                for run in runs
            ]
        self.guard = 1_000.0

    def _ended(self, run: Run, how: str) -> Run:
        result = {
            "good": done(0, ended=self.guard),
            "bad": done(1, ended=self.guard),
            "late": done(-9, Outcome.TIMED_OUT, self.guard),
            "absent": done(None, Outcome.NOT_STARTED, self.guard),
        }[how]
        return msgspec.structs.replace(run, state=RunState.DONE, result=result)

    # What the agent does about it

    def cases_with_runs(self) -> list[CaseProgress]:
        return [CaseProgress(case, tuple(self.runs[id])) for id, case in self.cases.items()]

    def plan(self) -> steps.Plan:
        return plan(self.cases_with_runs(), World(self.now, self.guard), self.all_ready)

    def _next_steps(self) -> tuple[steps.Step, ...]:
        """By a planner that was there all the time, which has to find what a new one finds."""
        now = World(self.now, self.guard)
        for progress in self.cases_with_runs():
            if self._planned.get(progress.case.id) != progress:
                self._planned[progress.case.id] = progress
                self._planner.update(progress)
        found = self._planner.plan(now, self.all_ready).steps
        assert found == self.plan().steps
        return found

    def turn(self, starts: bool = True) -> bool:
        """One turn of the agent; whether it did anything. Without `starts` it dies between having
        ordered something and having started it."""
        did = False
        for step in self._next_steps():
            did = True
            self._look_at(step)
            runs = self.runs[step.case]
            case = self.cases[step.case]
            match step:
                case Order(hook=hook, stage=stage, attempt=attempt):
                    self.number += 1
                    state = RunState.RUNNING if starts else RunState.ORDERED
                    runs.append(
                        Run(
                            number=self.number,
                            hook=hook.name,
                            stage=stage,
                            attempt=attempt,
                            state=state,
                        )
                    )
                    self.orders.append((case.id, stage, hook.name))
                case steps.Start(run=run):
                    runs[runs.index(run)] = msgspec.structs.replace(run, state=RunState.RUNNING)
                case steps.Cancel(run=run):
                    result = done(None, Outcome.CANCELLED, self.guard)
                    runs[runs.index(run)] = msgspec.structs.replace(
                        run, state=RunState.DONE, result=result
                    )
                case steps.Stop(run=run):
                    result = done(-15, Outcome.STOPPED, self.guard)
                    runs[runs.index(run)] = msgspec.structs.replace(
                        run, state=RunState.DONE, result=result
                    )
                case steps.Approve():
                    self.approved.append(case.id)
                    self.cases[case.id] = msgspec.structs.replace(case, approved=self.now)
                case steps.ReportReady():
                    self.cases[case.id] = msgspec.structs.replace(case, ready=self.now)
                case steps.CheckReadiness():
                    self.all_ready[case.id] = self.now
                    del self._planned[case.id]  # as the answer of an errand
                case steps.Close():
                    self.cases[case.id] = msgspec.structs.replace(case, closed=self.now)
        return did

    def to_the_end(self) -> None:
        """Everything is over, every command ends, and all pauses pass."""
        for id in self.cases:
            self.gone(id)
        for _ in range(2_000):
            if not any(case.open for case in self.cases.values()):
                return
            if not self.turn():
                self.end_a_run()
                self.guard += MAX_UNDO_PAUSE
        raise AssertionError(f"never closed: {self.cases_with_runs()}")

    # What was promised

    def _look_at(self, step: steps.Step) -> None:
        progress = next(
            progress for progress in self.cases_with_runs() if progress.case.id == step.case
        )
        case = progress.case
        match step:
            case Order():
                self._look_at_order(progress, step)
            case steps.Start(run=run, left=left) if run.stage == "prepare":
                assert not case.started
                assert not case.over
                assert left is None or left >= planning.LEAST
            case steps.Approve():
                assert not case.started
                assert not case.over
                assert not case.approved
                assert case.not_before is None or self.now < case.not_before
                if case.rule.approve != "user-at-once":
                    assert all(
                        any(run.succeeded for run in progress.runs_of(hook.name, "prepare"))
                        for hook in case.hooks
                        if hook.has("prepare")
                    ), "approved while something is not prepared"
                    assert not any(run.active for run in progress.runs)
            case steps.Close():
                for hook, _ in planning.prepared(progress):
                    undos = progress.runs_of(hook.name, "undo")
                    assert undos, f"{hook.name} was never undone"

    def _look_at_order(self, progress: CaseProgress, order: Order) -> None:
        case, name = progress.case, order.hook.name
        for other in self.cases_with_runs():
            assert not any(run.active and run.hook == name for run in other.runs), "at once"
        assert not any(run.active for run in progress.runs), "two commands of one case at once"
        assert not any(run.succeeded for run in progress.runs_of(name, order.stage)), "done already"
        match order.stage:
            case "announced":
                begins = planning.preparation_start(case)
                assert begins is not None
                assert order.left is not None
                assert self.now + timedelta(seconds=order.left) <= begins
                assert not progress.runs_of(name, "prepare")
            case "prepare":
                assert not case.started
                assert not case.over
                if case.not_before is not None:
                    assert order.left is not None
                    assert order.left >= planning.LEAST
                    ends = self.now + timedelta(seconds=min(order.left, order.hook.timeout))
                    assert ends <= case.not_before - timedelta(seconds=planning.MARGIN)
            case "started":
                assert case.started
                assert not case.over
            case "undo":
                assert case.over
                self._look_at_undo(progress, order.hook)
            case over:
                assert case.over == over

    def _look_at_undo(self, progress: CaseProgress, hook: Hook) -> None:
        """In reverse, within one event and between those that share a hook."""
        begun = {one.name: number for one, number in planning.prepared(progress)}
        assert hook.name in begun, "nothing to undo"
        own = begun[hook.name]
        for other in self.cases_with_runs():
            for later, number in planning.prepared(other):
                alike = later.name == hook.name and own != planning.ANNOUNCED and is_ordered(hook)
                if number > own and (alike or other is progress):
                    undos = other.runs_of(later.name, "undo")
                    assert undos, f"{later.name} is to be undone first"
                    assert not undos[-1].active
