"""Refusals: why a command was not carried out, as values.

The message names no option, command or file of any interface. What the caller could do about it is
a `Hint`, for which each interface has its own text.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import TypedDict, Unpack

import msgspec

from forewarn.support.suggest import instead_of, nearest, shortened


class Reason(enum.Enum):
    INVALID = "invalid"  # the request itself is wrong
    UNKNOWN = "unknown"  # it names something that does not exist
    CONFLICT = "conflict"  # it is not possible in the current state
    STALE = "stale"  # it was made for a state that has changed since


class Hint(enum.Enum):
    """What the caller could do about a refusal. `Refused.about` names the object concerned."""

    FORCE = "force"
    REMOVE = "remove"  # give the number of machines that are removed
    SHORT_NOTICE = "short-notice"
    IGNORE_WINDOWS = "ignore-windows"
    SELECT = "select"  # name groups, labels, machines or hosts
    CONFLICTS = "conflicts"  # say what to do with hosts that have several update domains
    LASTS = "lasts"  # give a window, and how long a step is expected to take
    ALLOW_OVERLAP = "allow-overlap"  # with another rollout
    EVACUATE = "evacuate"  # or redeploy this machine first
    ACCEPT_CLOCK = "accept-clock"
    SCHEDULE_PREEMPT = "schedule-preempt"  # for this machine
    EXPLAIN_HOST = "explain-host"  # this host
    REPAIR_HOST = "repair-host"  # this host, or put the machine on another one
    RECORD_MOVE = "record-move"  # say on which host this machine is
    CREATE_TOKEN = "create-token"
    CREATE_ADMIN_TOKEN = "create-admin-token"
    REVOKE_TOKEN = "revoke-token"  # this token
    CLEAR_FAULTS = "clear-faults"
    LIST_EVENTS = "list-events"  # also those that are over
    CONFIGURE_GATES = "configure-gates"
    ENROLL_AGAIN = "enroll-again"  # allow it for hosts that have a node


class Refused(msgspec.Struct, frozen=True):
    """A command was refused. Returned, not raised: no command of a caller makes the core raise."""

    reason: Reason
    message: str
    hint: Hint | None = None
    about: str = ""  # the object of the hint: name or id of a machine, host or token, or a number
    field: str = ""  # position in a file or body, such as `groups[2].name`
    line: int | None = None  # of a file
    suggestion: str = ""  # the most similar existing name
    others: tuple[Refused, ...] = ()  # further mistakes of the same request

    def __str__(self) -> str:
        """Return the message with its line and field, without the hint."""
        line = "" if self.line is None else f"line {self.line}"
        return ": ".join(part for part in (line, self.field, self.message) if part)

    def with_hint(self, texts: Mapping[Hint, str]) -> str:
        """Return the message with its line and field, followed by the hint if `texts` has one."""
        if self.hint is None or self.hint not in texts:
            return str(self)
        return f"{self}; {texts[self.hint].format(about=self.about)}"


class Values(TypedDict, total=False):
    hint: Hint
    about: str
    field: str
    line: int | None
    suggestion: str
    others: tuple[Refused, ...]


def invalid(message: str, **values: Unpack[Values]) -> Refused:
    return Refused(Reason.INVALID, message, **values)


def unknown(message: str, **values: Unpack[Values]) -> Refused:
    return Refused(Reason.UNKNOWN, message, **values)


def conflict(message: str, **values: Unpack[Values]) -> Refused:
    return Refused(Reason.CONFLICT, message, **values)


def stale(message: str, **values: Unpack[Values]) -> Refused:
    return Refused(Reason.STALE, message, **values)


def unknown_name(kind: str, name: str, known: Collection[str]) -> Refused:
    """Refuse a name that does not exist, and suggest the most similar one."""
    message = f"no {kind} '{shortened(name)}'; {instead_of(name, known)}"
    return unknown(message, suggestion=nearest(name, known) or "")
