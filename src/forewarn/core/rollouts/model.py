"""A rollout: its plan and its switches, never its progress.

Progress is a query over the events it caused: every step has a cause of its own
(`Step.cause`), so a crash between "event over" and "rollout noted it" cannot repeat a step.
What a rollout does next is decided in `next_step.py`, from these values; how a selection becomes
lanes is `lanes.py`.
"""

from __future__ import annotations

import msgspec

from forewarn.core.events import UNKNOWN_DURATION, EventType
from forewarn.core.rollouts.windows import Window
from forewarn.core.time import MINUTE, Duration, Time

CAUSE = "rollout"  # what the causes of all steps begin with

GATE_TIMEOUT: Duration = 10 * MINUTE

BY_ITSELF = "the rollout itself"  # who paused it, if nobody did


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

    @property
    def hosts(self) -> bool:
        """Is it a host that is worked on, with whatever is on it?"""
        return any(step.host for step in self.steps)


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must be well before the next step: an address that answers 2xx, or a command that
    the service's settings name and that exits with 0."""

    http: str = ""
    command: str = ""
    timeout: Duration = GATE_TIMEOUT

    @property
    def named(self) -> str:
        return self.http or f"command {self.command}"


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
    covers: tuple[str, ...] = ()  # of the events withdrawn at that very instant, those before it
    aborted: Switch | None = None
    ended_at: Time | None = None
    steps_over: int | None = None  # when it ended; before that, progress is a query

    @property
    def name(self) -> str:
        """Whoever raises or withdraws its events, if it does so itself."""
        return f"{CAUSE} {self.id}"

    @property
    def prefix(self) -> str:
        """What the causes of its steps begin with."""
        return prefix(self.id)

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for lane in self.lanes for step in lane.steps)

    @property
    def promised(self) -> Duration:
        """The notice of each of its events."""
        return self.type.traits.notice if self.notice is None else self.notice

    @property
    def going(self) -> bool:
        """May it announce anything?"""
        return self.paused is None and self.aborted is None and self.ended_at is None


def prefix(id: str) -> str:
    return f"{CAUSE}/{id}/"


def caused(cause: str) -> str | None:
    """The id of the rollout whose step has this cause, if it is one's."""
    parts = cause.split("/", 2)
    return parts[1] if len(parts) == 3 and parts[0] == CAUSE else None
