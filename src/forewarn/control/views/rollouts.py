"""Conversion of rollouts to the types of the control API."""

from __future__ import annotations

from typing import Any

from forewarn.control.schema import rollouts as r
from forewarn.control.views import core
from forewarn.core.rollouts.forecast import Forecast
from forewarn.core.rollouts.model import Rollout, Switch
from forewarn.core.rollouts.progress import StepProgress, Wait
from forewarn.core.time import SECOND, Time
from forewarn.service.rollouts.rollouts import (
    ExplainedWait,
    RolloutExplanation,
    RolloutReport,
    RolloutSummary,
)
from forewarn.support.instants import to_datetime


def rollout(summary: RolloutSummary) -> r.Rollout:
    return r.Rollout(**_fields(summary))


def report(report: RolloutReport) -> r.RolloutReport:
    return r.RolloutReport(
        **_fields(report.summary),
        steps=[_step(lane.lane.name, step) for lane in report.next.lanes for step in lane.steps],
        waits=[r.Wait(**_wait(wait)) for wait in report.next.waits],
    )


def explanation(explanation: RolloutExplanation) -> r.RolloutExplanation:
    return r.RolloutExplanation(
        rollout=rollout(explanation.report.summary),
        message=explanation.message,
        waits=[_explained_wait(wait) for wait in explanation.waits],
    )


def plan(rollout: Rollout, forecast: Forecast) -> r.RolloutPlan:
    return r.RolloutPlan(
        type=rollout.type.value,
        selection=rollout.selection,
        zone=rollout.windows[0].zone if rollout.windows else "UTC",
        steps=[
            r.Planned(
                lane=planned.lane,
                machines=list(planned.step.machines),
                update_domain=None if planned.step.host else planned.step.domain,
                host=planned.step.host,
                announced_at=to_datetime(planned.announced_at),
                not_before=to_datetime(planned.not_before),
                ends_at=to_datetime(planned.ends_at),
            )
            for planned in forecast.steps
        ],
        done_at=_time(forecast.done_at),
        omitted=forecast.left_out,
        message=forecast.message,
    )


def _fields(summary: RolloutSummary) -> dict[str, Any]:
    rollout = summary.rollout
    return {
        "id": rollout.id,
        "type": rollout.type.value,
        "state": summary.state,
        "selection": rollout.selection,
        "by": rollout.by,
        "created_at": to_datetime(rollout.created_at),
        "steps_done": summary.steps_over,
        "steps_total": len(rollout.steps),
        "at_once": rollout.at_once,
        "notice": rollout.event_notice / SECOND,
        "description": rollout.description,
        "windows": [window.text for window in rollout.windows],
        "gate": rollout.gate.description if rollout.gate else "",
        "gate_timeout": rollout.gate.timeout / SECOND if rollout.gate else None,
        "bake": rollout.bake / SECOND,
        "paused": _switch(rollout.paused),
        "resumed": _switch(rollout.resumed),
        "aborted": _switch(rollout.aborted),
        "ended_at": _time(rollout.ended_at),
    }


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
    return r.WaitExplained(**_wait(explained.wait), details=details)


def _step(lane: str, progress: StepProgress) -> r.Step:
    step, events = progress.step, progress.events
    started = [event.started_at for event in events if event.started_at is not None]
    return r.Step(
        lane=lane,
        state=progress.state.value,
        machines=list(step.machines),
        update_domain=None if step.host else step.domain,
        host=step.host,
        events=[event.id for event in events],
        not_before=_time(events[0].not_before) if events else None,
        started_at=_time(min(started, default=None)),
        ended_at=_time(progress.ended_at) if events and progress.state.over else None,
    )


def _wait(wait: Wait) -> dict[str, Any]:
    return {
        "kind": wait.kind.value,
        "message": wait.message,
        "since": to_datetime(wait.since),
        "lane": wait.lane,
        "until": _time(wait.until),
        "unblocked_by": wait.unblocked_by,
        "events": list(wait.events),
    }


def _switch(switch: Switch | None) -> r.Switch | None:
    return (
        None
        if switch is None
        else r.Switch(by=switch.by, at=to_datetime(switch.at), reason=switch.why)
    )


def _time(at: Time | None) -> Any:
    return None if at is None else to_datetime(at)
