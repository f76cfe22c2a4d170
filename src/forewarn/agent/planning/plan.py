"""The next steps of one case, derived from its current state. Pure: a case, its runs and the time
in, steps out. Nothing is remembered here, so a restart changes nothing. Which of many cases have to
be evaluated is decided by `planner.py`.

Each case runs one command at a time, and so does each hook, whatever the number of cases. Where two
events have prepared the same hook, the later one is undone first, so that each undo finds what its
own prepare left.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import datetime, timedelta

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.planning.attempts import AttemptSummary, summarize
from forewarn.agent.planning.steps import (
    Approve,
    Cancel,
    CaseProgress,
    CheckReadiness,
    Close,
    Order,
    Plan,
    ReportOverdue,
    ReportReady,
    Start,
    Step,
    Stop,
    World,
)
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run, RunState

MARGIN = 2.0  # seconds before NotBefore at which every prepare has ended; times are whole seconds
LEAST = 1.0  # seconds; with less left than this a prepare is not started
ANNOUNCED = 0  # instead of a number, for a hook that was announced an event and not yet prepared
OVERDUE = 10.0  # seconds after its time limit at which a command that still runs is reported
TAKE_OVER = timedelta(seconds=5)  # between one listed machine's turn to approve and the next one's


def prepared(progress: CaseProgress) -> list[tuple[Hook, int]]:
    """Return the hooks that have something to undo, the one that was prepared last first, each with
    the number of the run that prepared it, or ANNOUNCED. One that failed half-way counts too."""
    hooks = []
    for hook in progress.case.hooks:
        runs = progress.runs_of(hook.name, "prepare")
        numbers = [run.number for run in runs if run.may_have_acted]
        if not numbers:
            runs = progress.runs_of(hook.name, "announced")
            numbers = [ANNOUNCED for run in runs if run.may_have_acted]
        if numbers and hook.has("undo"):
            hooks.append((hook, numbers[0]))
    return sorted(hooks, key=lambda pair: -pair[1])


def given_up_undos(progress: CaseProgress) -> list[str]:
    """Return the hooks that are prepared, and whose undo is not tried any more."""
    return [hook.name for hook, _ in prepared(progress) if summary(progress, hook, "undo").given_up]


def summary(progress: CaseProgress, hook: Hook, stage: Stage) -> AttemptSummary:
    return summarize(progress.runs_of(hook.name, stage), hook, stage)


def next_steps(
    progress: CaseProgress,
    now: World,
    busy: Set[str] = frozenset(),
    held: Set[str] = frozenset(),
    all_ready: datetime | None = None,
) -> Plan:
    """Return the next steps. `busy` are hooks that run for any case, `held` those that another
    event has prepared later and not yet undone. `all_ready` says since when all machines of the
    event are known to be ready."""
    case = progress.case
    if not case.open:
        return Plan()
    if active := [run for run in progress.runs if run.active]:
        steps = tuple(step for run in active for step in _steps_of_active(case, run, now))
        overdue = [at for run in active if (at := overdue_at(run)) and at > now.guard]
        return Plan(steps, wake_at=_pointless_at(case, now), retry_at=min(overdue, default=None))
    if case.over:
        return _after(progress, now, busy, held)
    if case.started:
        return _stage(progress, "started", now, busy) or Plan()
    return _before(progress, now, busy, all_ready)


def _pointless_at(case: Case, now: World) -> datetime | None:
    """Return when it becomes pointless to start a prepare, or after that, to let one go on."""
    if case.not_before is None:
        return None
    too_late = case.not_before - timedelta(seconds=MARGIN + LEAST) + timedelta(microseconds=1)
    return next((at for at in (too_late, case.not_before) if now.service < at), None)


def overdue_at(run: Run) -> float | None:
    """Return when a run is to be reported as overdue; None if it is not running."""
    return None if run.deadline is None or not run.active else run.deadline + OVERDUE


def _steps_of_active(case: Case, run: Run, now: World) -> Iterator[Step]:
    left = _seconds_left(case, now, run.stage)
    pointless = run.stage in ("announced", "prepare") and (
        case.over
        or _not_before_passed(case, now)  # the runner's clock may have stood still meanwhile
        or (run.state == RunState.ORDERED and (case.started or _too_late(left)))
    )
    if run.state == RunState.ORDERED:
        yield Cancel(case.id, run) if pointless else Start(case.id, run, left)
        return
    if pointless:
        yield Stop(case.id, run)
    if (overdue := overdue_at(run)) is not None and now.guard >= overdue:
        yield ReportOverdue(case.id, run)


def _not_before_passed(case: Case, now: World) -> bool:
    return case.not_before is not None and now.service >= case.not_before


def _seconds_left(case: Case, now: World, stage: Stage) -> float | None:
    """Return the seconds that a stage may take; None if only its timeout limits it, as where the
    start of the event is unknown."""
    if stage == "announced" and (begins := preparation_start(case)) is not None:
        return (begins - now.service).total_seconds()
    if stage != "prepare" or case.not_before is None:
        return None
    return (case.not_before - now.service).total_seconds() - MARGIN


def _too_late(left: float | None) -> bool:
    return left is not None and left < LEAST


# Scheduled: prepare, then approve.


def _before(progress: CaseProgress, now: World, busy: Set[str], all_ready: datetime | None) -> Plan:
    case = progress.case
    at_once = Plan()
    if case.rule.approve == "user-at-once" and case.event.source == "User":
        at_once = _approval(case, now)
    if (begins := preparation_start(case)) and now.service < begins:
        plan = _stage(progress, "announced", now, busy) or Plan()
        return msgspec.structs.replace(plan, steps=(*at_once.steps, *plan.steps), wake_at=begins)
    left = _seconds_left(case, now, "prepare")
    for hook in case.hooks:
        if not hook.has("prepare"):
            continue
        attempts = summary(progress, hook, "prepare")
        if attempts.succeeded:
            continue
        if attempts.given_up:
            if hook.if_it_fails == "stop":
                return at_once
            continue
        if _too_late(left):
            return at_once
        if hook.name in busy:
            return Plan(at_once.steps, waits_for=(hook.name,))
        if now.guard < attempts.not_until:
            return Plan(at_once.steps, retry_at=attempts.not_until)
        order = Order(case.id, hook, "prepare", attempts.attempts + 1, left)
        return Plan((*at_once.steps, order))
    if at_once.steps or not all_prepared(progress):
        return at_once
    if case.rule.approve == "when-done":
        return _approval(case, now)
    if case.rule.approve == "coordinated":
        return _coordinated_approval(case, now, all_ready)
    return Plan()


def preparation_start(case: Case) -> datetime | None:
    """Return when to begin to prepare; None for at once."""
    if case.rule.lead is None or case.not_before is None:
        return None
    return case.not_before - timedelta(seconds=case.rule.lead)


def all_prepared(progress: CaseProgress) -> bool:
    """Whether every prepare has succeeded."""
    return all(
        summary(progress, hook, "prepare").succeeded
        for hook in progress.case.hooks
        if hook.has("prepare")
    )


def _approval(case: Case, now: World) -> Plan:
    if case.approved or _not_before_passed(case, now):
        return Plan()
    return Plan((Approve(case.id),))


def _coordinated_approval(case: Case, now: World, all_ready: datetime | None) -> Plan:
    if case.approved or _not_before_passed(case, now):
        return Plan()
    if case.mine and case.ready is None:
        return Plan((ReportReady(case.id),))
    if all_ready is None:
        return Plan((CheckReadiness(case.id),))
    turn = all_ready + turn_of(case) * TAKE_OVER
    return _approval(case, now) if now.service >= turn else Plan(wake_at=turn)


def turn_of(case: Case) -> int:
    """Return this machine's turn to approve. The first machine that is listed approves; the next
    one if it does not, and so on. Machines that are not listed come last."""
    listed = case.event.resources
    return listed.index(case.machine) if case.machine in listed else len(listed)


# Over: undo everything, then run the hooks for the end of the event.


def _after(progress: CaseProgress, now: World, busy: Set[str], held: Set[str]) -> Plan:
    case = progress.case
    assert case.over
    waits = False
    for hook, _ in prepared(progress):
        attempts = summary(progress, hook, "undo")
        if attempts.settled:
            continue
        if hook.name in held:
            waits = True
            break
        return _attempt(case, hook, "undo", attempts, now, busy)
    if (plan := _stage(progress, case.over, now, busy)) is not None:
        return plan
    return Plan() if waits else Plan((Close(case.id),))


def _stage(progress: CaseProgress, stage: Stage, now: World, busy: Set[str]) -> Plan | None:
    """Run a stage of one hook after the other; None when all of them are settled."""
    for hook in progress.case.hooks:
        if hook.has(stage) and not (attempts := summary(progress, hook, stage)).settled:
            return _attempt(progress.case, hook, stage, attempts, now, busy)
    return None


def _attempt(
    case: Case, hook: Hook, stage: Stage, attempts: AttemptSummary, now: World, busy: Set[str]
) -> Plan:
    if hook.name in busy:
        return Plan(waits_for=(hook.name,))
    if now.guard < attempts.not_until:
        return Plan(retry_at=attempts.not_until)
    left = _seconds_left(case, now, stage)
    if _too_late(left):
        return Plan()
    return Plan((Order(case.id, hook, stage, attempts.attempts + 1, left),))
