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
from forewarn.core.rollouts.lanes import Selection
from forewarn.core.rollouts.model import prefix
from forewarn.core.time import Duration
from forewarn.node import Node
from forewarn.service.engine.clock import VirtualClock
from forewarn.service.platform.hosts import MaintenanceMode
from forewarn.service.platform.platform import Outcome, Outcomes
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.support.text import parse_duration
from forewarn.testing.scenarios.engine import schedule_verb
from forewarn.testing.scenarios.file import timeline_shapes as d
from forewarn.testing.scenarios.model import Step

BY = schedule_verb.BY


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a step brought about."""

    events: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fault: str = ""
    rollout: str = ""


async def do(
    node: Node,
    step: Step,
    named: Sequence[str],
    paced: Callable[[Duration], Duration],
    faults: Sequence[str] = (),
) -> Done | Refused:
    """Carry out a step. `named` are the events that it is about, `faults` the faults."""
    verb = _VERBS.get(step.verb)
    if verb is not None:
        return _done(await verb(node, step.words))
    match step.verb:
        case "cancel" | "approve" | "finish":
            return await _each(node, step.verb, named)
        case "rollout":
            return await _rollout(node, step.words)
        case "fault":
            return _fault(node, step.words, paced)
        case "clear-faults":
            return _clear(node, faults, all_of_them=not step.words.fault)
        case "interrupt":
            return await _interrupt(node, step.words)
        case "disable":
            done = await node.platform.disable(step.words.group, BY)
            return done if isinstance(done, Refused) else Done()
        case "restore":
            notes = await node.platform.restore(step.words.machine, BY)
            return notes if isinstance(notes, Refused) else Done(notes=notes)
        case _:
            return Done()


def _done(outcome: Outcome | Outcomes | Refused) -> Done | Refused:
    if isinstance(outcome, Refused):
        return outcome
    events = (outcome.event,) if isinstance(outcome, Outcome) else outcome.events
    return Done(events=tuple(event.id for event in events), notes=outcome.notes)


def _evict(node: Node, words: d.Evict) -> Awaitable[Outcome | Outcomes | Refused]:
    if words.group:
        return node.removals.evict_all(words.group, BY)
    return node.removals.evict(words.machine, BY)


def _fail(node: Node, words: d.Fail) -> Awaitable[Outcome | Outcomes | Refused]:
    if words.host:
        return node.hosts.fail(words.host, BY)
    return node.removals.fail(words.machine, EventType(words.type), BY)


def _maintain(node: Node, words: d.Maintain) -> Awaitable[Outcomes | Refused]:
    return node.hosts.maintain(
        words.host,
        MaintenanceMode(words.type),
        BY,
        evacuate=words.evacuate,
        notice=_length(words.notice),
        short_notice=words.short_notice,
        description=words.description,
        duration=words.duration,
    )


_VERBS: dict[str, Callable[[Node, Any], Awaitable[Outcome | Outcomes | Refused]]] = {
    "restart": lambda node, words: node.platform.user_maintenance(
        words.machine, EventType.REBOOT, BY
    ),
    "redeploy": lambda node, words: node.platform.user_maintenance(
        words.machine, EventType.REDEPLOY, BY
    ),
    "evict": _evict,
    "delete": lambda node, words: node.removals.delete(words.machine, BY),
    "scale-in": lambda node, words: node.removals.scale_in(
        words.group, BY, count=words.count, to=words.to
    ),
    "fail": _fail,
    "degrade": lambda node, words: node.hosts.degrade(
        words.host, BY, notice=parse_duration(str(words.notice))
    ),
    "repair": lambda node, words: node.hosts.repair(words.host, BY),
    "maintain": _maintain,
    "schedule": schedule_verb.schedule,
}


async def _each(node: Node, verb: str, ids: Sequence[str]) -> Done | Refused:
    """Apply a verb to each of these events that is not over."""
    notes: list[str] = []
    if not ids:
        return conflict("the event it is about was never raised")
    for id in ids:
        event = await node.platform.event(id)  # read again: events of one host change together
        if isinstance(event, Refused) or event.status.over:
            continue
        if verb == "cancel":
            outcome = await node.platform.cancel(event.id, BY)
        elif verb == "approve":
            outcome = await node.platform.approve(event.id, BY)
        else:
            outcome = await node.platform.finish(event.id, BY, "as the scenario says")
        if isinstance(outcome, Refused):
            return outcome
        notes += outcome.notes
    return Done(notes=tuple(dict.fromkeys(notes)))


async def _rollout(node: Node, words: d.Rollout) -> Done | Refused:
    try:
        labels = tuple(parse_selector(text) for text in words.labels)
    except ValueError as error:
        return conflict(str(error))
    report = await node.rollouts.start(
        RolloutRequest(
            type=EventType(words.type),
            selection=Selection(
                groups=tuple(words.groups), labels=labels, hosts=tuple(words.hosts)
            ),
            by=BY,
            notice=_length(words.notice),
            short_notice=words.short_notice,
            description=words.description or "",
            duration=UNKNOWN_DURATION if words.duration is None else words.duration,
            at_once=words.at_once,
            bake=parse_duration(str(words.bake)),
        )
    )
    return report if isinstance(report, Refused) else Done(rollout=report.rollout.id)


def raised_by(node: Node, rollout: str) -> tuple[str, ...]:
    """Return the ids of the active events that a rollout has raised."""
    active = node.platform.active()
    return tuple(event.id for event in active if event.cause.startswith(prefix(rollout)))


def is_rolling(node: Node, id: str) -> bool:
    rollout = node.store.registry.rollouts.get(id)
    return rollout is not None and rollout.ended_at is None


def _fault(
    node: Node, words: d.FaultEntry, paced: Callable[[Duration], Duration]
) -> Done | Refused:
    added = node.faults.add(d.fault(words, paced), BY)
    return added if isinstance(added, Refused) else Done(fault=added.fault.id)


def _clear(node: Node, faults: Sequence[str], *, all_of_them: bool) -> Done | Refused:
    if all_of_them:
        node.faults.clear()
        return Done()
    for id in faults:
        removed = node.faults.clear(id)
        if isinstance(removed, Refused):
            return removed
    return Done()


async def _interrupt(node: Node, words: d.Interrupt) -> Done | Refused:
    if not isinstance(node.clock, VirtualClock):
        return conflict("only time that is virtual can be interrupted; use --clock virtual")
    node.clock.interrupt("the service was away", parse_duration(str(words.lost)))
    await node.ledger.idle()
    return Done()


def _length(length: str | float | None) -> Duration | None:
    return None if length is None else parse_duration(str(length))
