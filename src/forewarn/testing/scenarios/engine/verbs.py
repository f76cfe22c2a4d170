"""Carrying out one step of a timeline, as an operator of the service would.

Runs in the service's loop, and returns the events that were raised or the refusal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from forewarn.core import EventType, Refused
from forewarn.core.events import UNKNOWN_DURATION
from forewarn.core.labels import parse as parse_selector
from forewarn.core.refusal import conflict
from forewarn.core.rollouts.model import prefix
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import Duration
from forewarn.node import Node
from forewarn.service.engine.clock import AWAY, VirtualClock
from forewarn.service.platform.hosts import MAINTENANCE_MODES
from forewarn.service.platform.platform import Outcome, Outcomes
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.support.text import parse_duration
from forewarn.testing.scenarios.engine import schedule_verb
from forewarn.testing.scenarios.file import timeline_shapes
from forewarn.testing.scenarios.model import Step

BY = schedule_verb.BY


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of what a step has raised or started."""

    events: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fault: str = ""
    rollout: str = ""


async def do(
    node: Node,
    step: Step,
    events: Sequence[str],
    paced: Callable[[Duration], Duration],
    faults: Sequence[str] = (),
) -> StepOutcome | Refused:
    """Carry out a step. `events` and `faults` are the ids of those that it refers to."""
    verb = _VERBS.get(step.verb)
    if verb is not None:
        return _done(await verb(node, step.entry))
    match step.verb:
        case "cancel" | "approve" | "finish":
            return await _apply_to_each(node, step.verb, events)
        case "rollout":
            return await _rollout(node, step.entry)
        case "fault":
            return _fault(node, step.entry, paced)
        case "clear-faults":
            return _clear(node, faults, clear_all=not step.entry.fault)
        case "interrupt":
            return await _interrupt(node, step.entry)
        case "disable":
            outcome = await node.platform.disable(step.entry.group, BY)
            return outcome if isinstance(outcome, Refused) else StepOutcome()
        case "restore":
            notes = await node.platform.restore(step.entry.machine, BY)
            return notes if isinstance(notes, Refused) else StepOutcome(notes=notes)
        case _:
            return StepOutcome()


def _done(outcome: Outcome | Outcomes | Refused) -> StepOutcome | Refused:
    if isinstance(outcome, Refused):
        return outcome
    events = (outcome.event,) if isinstance(outcome, Outcome) else outcome.events
    return StepOutcome(events=tuple(event.id for event in events), notes=outcome.notes)


def _evict(node: Node, entry: timeline_shapes.Evict) -> Awaitable[Outcome | Outcomes | Refused]:
    if entry.group:
        return node.removals.evict_all(entry.group, BY)
    return node.removals.evict(entry.machine, BY)


def _fail(node: Node, entry: timeline_shapes.Fail) -> Awaitable[Outcome | Outcomes | Refused]:
    if entry.host:
        return node.hosts.fail(entry.host, BY, type=EventType(entry.type))
    return node.removals.fail(entry.machine, EventType(entry.type), BY)


def _maintain(node: Node, entry: timeline_shapes.Maintain) -> Awaitable[Outcomes | Refused]:
    return node.hosts.maintain(
        entry.host,
        MAINTENANCE_MODES[entry.type],
        BY,
        evacuate=entry.evacuate,
        notice=_duration(entry.notice),
        short_notice=entry.short_notice,
        description=entry.description,
        duration=entry.duration,
    )


_VERBS: dict[str, Callable[[Node, Any], Awaitable[Outcome | Outcomes | Refused]]] = {
    "restart": lambda node, entry: node.platform.user_maintenance(
        entry.machine, EventType.REBOOT, BY
    ),
    "redeploy": lambda node, entry: node.platform.user_maintenance(
        entry.machine, EventType.REDEPLOY, BY
    ),
    "evict": _evict,
    "delete": lambda node, entry: node.removals.delete(entry.machine, BY),
    "scale-in": lambda node, entry: node.removals.scale_in(
        entry.group, BY, count=entry.count, to=entry.to
    ),
    "fail": _fail,
    "degrade": lambda node, entry: node.hosts.degrade(
        entry.host, BY, notice=parse_duration(str(entry.notice))
    ),
    "repair": lambda node, entry: node.hosts.repair(entry.host, BY),
    "maintain": _maintain,
    "schedule": schedule_verb.schedule,
}


async def _apply_to_each(node: Node, verb: str, ids: Sequence[str]) -> StepOutcome | Refused:
    """Apply a verb to each of these events that is not over."""
    notes: list[str] = []
    if not ids:
        return conflict("the event that it refers to was never raised")
    for id in ids:
        event = await node.platform.event(id)  # read again: events of one host change together
        if isinstance(event, Refused) or event.status.over:
            continue
        if verb == "cancel":
            outcome = await node.platform.cancel(event.id, BY)
        elif verb == "approve":
            outcome = await node.platform.approve(event.id, BY)
        else:
            outcome = await node.platform.finish(event.id, BY, "finished by the scenario")
        if isinstance(outcome, Refused):
            return outcome
        notes += outcome.notes
    return StepOutcome(notes=tuple(dict.fromkeys(notes)))


async def _rollout(node: Node, entry: timeline_shapes.Rollout) -> StepOutcome | Refused:
    try:
        labels = tuple(parse_selector(text) for text in entry.labels)
    except ValueError as error:
        return conflict(str(error))
    report = await node.rollouts.start(
        RolloutRequest(
            type=EventType(entry.type),
            selection=Selection(
                groups=tuple(entry.groups), labels=labels, hosts=tuple(entry.hosts)
            ),
            by=BY,
            notice=_duration(entry.notice),
            short_notice=entry.short_notice,
            description=entry.description or "",
            duration=UNKNOWN_DURATION if entry.duration is None else entry.duration,
            at_once=entry.at_once,
            bake=parse_duration(str(entry.bake)),
        )
    )
    return report if isinstance(report, Refused) else StepOutcome(rollout=report.rollout.id)


def raised_by(node: Node, rollout: str) -> tuple[str, ...]:
    """Return the ids of the active events that a rollout has raised."""
    active = node.platform.active()
    return tuple(event.id for event in active if event.cause.startswith(prefix(rollout)))


def is_in_progress(node: Node, id: str) -> bool:
    rollout = node.store.registry.rollouts.get(id)
    return rollout is not None and rollout.ended_at is None


def _fault(
    node: Node, entry: timeline_shapes.FaultEntry, paced: Callable[[Duration], Duration]
) -> StepOutcome | Refused:
    added = node.faults.add(timeline_shapes.fault(entry, paced), BY)
    return added if isinstance(added, Refused) else StepOutcome(fault=added.fault.id)


def _clear(node: Node, faults: Sequence[str], *, clear_all: bool) -> StepOutcome | Refused:
    if clear_all:
        node.faults.clear()
        return StepOutcome()
    for id in faults:
        removed = node.faults.clear(id)
        if isinstance(removed, Refused):
            return removed
    return StepOutcome()


async def _interrupt(node: Node, entry: timeline_shapes.Interrupt) -> StepOutcome | Refused:
    if not isinstance(node.clock, VirtualClock):
        return conflict("only a virtual clock can be interrupted; use --clock virtual")
    node.clock.interrupt(AWAY, parse_duration(str(entry.lost)))
    await node.ledger.idle()
    return StepOutcome()


def _duration(text: str | float | None) -> Duration | None:
    return None if text is None else parse_duration(str(text))
