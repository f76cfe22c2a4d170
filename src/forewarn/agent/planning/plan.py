"""The next steps of one case, derived from its current state. Pure: a case, its runs and the time
in, steps out. Nothing is remembered here, so a restart changes nothing. Which of many cases have to
be evaluated is decided by `planner.py`.

Of one case one command runs at a time; of one hook, too, whatever the number of cases. Where two
events have prepared the same hook, the later one is undone first, so that each undo finds what its
own prepare left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from datetime import datetime, timedelta

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.planning.attempts import AttemptSummary, standing
from forewarn.agent.planning.steps import (
    Approve,
    AskReady,
    Cancel,
    CaseWithRuns,
    Close,
    Now,
    Order,
    Overdue,
    Plan,
    SayReady,
    Start,
    Step,
    Stop,
)
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run, State

MARGIN = 2.0  # seconds before NotBefore at which every prepare has ended; clocks tell whole seconds
LEAST = 1.0  # seconds; with less left than this a prepare is not begun
OVERDUE = 10.0  # seconds after its time limit at which a command that still runs is reported
TAKE_OVER = timedelta(seconds=5)  # between one listed machine's turn to approve and the next one's


def prepared(story: CaseWithRuns) -> list[tuple[Hook, int]]:
    """Hooks with something to undo, the one that was prepared last first, with the number of the
    run that did it. Whatever may have done something counts, also what failed half-way."""
    found = []
    for hook in story.case.hooks:
        numbers = [run.number for run in story.of(hook.name, "prepare") if run.touched]
        if numbers and hook.has("undo"):
            found.append((hook, numbers[0]))
    return sorted(found, key=lambda pair: -pair[1])


def given_up(story: CaseWithRuns) -> list[str]:
    """Hooks that are prepared, and whose undo is not tried any more."""
    return [
        hook.name
        for hook, _ in prepared(story)
        if standing(story.of(hook.name, "undo"), hook, "undo").given_up
    ]


def undone(story: CaseWithRuns, hook: Hook) -> bool:
    return standing(story.of(hook.name, "undo"), hook, "undo").settled


def next_steps(
    story: CaseWithRuns,
    now: Now,
    busy: Set[str] = frozenset(),
    held: Set[str] = frozenset(),
    all_ready: datetime | None = None,
) -> Plan:
    """Return the next steps. `busy` are hooks that are at work for any case, `held` those that
    another event has prepared later and not yet undone. `all_ready` says since when all machines
    of the event are known to be ready."""
    case = story.case
    if not case.open:
        return Plan()
    if at_work := [run for run in story.runs if run.active]:
        going_on = tuple(step for run in at_work for step in _going_on(case, run, now))
        overdue = [at for run in at_work if (at := overdue_at(run)) and at > now.guard]
        return Plan(going_on, wake=_turns_pointless(case, now), rest=min(overdue, default=None))
    if case.over:
        return _after(story, now, busy, held)
    if case.started:
        return _stages(story, case.hooks, "started", now, busy) or Plan()
    return _before(story, now, busy, all_ready)


def _turns_pointless(case: Case, now: Now) -> datetime | None:
    """Return when it becomes pointless to start a prepare, or after that, to let one go on."""
    if case.not_before is None:
        return None
    too_late = case.not_before - timedelta(seconds=MARGIN + LEAST) + timedelta(microseconds=1)
    return next((at for at in (too_late, case.not_before) if now.service < at), None)


def overdue_at(run: Run) -> float | None:
    """Return when a run is to be reported as overdue; None if it is not at work."""
    return None if run.deadline is None or not run.active else run.deadline + OVERDUE


def _going_on(case: Case, run: Run, now: Now) -> Iterator[Step]:
    left = _left(case, now) if run.stage == "prepare" else None
    pointless = run.stage == "prepare" and (
        case.over
        or _passed(case, now)  # its runner goes by a clock that may have stood still meanwhile
        or (run.state == State.ORDERED and (case.started or _too_late(left)))
    )
    if run.state == State.ORDERED:
        yield Cancel(case.id, run) if pointless else Start(case.id, run, left)
        return
    if pointless:
        yield Stop(case.id, run)
    if (overdue := overdue_at(run)) is not None and now.guard >= overdue:
        yield Overdue(case.id, run)


def _passed(case: Case, now: Now) -> bool:
    return case.not_before is not None and now.service >= case.not_before


def _left(case: Case, now: Now) -> float | None:
    """Seconds that a prepare may take; None if nobody has said when the event starts."""
    if case.not_before is None:
        return None
    return (case.not_before - now.service).total_seconds() - MARGIN


def _too_late(left: float | None) -> bool:
    return left is not None and left < LEAST


# Scheduled: prepare, then approve.


def _before(story: CaseWithRuns, now: Now, busy: Set[str], all_ready: datetime | None) -> Plan:
    case = story.case
    at_once = Plan()
    if case.rule.approve == "user-at-once" and case.event.source == "User":
        at_once = _approval(case, now)
    if (due := begins(case)) and now.service < due:
        return Plan(at_once.steps, wake=due)
    left = _left(case, now)
    for hook in case.hooks:
        if not hook.has("prepare"):
            continue
        stands = standing(story.of(hook.name, "prepare"), hook, "prepare")
        if stands.good:
            continue
        if stands.settled:
            if hook.if_it_fails == "stop":
                return at_once
            continue
        if _too_late(left):
            return at_once
        if hook.name in busy:
            return Plan(at_once.steps, waits=(hook.name,))
        if now.guard < stands.not_until:
            return Plan(at_once.steps, rest=stands.not_until)
        order = Order(case.id, hook, "prepare", stands.attempts + 1, left)
        return Plan((*at_once.steps, order))
    if at_once.steps or not prepared_well(story):
        return at_once
    if case.rule.approve == "when-done":
        return _approval(case, now)
    if case.rule.approve == "coordinated":
        return _together(case, now, all_ready)
    return Plan()


def begins(case: Case) -> datetime | None:
    """When preparing is to begin; None: at once."""
    if case.rule.lead is None or case.not_before is None:
        return None
    return case.not_before - timedelta(seconds=case.rule.lead)


def prepared_well(story: CaseWithRuns) -> bool:
    """Whether all that was to be prepared is, without a failure."""
    return all(
        standing(story.of(hook.name, "prepare"), hook, "prepare").good
        for hook in story.case.hooks
        if hook.has("prepare")
    )


def _approval(case: Case, now: Now) -> Plan:
    return Plan() if case.approved or _passed(case, now) else Plan((Approve(case.id),))


def _together(case: Case, now: Now, all_ready: datetime | None) -> Plan:
    if case.approved or _passed(case, now):
        return Plan()
    if case.mine and case.ready is None:
        return Plan((SayReady(case.id),))
    if all_ready is None:
        return Plan((AskReady(case.id),))
    turn = all_ready + turn_of(case) * TAKE_OVER
    return _approval(case, now) if now.service >= turn else Plan(wake=turn)


def turn_of(case: Case) -> int:
    """The first machine that is listed approves; the next one if it does not, and so on. Those
    that are not listed come last."""
    listed = case.event.resources
    return listed.index(case.machine) if case.machine in listed else len(listed)


# Over: put everything back, then tell.


def _after(story: CaseWithRuns, now: Now, busy: Set[str], held: Set[str]) -> Plan:
    case = story.case
    assert case.over
    waits = False
    for hook, _ in prepared(story):
        stands = standing(story.of(hook.name, "undo"), hook, "undo")
        if stands.settled:
            continue
        if hook.name in held:
            waits = True
            break
        if (paused := _paused(stands, hook, now, busy)) is not None:
            return paused
        return Plan((Order(case.id, hook, "undo", stands.attempts + 1, None),))
    if (telling := _stages(story, case.hooks, case.over, now, busy)) is not None:
        return telling
    return Plan() if waits else Plan((Close(case.id),))


def _stages(
    story: CaseWithRuns, hooks: Sequence[Hook], stage: Stage, now: Now, busy: Set[str]
) -> Plan | None:
    """One hook after the other; None when all have had their turn."""
    for hook in hooks:
        if not hook.has(stage):
            continue
        stands = standing(story.of(hook.name, stage), hook, stage)
        if stands.settled:
            continue
        if (paused := _paused(stands, hook, now, busy)) is not None:
            return paused
        return Plan((Order(story.case.id, hook, stage, stands.attempts + 1, None),))
    return None


def _paused(stands: AttemptSummary, hook: Hook, now: Now, busy: Set[str]) -> Plan | None:
    if hook.name in busy:
        return Plan(waits=(hook.name,))
    if now.guard < stands.not_until:
        return Plan(rest=stands.not_until)
    return None
