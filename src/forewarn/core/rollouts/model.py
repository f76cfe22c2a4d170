"""A rollout: its plan and whether it is paused or aborted, never its progress.

Progress is derived from the events it has caused: every step has its own cause (`Step.cause`), so
a crash between the end of an event and anything the rollout does about it cannot repeat a step.
What a rollout does next is decided in `next_step.py`; how a selection becomes lanes is `lanes.py`.
"""

from __future__ import annotations

import enum

import msgspec

from forewarn.core.events import UNKNOWN_DURATION, Attempt, EventType
from forewarn.core.rollouts.selection import Exclusions
from forewarn.core.time import MINUTE, Duration, Time
from forewarn.core.windows.model import Window

CAUSE = "rollout"  # first part of the cause of every step

GATE_TIMEOUT: Duration = 10 * MINUTE

LIVE_MIGRATION = "live-migration"  # the kind of a rollout that moves machines away from hosts
EVACUATE_WORK_RETURN = "evacuate-work-return"  # of one that keeps each host empty for some work

BY_ITSELF = "the rollout itself"  # `Switch.by` if a rollout has paused itself


class Conflicts(enum.Enum):
    """What to do with hosts that hold machines of several update domains of one group, which must
    not be disturbed at the same time."""

    REFUSE = "refuse"
    SPLIT = "split"  # one update domain after the other
    SKIP = "skip"
    EVACUATE = "evacuate"  # first move machines away, until one update domain of each group is left


class Action(enum.Enum):
    """What a step does."""

    MAINTENANCE = "maintenance"
    EVACUATION = "evacuation"  # moves machines away from a host, by live migrations
    WORK = "work"  # waits until an empty, cordoned host is put back into service


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is disturbed at the same time: one update domain of a group, one host, or the machines
    of one update domain on a host (`split`)."""

    cause: str
    group: str = ""
    domain: int = 0
    machines: tuple[str, ...] = ()
    host: str = ""
    split: bool = False
    action: Action = Action.MAINTENANCE


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that follow each other: the update domains of a group, or a single host."""

    name: str
    steps: tuple[Step, ...]
    wave: int = 0  # lanes of a wave begin when those of the wave before are complete


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


class WorkBy(enum.Enum):
    """Who does the work on a host that was emptied for it."""

    OPERATOR = "operator"  # or a program: the rollout waits until the host is put back into service
    DRIVER = "driver"


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a host was cordoned for work on it, when it was put back into service, and how far the
    driver has come, if it is to do the work."""

    host: str
    begun_at: Time
    returned_at: Time | None = None
    id: str = ""  # under which the driver knows it
    started_at: Time | None = None  # of its first attempt
    attempt: Attempt | None = None

    @property
    def under_way(self) -> bool:
        """Does the driver do it, now or again after a while?"""
        attempt = self.attempt
        return attempt is not None and not attempt.stuck and self.returned_at is None


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How much a rollout was about when it was started."""

    machines: int
    groups: int
    hosts: int


class Rollout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    type: EventType
    lanes: tuple[Lane, ...]
    by: str
    created_at: Time
    moves: bool = False  # a live migration of the machines on hosts
    works: bool = False  # empties hosts for work on them
    work_by: WorkBy = WorkBy.OPERATOR
    selection: str = ""  # as text
    exclusions: Exclusions = Exclusions()
    size: Size = Size(machines=0, groups=0, hosts=0)
    notice: Duration | None = None
    short_notice: bool = False
    description: str = ""  # for guests
    ticket: str = ""  # for operators and drivers
    duration: int = UNKNOWN_DURATION
    at_once: int = 1  # lanes in progress at the same time
    windows: tuple[Window, ...] = ()
    gate: Gate | None = None
    bake: Duration = 0
    lasts: Duration | None = None  # time that an event is expected to stay Started
    ignore_windows: bool = False  # of groups and of the fleet; its own apply
    must_end_in_window: bool = False  # nothing starts that would not end in its window
    deadline: Time | None = None  # what has not started by then does not start
    pause_after: tuple[int, ...] = ()  # waves after which it pauses itself
    confirmed: int = 0  # waves after which an operator has let it continue
    max_failures: int | None = None  # failed steps, beyond which it pauses itself
    conflicts: Conflicts = Conflicts.REFUSE  # also for hosts that become one while it runs
    skipped: tuple[str, ...] = ()  # causes of the steps that are left out
    work: tuple[Work, ...] = ()  # on hosts that it has begun to empty
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
    def kind(self) -> str:
        """What it does to machines: the type of its events, or what it does to hosts."""
        if self.works:
            return EVACUATE_WORK_RETURN
        return LIVE_MIGRATION if self.moves else self.type.value

    @property
    def waves(self) -> int:
        """The number of its waves; its lanes are in their order."""
        return self.lanes[-1].wave + 1 if self.lanes else 1

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
    step = step_of(cause)
    return step[0] if step else None


def step_of(cause: str) -> tuple[str, str] | None:
    """Return the id of the rollout and the name of its step that have this cause."""
    if not cause.startswith(f"{CAUSE}/"):
        return None
    parts = cause.split("/", 2)
    return (parts[1], parts[2]) if len(parts) == 3 else None
