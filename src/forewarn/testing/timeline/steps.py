"""What the service's own lines add to a timeline: the fleet, steps of events, and outages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.support.text import listing
from forewarn.testing.timeline.kept import KeptEvent
from forewarn.testing.timeline.memory import TimelineMemory
from forewarn.testing.timeline.values import Impact
from forewarn.traces import lines


def fleet(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    del t
    memory.fleet = True
    memory.addresses.clear()
    missed = 0
    for key, said in lines.mapping(line.get("machines")).items():
        facts, name = lines.mapping(said), lines.name(key)
        lane = memory.lane(name)
        if lane is None:
            missed += bool(name)
            continue
        lane.group = lines.name(facts.get("group"))
        domain = lines.number(facts.get("update_domain"))
        lane.domain = "" if domain is None else f"{domain:g}"
        for address in lines.names(facts.get("addresses")):
            memory.addresses[address] = name
    memory.unheard = max(memory.unheard, missed)


def event(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    id, move = lines.name(line.get("event")).upper(), lines.name(line.get("move"))
    if not id:
        return
    kept = memory.event(id)
    kept.told = True
    kept.type = lines.name(line.get("type")) or kept.type
    kept.source = lines.name(line.get("source")) or kept.source
    kept.group = lines.name(line.get("group")) or kept.group
    kept.machines = lines.names(line.get("machines")) or kept.machines
    not_before = lines.instant(line.get("not_before"))
    kept.not_before = kept.not_before if not_before is None else not_before
    for name in kept.machines:
        lane = memory.lane(name)
        if lane is not None and not lane.group:
            lane.group = kept.group
    if kept.visible is None and (line.get("listed") is True or move == "list"):
        kept.visible = t
        if move in ("raise", "list"):
            memory.say(t, f"{memory.name(kept)} is announced")
    if move in ("start", "strike") and kept.started is None:
        kept.started = t
        how = "strikes without warning" if move == "strike" else "has started"
        memory.say(t, f"{memory.name(kept)} {how}{_approver(kept, line, t)}")
    if move in ("finish", "withdraw"):
        memory.over(kept, "finished" if move == "finish" else "withdrawn", t)


def _approver(kept: KeptEvent, line: Mapping[str, Any], t: float) -> str:
    """Who let it start, if that is news: the approval itself may be told only after this."""
    by = lines.name(line.get("approved_by"))
    if not by or kept.approved is not None:
        return ""
    at = lines.instant(line.get("approved"))
    kept.approved, kept.approved_by = t if at is None else min(at, t), by
    return f": {by} approved it"


def approval(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    memory.approved(
        lines.name(line.get("event")).upper(), lines.name(line.get("by")) or "operator", t, None
    )


def impact(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    id = lines.name(line.get("event")).upper()
    if not id:
        return
    kept = memory.event(id)
    kept.type = kept.type or lines.name(line.get("type"))
    machines = lines.names(line.get("machines"))
    kept.machines = kept.machines or machines
    for name in machines:
        memory.lane(name)
    seconds = lines.number(line.get("seconds")) or 0.0
    kept.struck(Impact(t, machines, min(max(seconds, 0.0), lines.LAST - t)))
    memory.say(t, f"{kept.type or 'an event'} is done to {listing(machines)}")


def unannounced(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    """Carried out, and shown to nobody: all there is of it is when."""
    id = lines.name(line.get("event")).upper()
    if not id:
        return
    kept = memory.event(id)
    known, kept.told = kept.told, True
    kept.type = lines.name(line.get("type")) or kept.type
    kept.source = lines.name(line.get("source")) or kept.source
    kept.group = lines.name(line.get("group")) or kept.group
    kept.machines = lines.names(line.get("machines")) or kept.machines
    for name in kept.machines:
        memory.lane(name)
    kept.started = t if kept.started is None else kept.started
    if not known:
        memory.say(t, f"{memory.name(kept)} begins, unannounced")


def over(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    kept = memory.events.get(lines.name(line.get("event")).upper())
    if kept is not None:
        memory.over(kept, "finished", t)


def down(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    del line
    memory.down = t


def up(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    """A killed service says nothing; then it was away since it was last heard of."""
    del line
    since = memory.now if memory.down is None else memory.down
    if memory.ups and since < t:
        memory.gone(since, t, "the service was away")
    memory.ups += 1
    memory.down = None


def step(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    seconds = lines.number(line.get("seconds")) or 0.0
    start = lines.instant(t - max(seconds, 0.0)) or 0.0
    memory.gone(start, t, f"the clock was stepped by {seconds:+g} s, or nobody served")


def disabled(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    memory.say(t, f"group {lines.name(line.get('group'))} stopped listening")


def end(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    """The recording is whole; there is nothing to add to it."""
