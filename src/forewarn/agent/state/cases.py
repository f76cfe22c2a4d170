"""A case: one event that is being handled, from when it was first seen until all is put back.

Values and pure functions. A case carries the rule and the hooks as they were when it was matched,
so that another configuration never loses an undo. How it is kept is `store.py`.
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
    event: Event  # as it was last told
    machine: str  # this one, as events list it
    mine: bool  # whether it is listed
    rule: Rule
    hooks: tuple[Hook, ...]
    seen: datetime  # all times are the service's
    boot: str = ""  # which of the machine's lives that was
    not_before: datetime | None = None  # the event itself forgets it once it has started
    started: datetime | None = None
    ready: datetime | None = None  # said to the others
    approving: datetime | None = None  # by us, and nobody may have heard yet that it was heard
    approved: datetime | None = None  # by us
    over: Over | None = None
    over_at: datetime | None = None
    closed: datetime | None = None

    @property
    def open(self) -> bool:
        return self.closed is None


def opened(
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


def told(case: Case, event: Event, now: datetime) -> Case:
    """The event is listed, as this. The same case if nothing is new."""
    if event == case.event:
        return case
    return msgspec.structs.replace(
        case,
        event=event,
        not_before=event.not_before or case.not_before,
        started=case.started or (now if event.started else None),
    )


def gone(case: Case, now: datetime, boot: str = "") -> Case:
    """The event is not listed any more. Nobody says why; but one that had started, or was free to,
    has taken place. So has one that restarts the machine, if it was restarted."""
    if case.over:
        return case
    by_us = case.approved or case.approving
    free = by_us or (case.not_before is not None and now >= case.not_before)
    restarted = case.mine and case.event.type in RESTARTING and case.boot and boot != case.boot
    over: Over = "finished" if case.started or free or restarted else "withdrawn"
    return msgspec.structs.replace(case, over=over, over_at=now)
