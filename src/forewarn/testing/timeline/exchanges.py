"""What requests and answers add to a timeline: polls, sightings, approvals, refused requests.

The course of an event that has no `event` lines is inferred from the documents: it is visible when
a machine first gets it in a document, and ends when it is not listed any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.testing.timeline.memory import TimelineMemory
from forewarn.testing.timeline.records import EventRecord, LaneRecord
from forewarn.testing.timeline.values import UNKNOWN_CALLERS
from forewarn.traces.documents import read_document
from forewarn.traces.exchanges import Exchange, Stamp
from forewarn.traces.exchanges import exchange as read_exchange
from forewarn.traces.lines import MAX_NAME
from forewarn.wire.versions import Version

UNNAMED = "client"  # the lane of a caller that the recording does not name


def exchange(memory: TimelineMemory, line: Mapping[str, Any], t: float) -> None:
    traffic = read_exchange(line, Stamp(t))
    lane = memory.lane(_caller(memory, traffic))
    if lane is None:
        return
    status, fault = traffic.status, traffic.fault
    result = "no answer" if status is None else str(status)
    sender = "an unknown caller" if lane.machine == UNKNOWN_CALLERS else lane.machine
    request = f"{traffic.method} {traffic.route[:MAX_NAME]}"
    if traffic.polls:
        request = "a poll"
    elif traffic.approves:
        request = "an approval"
    if traffic.polls:
        lane.add_poll(t)
    if fault:
        lane.add_mark(t, "fault")
        message = f"{request} of {sender} got the fault {fault}: {result}"
        memory.report_repeated(t, message, traffic.same + 1)
    if traffic.polls and status == 200:
        _document(memory, lane, traffic.answer() or b"", t, traffic.known_version)
    elif traffic.approves and status == 200:
        for id in traffic.approved_ids():
            memory.record_approval(id, lane.machine, t, lane)
    elif traffic.readiness_of and status in (200, 204):
        lane.add_mark(t, "ready")
    elif not fault and (status is None or status >= 400):
        how = "got no answer" if status is None else f"was refused: {result}"
        lane.add_mark(t, "refused")
        memory.report_repeated(t, f"{request} of {sender} {how}", traffic.same + 1)


def _caller(memory: TimelineMemory, traffic: Exchange) -> str:
    name = traffic.machine or memory.addresses.get(traffic.source, "")
    return name or (UNKNOWN_CALLERS if memory.fleet_known else traffic.source or UNNAMED)


def _document(
    memory: TimelineMemory, lane: LaneRecord, answer: bytes, t: float, version: Version
) -> None:
    fingerprint = len(answer), hash(answer)
    if fingerprint == lane.last_answer:
        return
    document = read_document(answer, version)
    if document is None:
        return
    lane.last_answer = fingerprint
    for listed in document.events:
        event = memory.event(listed.id)
        event.fill_in(listed)
        event.group = event.group or lane.group
        for name in event.machines:
            affected = memory.lane(name)
            if affected is not None and not affected.group:
                affected.group = event.group
        if not event.recorded:
            _infer(memory, event, listed.status, t)
        if lane.machine in event.machines and lane.machine not in event.seen:
            event.seen[lane.machine] = t
            memory.report(t, f"{lane.machine} saw {memory.describe(event)}: {listed.status}")
    ids = frozenset(listed.id for listed in document.events)
    for id in lane.listed_events - ids:
        _infer_end(memory, memory.events.get(id), t, version)
    lane.listed_events = ids


def _infer(memory: TimelineMemory, event: EventRecord, status: str, t: float) -> None:
    if event.visible is None:
        event.visible = t
        memory.report(t, f"{memory.describe(event)} is announced")
    if status == "Started" and event.started is None:
        event.started = t
        memory.report(t, f"{memory.describe(event)} has started")


def _infer_end(
    memory: TimelineMemory, event: EventRecord | None, t: float, version: Version
) -> None:
    """Infer the end of an event that a document of this version does not list any more."""
    if event is None or event.type not in version.types or event.recorded or event.over is not None:
        return
    early = event.not_before is not None and t < event.not_before
    if event.started is not None:
        memory.record_end(event, "finished", t)
    else:  # an approved one may have started and ended between two polls
        memory.record_end(event, "withdrawn" if early and event.approved is None else "gone", t)
