"""The life of an event, as one table.

Two rules. Everything that changes an event goes through `move`, and `move` allows only what
the table says. And this file does not know *why* an event moves: notice, approvals, domains and
machines are for `deciding/holds.py` and `deciding/decide.py`; what guests are shown of it is for
`group.py`.

    raised ──► Scheduled ──► Started ──► Finished
                   └──────► Withdrawn

Scheduled and Started are shown to guests. Finished and Withdrawn are both "gone": a withdrawal
is an event that ends without having started, a failure is one that starts without having been
scheduled. No arrow leads backwards, and none leads out of the two ends.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.core.events import Event, Status


class Move(enum.Enum):
    """What can happen to an event. The values are stored, and are part of traces."""

    RAISE = "raise"  # announced, with a NotBefore
    FAIL = "strike"  # a sudden failure, which could not be announced
    LIST = "list"  # its group was enabled, so that guests are shown the event
    APPROVE = "approve"  # a guest, an operator or the policy has approved it
    POSTPONE = "postpone"  # its NotBefore was moved to a later time
    READY = "ready"  # a machine has reported whether it is prepared
    LEAVE = "leave"  # some of its machines have moved away from its host
    START = "start"  # nothing holds it any more
    ATTEMPT = "attempt"  # a driver is about to be asked to carry it out
    RETIME = "retime"  # its times were recorded by a clock that was ahead, and are moved back
    ANSWER = "answer"  # the driver has answered, and the event is not over
    FINISH = "finish"  # carried out and verified, or nothing left to carry out
    WITHDRAW = "withdraw"  # it will not happen


TABLE: Mapping[tuple[Status | None, Move], Status] = {
    (None, Move.RAISE): Status.SCHEDULED,
    (None, Move.FAIL): Status.STARTED,
    (Status.SCHEDULED, Move.LIST): Status.SCHEDULED,
    (Status.SCHEDULED, Move.APPROVE): Status.SCHEDULED,
    (Status.SCHEDULED, Move.POSTPONE): Status.SCHEDULED,
    (Status.SCHEDULED, Move.READY): Status.SCHEDULED,
    (Status.SCHEDULED, Move.LEAVE): Status.SCHEDULED,
    (Status.SCHEDULED, Move.RETIME): Status.SCHEDULED,
    (Status.SCHEDULED, Move.START): Status.STARTED,
    (Status.SCHEDULED, Move.WITHDRAW): Status.WITHDRAWN,
    (Status.STARTED, Move.LIST): Status.STARTED,
    (Status.STARTED, Move.READY): Status.STARTED,
    (Status.STARTED, Move.LEAVE): Status.STARTED,
    (Status.STARTED, Move.RETIME): Status.STARTED,
    (Status.STARTED, Move.ATTEMPT): Status.STARTED,
    (Status.STARTED, Move.ANSWER): Status.STARTED,
    (Status.STARTED, Move.FINISH): Status.FINISHED,
}

# The moves that change what a document shows, and so its incarnation: those that lead from one
# status to another, and the one that changes NotBefore.
SHOWN: frozenset[Move] = frozenset(
    (what for (before, what), after in TABLE.items() if before is not after)
) | {Move.POSTPONE}


def move(event: Event, what: Move, **fields: Any) -> Event:
    """Return the event after `what` has happened to it. For RAISE and FAIL, `event` is the draft.

    Raises ValueError if the table does not allow it.
    """
    new = what in (Move.RAISE, Move.FAIL) and not event.status.over
    after = TABLE.get((None if new else event.status, what))
    if after is None:
        raise ValueError(f"cannot {what.value} an event that is {event.status.value}")
    return msgspec.structs.replace(event, status=after, **fields)


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for the documentation."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, what), after in TABLE.items():
        start = before.value if before else "[*]"
        arrows.setdefault((start, after.value), []).append(what.value)
    lines = ["stateDiagram-v2"]
    lines += [f"    {a} --> {b}: {', '.join(moves)}" for (a, b), moves in arrows.items()]
    lines += [f"    {status.value} --> [*]" for status in Status if status.over]
    return "\n".join(lines)
