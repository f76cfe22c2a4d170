"""The format of the steps of a timeline: a shape for each verb."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from forewarn.core.events import FAILURE_TYPE, EventType, types_that
from forewarn.core.fleet import NAME
from forewarn.core.time import Duration
from forewarn.service.faults.kinds import FaultKind
from forewarn.service.faults.validate import NewFault
from forewarn.service.platform.hosts import MAINTENANCE_MODES
from forewarn.support.text import parse_duration
from forewarn.testing.scenarios.file.shapes import MAX_REPEATS, Entry, Length, Name, describe

MOMENTS = "raised|seen|prepared|approved|started|over|finished|withdrawn"
AFTER = rf"^\s*{NAME}\s+({MOMENTS})(\s+by\s+{NAME})?\s*$"
_KINDS = [kind.value for kind in FaultKind]

# Literals in the JSON Schema; plain text for the type checker.
if TYPE_CHECKING:
    AnyType: TypeAlias = str
    FailureType: TypeAlias = str
    RolloutType: TypeAlias = str
    MaintenanceType: TypeAlias = str
else:

    def _names(trait):
        return tuple(type.value for type in types_that(trait))

    AnyType = Literal[tuple(type.value for type in EventType)]
    FailureType = Literal[_names(lambda traits: traits.restarts)]
    RolloutType = Literal[_names(lambda traits: not traits.deletes)]
    MaintenanceType = Literal[tuple(MAINTENANCE_MODES)]


class Repeat(Entry, kw_only=True):
    """Repetition of a step: first when it is due, then at regular intervals."""

    every: Length
    times: Annotated[
        int, describe("How often in all, including the first time.", minimum=1, maximum=MAX_REPEATS)
    ]


class StepEntry(Entry, kw_only=True):
    at: Annotated[Length | None, describe("How long after the start of the scenario.")] = None
    after: Annotated[
        str | None,
        describe(
            "A moment of the event with this name: '<name> started', or"
            " '<name> approved by <machine>'.",
            pattern=AFTER,
        ),
    ] = None
    when_approved: Annotated[Name | None, describe("The same as after: <name> approved.")] = None
    delay: Annotated[Length | None, describe("With after or when-approved: how much later.")] = None
    repeat: Repeat | None = None
    name: Annotated[Name, describe("A name for the events that this step raises.")] = ""


class _Machine(StepEntry, kw_only=True):
    machine: Annotated[Name, describe("The machine.")]


class Restart(_Machine, kw_only=True, tag_field="do", tag="restart"):
    """A user restarts a machine (Reboot)."""


class Redeploy(_Machine, kw_only=True, tag_field="do", tag="redeploy"):
    """A user has a machine moved to another host (Redeploy)."""


class Evict(StepEntry, kw_only=True, tag_field="do", tag="evict"):
    """A spot machine, or all of a group, are evicted (a Preempt for each)."""

    machine: Annotated[Name, describe("The machine.")] = ""
    group: Annotated[Name, describe("All spot machines of this group or scale set.")] = ""


class Delete(_Machine, kw_only=True, tag_field="do", tag="delete"):
    """A machine is deleted (Terminate, if its scale set has terminate notifications)."""


class ScaleIn(StepEntry, kw_only=True, tag_field="do", tag="scale-in"):
    """Machines of a scale set are deleted, those with the highest numbers first."""

    group: Annotated[Name, describe("The group or scale set.")]
    count: Annotated[int | None, describe("How many machines are deleted.", minimum=1)] = None
    to: Annotated[int | None, describe("How many machines are left.", minimum=0)] = None


class Fail(StepEntry, kw_only=True, tag_field="do", tag="fail"):
    """A machine or a host fails without notice (the event is Started at once)."""

    machine: Annotated[Name, describe("The machine.")] = ""
    host: Annotated[Name, describe("The host, with all machines on it.")] = ""
    type: Annotated[FailureType, describe("The EventType.")] = FAILURE_TYPE.value


class Degrade(StepEntry, kw_only=True, tag_field="do", tag="degrade"):
    """A host's hardware is about to fail (a Redeploy for each machine on it)."""

    host: Annotated[Name, describe("The host.")]
    notice: Annotated[Length, describe("The time until it is expected to fail.")] = "7d"


class Repair(StepEntry, kw_only=True, tag_field="do", tag="repair"):
    """A host is repaired: the events that were raised by `degrade` are withdrawn."""

    host: Annotated[Name, describe("The host.")]


class _Announced(StepEntry, kw_only=True):
    notice: Annotated[
        Length | None, describe("The time until NotBefore; by default that of the type.")
    ] = None
    short_notice: Annotated[
        bool, describe("Allow a notice that is shorter than the minimum notice of the type.")
    ] = False
    description: Annotated[str | None, describe("The Description.")] = None
    duration: Annotated[
        int | None, describe("DurationInSeconds of the impact; -1: unknown.", minimum=-1)
    ] = None


class Maintain(_Announced, kw_only=True, tag_field="do", tag="maintain"):
    """A host is maintained (an event for each group on it)."""

    host: Annotated[Name, describe("The host.")]
    type: Annotated[MaintenanceType, describe("What the maintenance does to the machines.")]
    evacuate: Annotated[
        bool,
        describe(
            "Whether machines are moved away one by one instead of all being disturbed at once."
        ),
    ] = False


class Schedule(_Announced, kw_only=True, tag_field="do", tag="schedule"):
    """Any event, including those that no operator could announce."""

    type: Annotated[AnyType, describe("The EventType.")]
    machine: Annotated[Name, describe("The machine.")] = ""
    machines: Annotated[list[Name], describe("The machines, of one update domain.")] = (
        msgspec.field(default_factory=list)
    )
    source: Annotated[Literal["Platform", "User"], describe("The EventSource.")] = "Platform"
    sudden: Annotated[
        bool, describe("Whether it is Started at once, without having been Scheduled.")
    ] = False
    lasts: Annotated[
        Length | None, describe("How long it stays Started; by default as usual for its type.")
    ] = None
    happens: Annotated[
        RolloutType | None,
        describe("What its machines go through instead of what was announced, such as Freeze."),
    ] = None
    second_after: Annotated[
        Length | None,
        describe("They are paused once more while it is Started, this long after the first time."),
    ] = None
    second_duration: Annotated[
        int, describe("For how many seconds they are paused then.", minimum=1)
    ] = 1
    held: Annotated[
        Length | None,
        describe("It does not start sooner than this after it was raised, even if it is approved."),
    ] = None


class Rollout(_Announced, kw_only=True, tag_field="do", tag="rollout"):
    """A rollout over groups, labels or hosts, one update domain of a group at a time."""

    type: Annotated[RolloutType, describe("The EventType.")]
    groups: list[Name] = msgspec.field(default_factory=list)
    labels: list[str] = msgspec.field(default_factory=list)
    hosts: list[str] = msgspec.field(default_factory=list)
    bake: Annotated[Length, describe("The time between two steps.")] = "0s"
    at_once: Annotated[int, describe("How many groups or hosts at a time.", minimum=1)] = 1


class _OfEvent(StepEntry, kw_only=True):
    event: Annotated[Name, describe("The name of the step that raised the event.")]


class Cancel(_OfEvent, kw_only=True, tag_field="do", tag="cancel"):
    """An operator cancels an event."""


class Approve(_OfEvent, kw_only=True, tag_field="do", tag="approve"):
    """An operator approves an event."""


class Finish(_OfEvent, kw_only=True, tag_field="do", tag="finish"):
    """An operator finishes a Started event."""


class Restore(_Machine, kw_only=True, tag_field="do", tag="restore"):
    """A machine that was evicted or deleted exists again."""


class Disable(StepEntry, kw_only=True, tag_field="do", tag="disable"):
    """A group is disabled: its incarnations start again at 1 with its next poll."""

    group: Annotated[Name, describe("The group.")]


class Interrupt(StepEntry, kw_only=True, tag_field="do", tag="interrupt"):
    """The service is down for some time. Needs a virtual clock."""

    lost: Annotated[Length, describe("How long.")]


class FaultEntry(StepEntry, kw_only=True):
    """A fault; `forewarn fault kinds` lists them. Without a time it is active from the start."""

    kind: Annotated[
        str, describe("The kind of fault; `forewarn fault kinds` lists them.", enum=_KINDS)
    ]
    machine: Annotated[
        Name, describe("The machine whose requests or events are affected; by default all.")
    ] = ""
    machines: Annotated[list[Name], describe("Several machines.")] = msgspec.field(
        default_factory=list
    )
    group: Annotated[Name, describe("All machines of this group.")] = ""
    method: Annotated[
        Literal["GET", "POST"] | None, describe("The method of affected requests; by default both.")
    ] = None
    times: Annotated[
        int | None, describe("How often it occurs; by default until it is cleared.", minimum=1)
    ] = None
    skip: Annotated[
        int, describe("How many requests or events are not affected at first.", minimum=0)
    ] = 0
    lasts: Annotated[Length | None, describe("How long it is active.")] = None
    probability: Annotated[
        float,
        describe(
            "The probability of each occurrence; 0.1 is one in ten.", exclusiveMinimum=0, maximum=1
        ),
    ] = 1.0
    seed: Annotated[
        int | None, describe("The seed of the random numbers, for reproducible runs.", minimum=0)
    ] = None
    seconds: Annotated[float | None, describe("The delay, for kinds that have one.", minimum=0)] = (
        None
    )
    status: Annotated[
        int | None, describe("The HTTP status of an error.", minimum=500, maximum=599)
    ] = None
    body: Annotated[str | None, describe("The body of the answer.")] = None
    takes_effect: Annotated[
        bool | None, describe("Whether an approval takes effect in spite of the fault.")
    ] = None


def fault(entry: FaultEntry, paced: Callable[[Duration], Duration] = lambda _: _) -> NewFault:
    """Return the request to the service for this fault."""
    return NewFault(
        kind=entry.kind,
        machines=(entry.machine,) if entry.machine else tuple(entry.machines),
        groups=(entry.group,) if entry.group else (),
        method=entry.method or "",
        times=entry.times,
        skip=entry.skip,
        lasts=None if entry.lasts is None else paced(parse_duration(str(entry.lasts))),
        probability=entry.probability,
        seed=entry.seed,
        seconds=entry.seconds,
        status=entry.status,
        body=entry.body,
        takes_effect=entry.takes_effect,
    )


class Fault(FaultEntry, kw_only=True, tag_field="do", tag="fault"):
    """Inject a fault."""


class ClearFaults(StepEntry, kw_only=True, tag_field="do", tag="clear-faults"):
    """Clear one fault, or all."""

    fault: Annotated[Name, describe("The name of the fault; by default all.")] = ""


class Wait(StepEntry, kw_only=True, tag_field="do", tag="wait"):
    """Do nothing, but keep the scenario running until then."""


VERBS: dict[str, type[StepEntry]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        Restart,
        Redeploy,
        Evict,
        Delete,
        ScaleIn,
        Fail,
        Degrade,
        Repair,
        Maintain,
        Schedule,
        Rollout,
        Cancel,
        Approve,
        Finish,
        Restore,
        Disable,
        Interrupt,
        Fault,
        ClearFaults,
        Wait,
    )
}
