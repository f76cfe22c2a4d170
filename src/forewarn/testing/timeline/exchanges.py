"""What the exchanges of a trace add to a timeline: polls, sightings, approvals, refused requests.

The course of an event that has no `event` lines is inferred from the documents: it is visible when
a machine is first shown it, and over when it is not shown any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.testing.timeline.kept import KeptEvent, KeptLane
from forewarn.testing.timeline.memory import TimelineMemory
from forewarn.testing.timeline.values import STRANGERS
from forewarn.traces.documents import read_document
from forewarn.traces.exchanges import Exchange, Stamp
from forewarn.traces.exchanges import exchange as read_exchange
from forewarn.traces.lines import MAX_NAME
from forewarn.wire.versions import Version

UNNAMED = "client"  # the lane of a caller that the recording does not name


def exchange(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    read = read_exchange(line, Stamp(t))
    lane = memory.lane(_caller(memory, read))
    if lane is None:
        return
    status, fault = read.status, read.fault
    answered = "no answer" if status is None else str(status)
    what = f"{read.method} {read.route[:MAX_NAME]}"
    if read.polls:
        what = "a poll"
    elif read.approves:
        what = "an approval"
    if read.polls:
        lane.poll(t)
    if fault:
        lane.mark(t, "fault", f"fault {fault}: {what} got {answered}")
        memory.say(t, f"{what} of {lane.machine} met the fault {fault}: {answered}")
    if read.polls and status == 200:
        _document(memory, lane, read.answer() or b"", t, read.known_version)
    elif read.approves and status == 200:
        for id in read.approved_ids():
            memory.approved(id, lane.machine, t, lane)
    elif read.readiness_of and status in (200, 204):
        lane.mark(t, "ready", f"reported its readiness for {read.readiness_of[:8]}")
    elif not fault and (status is None or status >= 400):
        how = "got no answer" if status is None else f"was refused: {answered}"
        lane.mark(t, "refused", f"{what} {how}")
        memory.say(t, f"{what} of {lane.machine} {how}")


def _caller(memory: TimelineMemory, read: Exchange) -> str:
    known = read.machine or memory.addresses.get(read.source, "")
    return known or (STRANGERS if memory.fleet else read.source or UNNAMED)


def _document(
    memory: TimelineMemory, lane: KeptLane, answer: bytes, t: float, version: Version
) -> None:
    known = len(answer), hash(answer)
    if known == lane.answer:
        return
    document = read_document(answer, version)
    if document is None:
        return
    lane.answer = known
    for listed in document.events:
        event = memory.event(listed.id)
        event.learn(listed)
        event.group = event.group or lane.group
        for name in event.machines:
            concerned = memory.lane(name)
            if concerned is not None and not concerned.group:
                concerned.group = event.group
        if not event.told:
            _infer(memory, event, listed.status, t)
        sight = event.sight(lane.machine)
        if sight is not None and sight.seen is None:
            sight.seen, sight.seen_as = t, listed.status
            if lane.machine in event.machines:
                memory.say(t, f"{lane.machine} saw {memory.name(event)}: {listed.status}")
    ids = frozenset(listed.id for listed in document.events)
    for id in lane.showing - ids:
        _unseen(memory, lane, memory.events.get(id), t, version)
    lane.showing = ids


def _infer(memory: TimelineMemory, event: KeptEvent, status: str, t: float) -> None:
    if event.visible is None:
        event.visible = t
        memory.say(t, f"{memory.name(event)} is announced")
    if status == "Started" and event.started is None:
        event.started = t
        memory.say(t, f"{memory.name(event)} has started")


def _unseen(
    memory: TimelineMemory, lane: KeptLane, event: KeptEvent | None, t: float, version: Version
) -> None:
    """Take note that this machine's document does not list the event any more."""
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
