"""What requests and answers tell: who asked, who saw what, who approved, who was refused.

Of an event that the service does not speak of itself, its whole course is made out from the
documents: it is visible when somebody is first shown it, and over when it is shown no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.testing.timeline import lines
from forewarn.testing.timeline.kept import KeptEvent, KeptLane
from forewarn.testing.timeline.lines import word
from forewarn.testing.timeline.memory import TimelineMemory
from forewarn.testing.timeline.values import STRANGERS
from forewarn.verdict.trace_lines import number
from forewarn.wire.versions import Version

SOMEBODY = "client"  # who asked, where a recording does not say


def exchange(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    lane = memory.lane(_caller(memory, line))
    if lane is None:
        return
    path, version = lines.place(line.get("target"))
    method, fault = word(line.get("method")), word(line.get("fault"))
    status = number(line.get("status"))
    answered = "no answer" if status is None else f"{status:g}"
    asks = method == "GET" and path in (lines.DOCUMENT, lines.WAIT)
    approves = method == "POST" and path == lines.DOCUMENT
    what = "a poll" if asks else "an approval" if approves else f"{method} {path}"
    if asks:
        lane.poll(t)
    if fault:
        lane.mark(t, "fault", f"fault {fault}: {what} got {answered}")
        memory.say(t, f"{what} of {lane.machine} met the fault {fault}: {answered}")
    if asks and status == 200:
        _document(memory, lane, lines.content(line, "answer"), t, version)
    elif approves and status == 200:
        for id in lines.approvals(lines.content(line, "body")):
            memory.approved(id, lane.machine, t, lane)
    elif method == "PUT" and path.startswith(lines.READY) and status in (200, 204):
        id = path.removeprefix(lines.READY).upper()
        lane.mark(t, "ready", f"said about {id[:8]} whether it is ready")
    elif not fault and (status is None or status >= 400):
        how = "got no answer" if status is None else f"was refused: {answered}"
        lane.mark(t, "refused", f"{what} {how}")
        memory.say(t, f"{what} of {lane.machine} {how}")


def _caller(memory: TimelineMemory, line: Mapping[str, Any]) -> str:
    source = word(line.get("from"))
    known = word(line.get("machine")) or memory.addresses.get(source, "")
    return known or (STRANGERS if memory.fleet else source or SOMEBODY)


def _document(
    memory: TimelineMemory, lane: KeptLane, answer: bytes, t: float, version: Version
) -> None:
    known = len(answer), hash(answer)
    if known == lane.answer:
        return
    shown = lines.document(answer)
    if shown is None:
        return
    lane.answer = known
    for one in shown:
        event = memory.event(one.id)
        machines = one.resources
        if version.preview:  # which put an underscore before names
            machines = tuple(name.removeprefix("_") or name for name in machines)
        event.learn(one, machines)
        event.group = event.group or lane.group
        for name in event.machines:
            concerned = memory.lane(name)
            if concerned is not None and not concerned.group:
                concerned.group = event.group
        if not event.told:
            _guessed(memory, event, one.status, t)
        sight = event.sight(lane.machine)
        if sight is not None and sight.seen is None:
            sight.seen, sight.seen_as = t, one.status
            if lane.machine in event.machines:
                memory.say(t, f"{lane.machine} saw {memory.name(event)}: {one.status}")
    ids = frozenset(one.id for one in shown)
    for id in lane.showing - ids:
        _unseen(memory, lane, memory.events.get(id), t, version)
    lane.showing = ids


def _guessed(memory: TimelineMemory, event: KeptEvent, status: str, t: float) -> None:
    if event.visible is None:
        event.visible = t
        memory.say(t, f"{memory.name(event)} is announced")
    if status == "Started" and event.started is None:
        event.started = t
        memory.say(t, f"{memory.name(event)} has started")


def _unseen(
    memory: TimelineMemory, lane: KeptLane, event: KeptEvent | None, t: float, version: Version
) -> None:
    """It was in this machine's document, and is no more; unless this version cannot show it."""
    if event is None or event.type not in version.types:
        return
    sight = event.sight(lane.machine)
    if sight is not None and sight.gone is None:
        sight.gone = t
    if event.told or event.over is not None:
        return
    early = event.not_before is not None and t < event.not_before
    if event.started is not None:
        memory.over(event, "finished", t)
    else:  # an approved one may have started and ended between two polls
        memory.over(event, "withdrawn" if early and event.approved is None else "gone", t)
