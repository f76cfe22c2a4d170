"""A case: one event that the agent handles, from when it is first seen until everything is undone.

Values and pure functions. A case carries the rule and the hooks as they were when the rule matched,
so that a change of the configuration never loses an undo. How cases are stored is `store.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from forewarn.agent.config.model import Hook, Rule
from forewarn.client.events import Event
from forewarn.wire.versions import RESTARTING

Over = Literal["finished", "withdrawn"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # the name of its directory
    event: Event  # as it was last listed
    machine: str  # this machine, by the name that events list
    mine: bool  # whether the event lists this machine
    rule: Rule
    hooks: tuple[Hook, ...]
    seen: datetime  # all times are by the service's clock
    boot: str = ""  # the machine's boot ID when the event was first seen
    not_before: datetime | None = None  # kept, since a started event no longer lists it
    started: datetime | None = None
    ready: datetime | None = None  # when this machine was reported ready
    approving: datetime | None = None  # when we began to approve it; the outcome may be unknown
    approved: datetime | None = None  # when our approval was accepted
    over: Over | None = None
    over_at: datetime | None = None
    closed: datetime | None = None

    @property
    def open(self) -> bool:
        return self.closed is None


def open_case(
    id: str,
    event: Event,
    rule: Rule,
    hooks: tuple[Hook, ...],
    machine: str,
    now: datetime,
    boot: str = "",
) -> Case:
    return Case(
        id=id,
        event=event,
        machine=machine,
        mine=machine in event.resources,
        rule=rule,
        hooks=hooks,
        seen=now,
        boot=boot,
        not_before=event.not_before,
        started=now if event.started else None,
    )


def update_event(case: Case, event: Event, now: datetime) -> Case:
    """Return the case with its event as it is listed now; the same object if nothing changed."""
    if event == case.event:
        return case
    return msgspec.structs.replace(
        case,
        event=event,
        not_before=event.not_before or case.not_before,
        started=case.started or (now if event.started else None),
    )


def end_event(case: Case, now: datetime, boot: str = "") -> Case:
    """Return the case with its event over, since it is not listed any more.

    The document does not say why an event is gone. It has taken place if it had started or was free
    to start, or if it restarts the machine and the machine has been restarted.
    """
    if case.over:
        return case
    by_us = case.approved or case.approving
    free = by_us or (case.not_before is not None and now >= case.not_before)
    restarted = case.mine and case.event.type in RESTARTING and case.boot and boot != case.boot
    over: Over = "finished" if case.started or free or restarted else "withdrawn"
    return msgspec.structs.replace(case, over=over, over_at=now)
