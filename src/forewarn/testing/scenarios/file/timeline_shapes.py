"""The lines of a timeline, as shapes: one for each thing that can be done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from forewarn.core.events import EventType, types_that
from forewarn.core.fleet import NAME
from forewarn.core.time import Duration
from forewarn.service.faults.kinds import FaultKind
from forewarn.service.faults.validate import NewFault
from forewarn.service.platform.hosts import MaintenanceMode
from forewarn.support.text import parse_duration
from forewarn.testing.scenarios.file.shapes import MAX_REPEATS, Entry, Length, Name, says

MOMENTS = "raised|seen|prepared|approved|started|over|finished|withdrawn"
AFTER = rf"^\s*{NAME}\s+({MOMENTS})(\s+by\s+{NAME})?\s*$"
_KINDS = [kind.value for kind in FaultKind]

# Literals of names for a reader of the schema; for the type checker, text.
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
    MaintenanceType = Literal[tuple(mode.value for mode in MaintenanceMode)]


class Repeat(Entry, kw_only=True):
    """Again and again: the first time when it is due, then every so often."""

    every: Length
    times: Annotated[int, says("How often in all.", minimum=1, maximum=MAX_REPEATS)]


class StepEntry(Entry, kw_only=True):
    at: Annotated[Length | None, says("How long after the timeline began.")] = None
    after: Annotated[
        str | None,
        says(
            "What has become of an event that an earlier line names: '<name> started', or"
            " '<name> approved by <machine>'.",
            pattern=AFTER,
        ),
    ] = None
    when_approved: Annotated[Name | None, says("Short for after: <name> approved.")] = None
    delay: Annotated[Length | None, says("With after: so much later.")] = None
    repeat: Repeat | None = None
    name: Annotated[Name, says("What other lines call the events that this one raises.")] = ""


class _Machine(StepEntry, kw_only=True):
    machine: Annotated[Name, says("Which machine.")]


class Restart(_Machine, kw_only=True, tag_field="do", tag="restart"):
    """A user restarts the machine: a Reboot."""


class Redeploy(_Machine, kw_only=True, tag_field="do", tag="redeploy"):
    """A user has the machine moved to another host: a Redeploy."""


class Evict(StepEntry, kw_only=True, tag_field="do", tag="evict"):
    """A spot machine is taken back, or all of a group: a Preempt for each."""

    machine: Annotated[Name, says("Which machine.")] = ""
    group: Annotated[Name, says("Or: all spot machines of this group or scale set.")] = ""


class Delete(_Machine, kw_only=True, tag_field="do", tag="delete"):
    """A machine is deleted: a Terminate, if its scale set is told of deletes."""


class ScaleIn(StepEntry, kw_only=True, tag_field="do", tag="scale-in"):
    """Members of a scale set are deleted, those with the highest numbers first."""

    group: Annotated[Name, says("Which group or scale set.")]
    count: Annotated[int | None, says("How many go.", minimum=1)] = None
    to: Annotated[int | None, says("Or: how many stay.", minimum=0)] = None


class Fail(StepEntry, kw_only=True, tag_field="do", tag="fail"):
    """A machine or a host fails all of a sudden: Started at once."""

    machine: Annotated[Name, says("Which machine.")] = ""
    host: Annotated[Name, says("Or: which host, with all that is on it.")] = ""
    type: Annotated[FailureType, says("What becomes of the machine.")] = "Redeploy"


class Degrade(StepEntry, kw_only=True, tag_field="do", tag="degrade"):
    """A host's hardware is about to fail: a Redeploy for each machine on it."""

    host: Annotated[Name, says("Which host.")]
    notice: Annotated[Length, says("How long before it is expected to fail.")] = "7d"


class Repair(StepEntry, kw_only=True, tag_field="do", tag="repair"):
    """A host is well again: what was planned because it was not is withdrawn."""

    host: Annotated[Name, says("Which host.")]


class _Announced(StepEntry, kw_only=True):
    notice: Annotated[Length | None, says("How long before; the type's own if not said.")] = None
    short_notice: Annotated[bool, says("Is a notice meant that is less than promised?")] = False
    description: Annotated[str | None, says("What guests read.")] = None
    duration: Annotated[
        int | None, says("Seconds that the impact takes; -1: not said.", minimum=-1)
    ] = None


class Maintain(_Announced, kw_only=True, tag_field="do", tag="maintain"):
    """A host is worked on: an event for each group on it."""

    host: Annotated[Name, says("Which host.")]
    type: Annotated[MaintenanceType, says("What its machines notice.")]
    evacuate: Annotated[bool, says("Machine by machine instead of all at once?")] = False


class Schedule(_Announced, kw_only=True, tag_field="do", tag="schedule"):
    """Any event."""

    type: Annotated[AnyType, says("The EventType.")]
    machine: Annotated[Name, says("Which machine.")] = ""
    machines: Annotated[list[Name], says("Or: which machines, of one update domain.")] = (
        msgspec.field(default_factory=list)
    )
    source: Annotated[Literal["Platform", "User"], says("The EventSource.")] = "Platform"
    sudden: Annotated[bool, says("Is it Started without having been Scheduled?")] = False
    lasts: Annotated[
        Length | None, says("How long it stays Started; as usual for its type if not said.")
    ] = None
    held: Annotated[
        Length | None, says("It starts no sooner than this after it was raised, approved or not.")
    ] = None


class Rollout(_Announced, kw_only=True, tag_field="do", tag="rollout"):
    """An update goes over groups, labels or hosts, one update domain of a group at a time."""

    type: Annotated[RolloutType, says("The EventType.")]
    groups: list[Name] = msgspec.field(default_factory=list)
    labels: list[str] = msgspec.field(default_factory=list)
    hosts: list[str] = msgspec.field(default_factory=list)
    bake: Annotated[Length, says("How long between two steps.")] = "0s"
    at_once: Annotated[int, says("How many groups or hosts at a time.", minimum=1)] = 1


class _About(StepEntry, kw_only=True):
    event: Annotated[Name, says("The name of the line that raised it.")]


class Cancel(_About, kw_only=True, tag_field="do", tag="cancel"):
    """It does not happen after all: the event is withdrawn."""


class Approve(_About, kw_only=True, tag_field="do", tag="approve"):
    """An operator approves it."""


class Finish(_About, kw_only=True, tag_field="do", tag="finish"):
    """An operator says that a Started event is over."""


class Restore(_Machine, kw_only=True, tag_field="do", tag="restore"):
    """A machine that was evicted or deleted is there again."""


class Disable(StepEntry, kw_only=True, tag_field="do", tag="disable"):
    """A group stops listening: its document starts over at 1 when a machine of it asks again."""

    group: Annotated[Name, says("Which group.")]


class Interrupt(StepEntry, kw_only=True, tag_field="do", tag="interrupt"):
    """Time passes while nobody serves; with a virtual clock."""

    lost: Annotated[Length, says("How much.")]


class FaultEntry(StepEntry, kw_only=True):
    """A fault, in the words of docs/test/faults.md. Without a time it is active from the start."""

    kind: Annotated[str, says("What goes wrong; forewarn fault kinds lists them.", enum=_KINDS)]
    machine: Annotated[Name, says("Whose requests or events; everybody's if not said.")] = ""
    machines: Annotated[list[Name], says("Or: of several.")] = msgspec.field(default_factory=list)
    group: Annotated[Name, says("Or: of a group.")] = ""
    method: Annotated[
        Literal["GET", "POST"] | None, says("Of which requests; of either if not said.")
    ] = None
    times: Annotated[int | None, says("How often; until it is cleared if not said.", minimum=1)] = (
        None
    )
    skip: Annotated[int, says("So many are spared first.", minimum=0)] = 0
    lasts: Annotated[Length | None, says("How long it is there.")] = None
    probability: Annotated[
        float, says("Of each time; 0.1 is one in ten.", exclusiveMinimum=0, maximum=1)
    ] = 1.0
    seed: Annotated[int | None, says("For the same chances every time.", minimum=0)] = None
    seconds: Annotated[
        float | None, says("How long it takes, where the kind takes time.", minimum=0)
    ] = None
    status: Annotated[int | None, says("Of an error.", minimum=500, maximum=599)] = None
    body: Annotated[str | None, says("What is answered instead.")] = None
    takes_effect: Annotated[bool | None, says("Does an approval take effect all the same?")] = None


def fault(words: FaultEntry, paced: Callable[[Duration], Duration] = lambda _: _) -> NewFault:
    """What is asked of the service."""
    return NewFault(
        kind=words.kind,
        machines=(words.machine,) if words.machine else tuple(words.machines),
        groups=(words.group,) if words.group else (),
        method=words.method or "",
        times=words.times,
        skip=words.skip,
        lasts=None if words.lasts is None else paced(parse_duration(str(words.lasts))),
        probability=words.probability,
        seed=words.seed,
        seconds=words.seconds,
        status=words.status,
        body=words.body,
        takes_effect=words.takes_effect,
    )


class Fault(FaultEntry, kw_only=True, tag_field="do", tag="fault"):
    """From now on something goes wrong."""


class ClearFaults(StepEntry, kw_only=True, tag_field="do", tag="clear-faults"):
    """The service's bad days are over."""

    fault: Annotated[Name, says("The name of the one that is meant; all if not said.")] = ""


class Wait(StepEntry, kw_only=True, tag_field="do", tag="wait"):
    """Nothing, but the scenario goes on until then."""


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
