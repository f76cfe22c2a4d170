"""A rollout: its plan and its switches, never its progress.

Progress is a query over the events it caused: every step has a cause of its own
(`Step.cause`), so a crash between "event over" and "rollout noted it" cannot repeat a step.
What a rollout does next is decided elsewhere, from these values.
"""

from __future__ import annotations

import msgspec

from forewarn.core.events import UNKNOWN_DURATION, EventType
from forewarn.core.time import MINUTE, Duration, Time
from forewarn.core.windows import Window

CAUSE = "rollout"  # what the causes of all steps begin with

GATE_TIMEOUT: Duration = 10 * MINUTE


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What goes at once: one update domain of a group, or one host."""

    cause: str
    group: str = ""
    domain: int = 0
    machines: tuple[str, ...] = ()
    host: str = ""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that go one after the other: the domains of a group, or a host alone."""

    name: str
    steps: tuple[Step, ...]


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must be well before the next step: an address that answers 2xx, or a command that
    the service's settings name and that exits with 0."""

    http: str = ""
    command: str = ""
    timeout: Duration = GATE_TIMEOUT


class Switch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    by: str
    at: Time
    why: str = ""


class Rollout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    type: EventType
    lanes: tuple[Lane, ...]
    by: str
    created_at: Time
    selection: str = ""  # in the words of whoever asked
    notice: Duration | None = None
    short_notice: bool = False
    description: str = ""
    duration: int = UNKNOWN_DURATION
    at_once: int = 1  # lanes
    windows: tuple[Window, ...] = ()
    gate: Gate | None = None
    bake: Duration = 0
    # Switches.
    paused: Switch | None = None
    resumed: Switch | None = None  # what was withdrawn before this is announced again
    aborted: Switch | None = None
    ended_at: Time | None = None
