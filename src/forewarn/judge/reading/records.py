"""The lines of a trace as immutable values.

Times are seconds on the service's clock. Nothing here reads or judges.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Pairs = tuple[tuple[str, str], ...]  # headers, names in lower case


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer; it took effect at some moment between `asked` and `t`."""

    index: int
    asked: float
    t: float
    machine: str | None
    source: str | None
    method: str
    target: str
    headers: Pairs
    body: bytes
    status: int | None
    answer_headers: Pairs | None
    answer: bytes
    fault: bool
    host: str | None = None  # on which the node is that answered, if the recorder knows
    real: float | None = None  # `t` on a clock that is never stepped, of that host

    @property
    def position(self) -> tuple[float, int]:
        """Its position in the trace: by time, then by line."""
        return self.t, self.index


@dataclass(frozen=True, slots=True)
class FleetMachine:
    """A machine in a fleet line."""

    group: str
    domain: object | None
    addresses: tuple[str, ...]
    hosts: tuple[str, ...] = ()  # on which it is, or may be


@dataclass(frozen=True, slots=True)
class FleetLine:
    t: float
    kinds: Mapping[str, str]
    machines: Mapping[str, FleetMachine]
    complete: bool
    grace: float | None  # how long nothing starts by its NotBefore after an interruption
    speed: float = 1.0  # durations, notice among them, are divided by it
    windowed: frozenset[str] = frozenset()  # groups whose maintenance waits for windows
    # By group that was disabled before: the highest incarnation that it had until then.
    shown: Mapping[str, int] = field(default_factory=dict)
    # By group that waits until its machines are back, and type of event: for how long at most.
    back_within: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Impact:
    t: float
    event: str
    type: str | None
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Approval:
    t: float
    event: str


@dataclass(frozen=True, slots=True)
class Disabled:
    index: int
    t: float
    group: str
    removed: bool = False  # the group had no machines any more; a later one continues its numbers
    hidden_until: float | None = None  # it was disabled in a gap, between `t` and this

    @property
    def position(self) -> tuple[float, int]:
        return self.t, self.index


@dataclass(frozen=True, slots=True)
class Joint:
    """Events of several groups that start together, since they are one host maintenance."""

    t: float
    id: str
    events: Mapping[str, str]  # event -> group
    host: str | None = None
    domain: object | None = None  # only machines of this update domain


@dataclass(frozen=True, slots=True)
class Placement:
    """Machines that have come to other hosts."""

    t: float
    hosts: Mapping[str, tuple[str, ...]]  # by machine


@dataclass(frozen=True, slots=True)
class DisconnectedLine:
    """From then on machines are disconnected, answered by a node that control cannot reach; or they
    have `joined` again."""

    index: int
    t: float
    joined: bool
    machines: tuple[str, ...]
    host: str | None  # on which the node is

    @property
    def position(self) -> tuple[float, int]:
        return self.t, self.index


@dataclass(frozen=True, slots=True)
class WithoutNode:
    """From then on a host is not expected to have a node."""

    t: float
    host: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which lines of a recording are missing, because its recorder was killed, or because
    its beginning was cut off."""

    t: float
    until: float = math.inf  # infinite: the recording was not continued
    host: str | None = None  # of the node that has recorded; None: control, or all in one
    stated: float | None = None  # when what was valid was written again; None: at its end

    @property
    def unknown_until(self) -> float:
        """When it was known again what keeps events from starting."""
        return self.until if self.stated is None else self.stated

    def overlaps(self, begin: float, end: float) -> bool:
        return self.t <= end and begin <= self.until


@dataclass(frozen=True, slots=True)
class Reach:
    """From then on control cannot reach the nodes of these hosts, or can `reach` them again."""

    t: float
    reached: bool
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """What something applies to: machines, groups, or both; None: to all of them."""

    groups: frozenset[str] | None
    machines: frozenset[str] | None

    def applies(self, group: str | None, machines: tuple[str, ...] | None) -> bool | None:
        """Return whether it applies to one of these machines; None if that is not known."""
        if self.groups is not None and group is not None and group not in self.groups:
            return False
        known = self.groups is None or group is not None
        if self.machines is None:
            return True if known else None
        if machines is None:
            return None
        if self.machines.isdisjoint(machines):
            return False
        return True if known else None


@dataclass(frozen=True, slots=True)
class HaltsLine:
    """All halts that stand from then on, until the next line."""

    t: float
    halts: tuple[Scope, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """When maintenance of some machines may start."""

    name: str
    scope: Scope
    open: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class MaintenanceLine:
    """All configurations that are valid from then on, until the next line. `until` is the time up
    to which it says when maintenance may start."""

    t: float
    until: float
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """What the lines of the service say about an event."""

    group: str | None = None
    machines: tuple[str, ...] | None = None
    type: str | None = None
    source: str | None = None
    started: float | None = None
    raised: float | None = None
    unlisted: bool = False  # its group was not enabled when it was raised
    approved: float | None = None  # according to the line of its start
    approved_by: str | None = None
    carried_out: float | None = None  # when it was over, if the driver has carried it out


@dataclass(frozen=True, slots=True)
class Window:
    """The only time in which an event may start."""

    event: str
    opens: float
    closes: float | None


@dataclass(frozen=True, slots=True)
class Unannounced:
    """An event that is carried out without being listed."""

    t: float
    event: str
    group: str | None
    machines: tuple[str, ...] | None  # None, here and above: unknown


@dataclass(frozen=True, slots=True)
class Over:
    """The end of an unannounced event."""

    t: float
    event: str


@dataclass(frozen=True, slots=True)
class Step:
    """The wall clock was stepped: the one that decides, or that of a node."""

    t: float
    seconds: float
    of_node: bool = False

    def far(self, limit: float) -> bool:
        return not self.of_node and abs(self.seconds) > limit


@dataclass(frozen=True, slots=True)
class Trace:
    exchanges: tuple[Exchange, ...]
    fleets: tuple[FleetLine, ...]
    impacts: tuple[Impact, ...]
    approvals: tuple[Approval, ...]
    disabled: tuple[Disabled, ...]
    ups: tuple[float, ...]
    downs: tuple[float, ...]
    steps: tuple[Step, ...]
    interruptions: tuple[float, ...]  # moments at which serving or the clock was interrupted
    # By how much times may be wrong: how far, in all, the clock was stepped back, and how far the
    # clocks of two nodes may be from each other.
    clock_error: float
    complete: bool
    unreadable: int
    torn: int  # incomplete last lines, which are in gaps
    approvals_uncertain_from: float  # from then on there may be unreadable approvals
    joints: tuple[Joint, ...] = ()
    windows: tuple[Window, ...] = ()
    unannounced: tuple[Unannounced, ...] = ()
    overs: tuple[Over, ...] = ()
    short_notices: frozenset[str] = frozenset()  # events that have less notice on purpose
    moves: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by event, as recorded
    # When an event of a group took a step, as recorded; None: the group is unknown.
    changes: Mapping[str | None, tuple[float, ...]] = field(default_factory=dict)
    partial: bool = False  # other clients may have approved at any time
    postponed: Mapping[str, frozenset[int]] = field(default_factory=dict)  # NotBefore by event
    placements: tuple[Placement, ...] = ()
    halts: tuple[HaltsLine, ...] = ()
    maintenance: tuple[MaintenanceLine, ...] = ()
    # By event: from when on no window or blackout holds it, as an operator wants it.
    ignores_windows: Mapping[str, float] = field(default_factory=dict)
    recorded: Mapping[str, RecordedEvent] = field(default_factory=dict)
    disconnected: tuple[DisconnectedLine, ...] = ()
    without_node: tuple[WithoutNode, ...] = ()
    wall: bool = False  # the service's clock is a wall clock, and runs like any other
    definite: bool = False  # the service's store is one in which what has failed did not happen
    node_ups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # by host
    gaps: tuple[Gap, ...] = ()
    reach: tuple[Reach, ...] = ()

    @property
    def grace(self) -> float | None:
        """The shortest start grace of all fleet lines; None if one has none."""
        values = [fleet.grace for fleet in self.fleets if fleet.grace is not None]
        return min(values) if values and len(values) == len(self.fleets) else None

    @property
    def speed(self) -> float:
        """The highest speed of all fleet lines, by which notice is divided. If the beginning of a
        service's recording is missing, they may be, too."""
        known = not any(gap.host is None and gap.t == -math.inf for gap in self.gaps)
        return max((fleet.speed for fleet in self.fleets), default=1.0 if known else math.inf)

    @property
    def gapless(self) -> bool:
        """Whether it is complete, and neither a fault hides an answer of the service nor was a
        machine, while it was disconnected, shown less than there was."""
        return (
            self.complete
            and not self.disconnected
            and not any(exchange.fault or exchange.status is None for exchange in self.exchanges)
        )
