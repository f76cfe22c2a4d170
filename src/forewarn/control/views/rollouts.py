"""Conversion of rollouts to the types of the control API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from forewarn.control.schema import rollouts as r
from forewarn.control.views import core
from forewarn.control.views.shape import moment, seconds, view
from forewarn.core.fleet import DOMAINS, domain_name
from forewarn.core.rollouts.forecast import Forecast, Planned
from forewarn.core.rollouts.model import Lane, Step, Switch
from forewarn.core.rollouts.progress import StepProgress
from forewarn.core.rollouts.summary import WaitGroup, by_reason, steps_by_state
from forewarn.core.time import Time
from forewarn.service.rollouts.request import Draft
from forewarn.service.rollouts.rollouts import (
    ExplainedWait,
    RolloutExplanation,
    RolloutReport,
    RolloutSummary,
)

R = TypeVar("R", bound=r.Rollout)
W = TypeVar("W", bound=r.Wait)

SHOWN_EVENTS = 100  # of a rollout, in its report


def rollout(summary: RolloutSummary) -> r.Rollout:
    return _rollout(r.Rollout, summary)


def report(report: RolloutReport, expected_end: Time | None = None) -> r.RolloutReport:
    active = (event.id for lane in report.next.lanes for event in lane.active)
    return _rollout(
        r.RolloutReport,
        report.summary,
        wave=report.next.wave + 1,
        steps_by_state={
            state.value: count for state, count in steps_by_state(report.next.lanes).items()
        },
        steps_failed=sum(len(lane.failures) for lane in report.next.lanes),
        active=list(islice(active, SHOWN_EVENTS)),
        waits=[_wait(r.Wait, group) for group in by_reason(report.next.waits)],
        expected_end=moment(expected_end),
    )


def steps(report: RolloutReport) -> Iterator[r.Step]:
    """Yield the steps of a rollout, in the order of the rollout."""
    number = 0
    for lane in report.next.lanes:
        for progress in lane.steps:
            number += 1
            yield _step(number, lane.lane, progress)


def explanation(explanation: RolloutExplanation) -> r.RolloutExplanation:
    return r.RolloutExplanation(
        rollout=rollout(explanation.report.summary),
        message=explanation.message,
        waits=[_explained_wait(wait) for wait in explanation.waits],
    )


def plan(
    draft: Draft, forecast: Forecast, wanted: Callable[[Planned], bool], limit: int
) -> r.RolloutPlan:
    """Return the sums of a plan, and the first `limit` of the wanted steps."""
    rollout, planned = draft.rollout, forecast.steps
    numbers = {step.cause: number for number, step in enumerate(rollout.steps, 1)}
    waves = {lane.name: lane.wave for lane in rollout.lanes}

    def view(step: Planned) -> r.Planned:
        targets = draft.targets.get(step.step.cause, {})
        return _planned(step, numbers[step.step.cause], waves[step.lane], targets)

    last = max(planned, key=lambda step: step.ends_at, default=None)
    problem = draft.problem
    return r.RolloutPlan(
        type=rollout.kind,
        selection=rollout.selection,
        zone=rollout.windows[0].zone if rollout.windows else "UTC",
        machines=rollout.size.machines,
        groups=rollout.size.groups,
        hosts=rollout.size.hosts,
        waves=list(Counter(lane.wave for lane in rollout.lanes).values()),
        pauses=len(rollout.pause_after),
        steps_total=len(planned),
        steps_skipped=len(rollout.skipped),
        first=view(planned[0]) if planned else None,
        last=None if last is None else view(last),
        done_at=moment(forecast.done_at),
        message=forecast.message,
        unreachable=list(draft.unreachable),
        nowhere=[
            name
            for targets in draft.targets.values()
            for name, target in targets.items()
            if not target
        ],
        conflicts=[
            r.Conflict(
                host=conflict.host,
                group=conflict.group,
                machines={domain_name(domain): list(names) for domain, names in conflict.machines},
            )
            for conflict in draft.conflicts
        ],
        problem="" if problem is None else problem.message,
        steps=[view(step) for step in islice(filter(wanted, planned), limit)],
    )


def _planned(planned: Planned, number: int, wave: int, targets: Mapping[str, str]) -> r.Planned:
    return view(
        r.Planned,
        planned,
        planned.step,
        number=number,
        wave=wave + 1,
        update_domain=_domain(planned.step),
        targets=dict(targets),
    )


def _domain(step: Step) -> int | None:
    return step.domain % DOMAINS if step.split or not step.host else None


def _rollout(shape: type[R], summary: RolloutSummary, **others: Any) -> R:
    rollout = summary.rollout
    return view(
        shape,
        rollout,
        summary,
        rollout.size,
        type=rollout.kind,
        steps_done=summary.steps_over,
        steps_total=len(rollout.steps),
        notice=seconds(rollout.event_notice),
        windows=[window.text for window in rollout.windows],
        gate=rollout.gate.description if rollout.gate else "",
        gate_timeout=seconds(rollout.gate.timeout) if rollout.gate else None,
        bake=seconds(rollout.bake),
        lasts=seconds(rollout.lasts),
        paused=_switch(rollout.paused),
        resumed=_switch(rollout.resumed),
        aborted=_switch(rollout.aborted),
        **others,
    )


def _explained_wait(explained: ExplainedWait) -> r.WaitExplained:
    details = [
        r.EventHolds(
            event=event.id,
            status=event.status.value,
            message=message,
            holds=[core.hold(hold) for hold in holds],
        )
        for event, holds, message in explained.events
    ]
    return _wait(r.WaitExplained, explained.group, details=details)


def _step(number: int, lane: Lane, progress: StepProgress) -> r.Step:
    step, events = progress.step, progress.events
    started = [event.started_at for event in events if event.started_at is not None]
    return view(
        r.Step,
        progress,
        step,
        number=number,
        lane=lane.name,
        wave=lane.wave + 1,
        failed=progress.failed_at is not None,
        update_domain=_domain(step),
        events=[event.id for event in events],
        not_before=moment(events[0].not_before) if events else None,
        started_at=moment(min(started, default=None)),
        ended_at=moment(progress.ended_at) if events and progress.state.over else None,
    )


def _wait(shape: type[W], group: WaitGroup, **others: Any) -> W:
    lanes = [example.lane for example in group.examples if example.lane]
    return view(shape, group.examples[0], lanes=lanes, count=group.count, **others)


def _switch(switch: Switch | None) -> r.Switch | None:
    return None if switch is None else view(r.Switch, switch, reason=switch.why)
