"""What the service's own lines add to a timeline: the fleet, steps of events, outages, and the
results of scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forewarn.support.text import listing
from forewarn.testing.timeline.memory import TimelineMemory
from forewarn.testing.timeline.records import EventRecord
from forewarn.testing.timeline.values import (
    MAX_EXPECTATIONS,
    MAX_SCENARIOS,
    MAX_SENTENCE,
    Impact,
    ScenarioExpectation,
    ScenarioOutcome,
)
from forewarn.traces import lines
from forewarn.traces.courses import FINISHED, id_of


def fleet(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    del t
    memory.fleet_known = True
    memory.addresses.clear()
    missed = 0
    for key, value in lines.mapping(line.get("machines")).items():
        facts, name = lines.mapping(value), lines.name(key)
        lane = memory.lane(name)
        if lane is None:
            missed += bool(name)
            continue
        lane.group = lines.name(facts.get("group"))
        for address in lines.names(facts.get("addresses")):
            memory.addresses[address] = name
    memory.dropped_machines = max(memory.dropped_machines, missed)


def event(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    id = id_of(line)
    if not id:
        return
    record = memory.event(id)
    listed, begun, ended = (at is not None for at in (record.visible, record.started, record.over))
    move = record.move(line, t)
    for name in record.machines:
        lane = memory.lane(name)
        if lane is not None and not lane.group:
            lane.group = record.group
    if record.visible is not None and not listed and move in ("raise", "list"):
        memory.report(t, f"{memory.describe(record)} is announced")
    if record.started is not None and not begun:
        how = "started without notice" if move == "strike" else "has started"
        memory.report(t, f"{memory.describe(record)} {how}{_approver(record, line, t)}")
    if record.over is not None and not ended:
        memory.report_end(record, t)


def _approver(record: EventRecord, line: Mapping[str, Any], t: float) -> str:
    """Name the approver if the approval is not known yet: its own line may come after this one."""
    by = lines.name(line.get("approved_by"))
    if not by or record.approved is not None:
        return ""
    at = lines.instant(line.get("approved"))
    record.approved, record.approved_by = t if at is None else min(at, t), by
    return f": {by} approved it"


def approval(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    memory.record_approval(id_of(line), lines.name(line.get("by")) or "operator", t, None)


def impact(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    id = id_of(line)
    if not id:
        return
    record = memory.event(id)
    record.type = record.type or lines.name(line.get("type"))
    machines = lines.names(line.get("machines"))
    record.machines = record.machines or machines
    for name in machines:
        memory.lane(name)
    record.add_impact(Impact(t, machines))
    memory.report(t, f"{record.type or 'an event'} is carried out on {listing(machines)}")


def unannounced(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    """Record the start of an event that is carried out without being listed."""
    id = id_of(line)
    if not id:
        return
    record = memory.event(id)
    reported = record.recorded
    record.describe(line)
    for name in record.machines:
        memory.lane(name)
    record.started = t if record.started is None else record.started
    if not reported:
        memory.report(t, f"{memory.describe(record)} has started, unannounced")


def over(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    record = memory.events.get(id_of(line))
    if record is not None:
        memory.record_end(record, FINISHED, t)


def down(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    if not line.get("host"):  # else it is one node of several
        memory.down_since = t


def up(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    """Record an outage: since the `down` line, or since the last line if there was none."""
    if line.get("host"):
        return
    since = memory.now if memory.down_since is None else memory.down_since
    if memory.starts and since < t and not line.get("answered"):
        memory.record_outage(since, t, "the service was down")
    memory.starts += 1
    memory.down_since = None


def step(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    seconds = lines.number(line.get("seconds")) or 0.0
    start = lines.instant(t - max(seconds, 0.0)) or 0.0
    memory.record_outage(
        start, t, f"the clock was stepped by {seconds:+g} s, or the service was down"
    )


def disconnected(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    machines = lines.names(line.get("machines"))
    for name in machines:
        lane = memory.lane(name)
        if lane is not None and lane.disconnected_since is None:
            lane.disconnected_since = t
    memory.report(t, f"control cannot reach the node of {listing(machines)}")


def joined(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    machines = lines.names(line.get("machines"))
    for name in machines:
        lane = memory.lane(name)
        if lane is not None:
            lane.end_disconnected(t)
    memory.report(t, f"control has reached the node of {listing(machines)} again")


def disabled(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    memory.report(
        t,
        f"group {lines.name(line.get('group'))} was disabled: none of its machines polls any more",
    )


def scenario(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    """Record the result of a scenario. One that does not say that it is ok has failed."""
    entries = _list(line.get("expectations"))[:MAX_EXPECTATIONS]
    expectations = tuple(
        ScenarioExpectation(
            _sentence(entry.get("expected")),
            entry.get("ok") is True,
            _sentence(entry.get("message")),
        )
        for entry in map(lines.mapping, entries)
    )
    problems = _list(line.get("problems"))[:MAX_EXPECTATIONS]
    outcome = ScenarioOutcome(
        scenario=lines.name(line.get("scenario")),
        ok=line.get("ok") is True and all(item.ok for item in expectations),
        problems=tuple(sentence for raw in problems if (sentence := _sentence(raw))),
        expectations=expectations,
    )
    if len(memory.scenarios) < MAX_SCENARIOS:
        memory.scenarios.append(outcome)
    memory.report(t, f"scenario {outcome.scenario} {'passed' if outcome.ok else 'failed'}")


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _sentence(value: object) -> str:
    return lines.printable(lines.text(value, MAX_SENTENCE), MAX_SENTENCE)


def end(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    """Ignore the line that says that the recording is complete."""
