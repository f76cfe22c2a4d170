"""A rollout: its plan and whether it is paused or aborted, never its progress.

Progress is derived from the events it has caused: every step has its own cause (`Step.cause`), so
a crash between the end of an event and anything the rollout does about it cannot repeat a step.
What a rollout does next is decided in `next_step.py`; how a selection becomes lanes is `lanes.py`.
"""

from __future__ import annotations

import msgspec

from forewarn.core.events import UNKNOWN_DURATION, EventType
from forewarn.core.rollouts.windows import Window
from forewarn.core.time import MINUTE, Duration, Time

CAUSE = "rollout"  # first part of the cause of every step

GATE_TIMEOUT: Duration = 10 * MINUTE

BY_ITSELF = "the rollout itself"  # `Switch.by` if a rollout has paused itself


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is disturbed at the same time: one update domain of a group, or one host."""

    cause: str
    group: str = ""
    domain: int = 0
    machines: tuple[str, ...] = ()
    host: str = ""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that follow each other: the update domains of a group, or a single host."""

    name: str
    steps: tuple[Step, ...]

    @property
    def hosts(self) -> bool:
        """Is it the maintenance of a host, with all machines on it?"""
        return any(step.host for step in self.steps)


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A check before the next step: a URL that answers 2xx, or a command from the service's
    settings that exits with 0."""

    http: str = ""
    command: str = ""
    timeout: Duration = GATE_TIMEOUT

    @property
    def description(self) -> str:
        return self.http or f"command {self.command}"


class Switch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who paused, resumed or aborted a rollout, when and why."""

    by: str
    at: Time
    why: str = ""


class Rollout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    type: EventType
    lanes: tuple[Lane, ...]
    by: str
    created_at: Time
    selection: str = ""  # as text
    notice: Duration | None = None
    short_notice: bool = False
    description: str = ""
    duration: int = UNKNOWN_DURATION
    at_once: int = 1  # lanes in progress at the same time
    windows: tuple[Window, ...] = ()
    gate: Gate | None = None
    bake: Duration = 0
    paused: Switch | None = None
    resumed: Switch | None = None  # events withdrawn before then are announced again
    covers: tuple[
        str, ...
    ] = ()  # ids of events withdrawn at the same instant as, but before, `resumed`
    aborted: Switch | None = None
    ended_at: Time | None = None
    steps_over: int | None = None  # set when it ends; before that it is derived from events

    @property
    def name(self) -> str:
        """`by` of the events that it raises or withdraws itself."""
        return f"{CAUSE} {self.id}"

    @property
    def prefix(self) -> str:
        """The beginning of the causes of its steps."""
        return prefix(self.id)

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for lane in self.lanes for step in lane.steps)

    @property
    def event_notice(self) -> Duration:
        """The notice of each of its events."""
        return self.type.traits.notice if self.notice is None else self.notice

    @property
    def running(self) -> bool:
        """Is it neither paused, aborted nor over, so that it may announce events?"""
        return self.paused is None and self.aborted is None and self.ended_at is None


def prefix(id: str) -> str:
    return f"{CAUSE}/{id}/"


def caused(cause: str) -> str | None:
    """Return the id of the rollout whose step has this cause, if it is a step's."""
    parts = cause.split("/", 2)
    return parts[1] if len(parts) == 3 and parts[0] == CAUSE else None
