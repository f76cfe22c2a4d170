"""Turn a request for a rollout into the rollout, or refuse it."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from forewarn.core import EventType, Refused
from forewarn.core.deciding.announce import ticket_problem
from forewarn.core.events import (
    MAX_NOTICE,
    UNKNOWN_DURATION,
)
from forewarn.core.refusal import Hint, conflict, invalid
from forewarn.core.rollouts.lanes import Conflict, conflicts_problem, lanes
from forewarn.core.rollouts.model import EVACUATE_WORK_RETURN, Conflicts, Gate, Rollout, WorkBy
from forewarn.core.rollouts.next_step import announced, appointment
from forewarn.core.rollouts.progress import Configurations
from forewarn.core.rollouts.selection import Selection
from forewarn.core.rollouts.summary import size
from forewarn.core.rollouts.waves import in_waves
from forewarn.core.time import SECOND, Duration, Time
from forewarn.core.windows.model import Window
from forewarn.core.windows.openings import LOOK_AHEAD
from forewarn.core.world import World
from forewarn.service.rollouts.gates import Gates
from forewarn.store.port import Store
from forewarn.support.limits import (
    MAX_AT_ONCE,
    MAX_BAKE_SECONDS,
    MAX_DESCRIPTION,
    MAX_DURATION_SECONDS,
    MAX_FAILURES,
    MAX_LASTS_SECONDS,
    MAX_ORDER_LABELS,
    MAX_WINDOWS,
)
from forewarn.support.text import in_words, listing

MAX_BAKE: Duration = MAX_BAKE_SECONDS * SECOND
MAX_LASTS: Duration = MAX_LASTS_SECONDS * SECOND


class PauseAfter(enum.Enum):
    """After which waves a rollout pauses itself, until somebody resumes it."""

    NOTHING = "nothing"
    CANARY = "canary"  # the first wave
    WAVES = "waves"  # each of them

    def waves(self, last: int) -> int:
        """Return how many waves are followed by a pause, if this is the number of the last one."""
        match self:
            case PauseAfter.NOTHING:
                return 0
            case PauseAfter.CANARY:
                return min(1, last)
            case PauseAfter.WAVES:
                return last


class RolloutRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout to be planned or started."""

    type: EventType
    moves: bool = False  # live migrations of the machines on hosts
    works: bool = False  # hosts are emptied for work on them
    work_by: WorkBy = WorkBy.OPERATOR
    selection: Selection
    by: str
    notice: Duration | None = None
    short_notice: bool = False
    description: str = ""
    ticket: str = ""
    duration: int = UNKNOWN_DURATION
    at_once: int = 1
    windows: tuple[Window, ...] = ()
    gate: Gate | None = None
    bake: Duration = 0
    conflicts: Conflicts = Conflicts.REFUSE
    order_by: tuple[str, ...] = ()  # names of labels
    canary: tuple[str, ...] = ()
    waves: tuple[str, ...] = ()
    pause_after: PauseAfter = PauseAfter.NOTHING
    max_failures: int | None = None
    lasts: Duration | None = None
    ignore_windows: bool = False
    must_end_in_window: bool = False
    deadline: Time | None = None
    allow_overlap: bool = False  # with another rollout that is still to do the same


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout that could be started, the conflicts on its hosts, those of its hosts that cannot
    be told, where its steps would move machines, and whether another rollout is still to do the
    same."""

    rollout: Rollout
    conflicts: tuple[Conflict, ...] = ()
    unreachable: tuple[str, ...] = ()
    targets: Mapping[str, Mapping[str, str]] = {}  # by cause of a step: by machine, or ""
    overlap: Refused | None = None

    @property
    def problem(self) -> Refused | None:
        """Why it cannot be started, if so."""
        refuse = self.rollout.conflicts is Conflicts.REFUSE
        return (conflicts_problem(self.conflicts) if refuse else None) or self.overlap


def draft_rollout(
    wanted: RolloutRequest, id: str, store: Store, gates: Gates, now: World
) -> Draft | Refused:
    """Return the rollout for a request, or why there can be none."""
    found = (
        _request_problem(wanted, now)
        or (gates.gate_problem(wanted.gate) if wanted.gate else None)
        or lanes(
            id,
            wanted.type,
            wanted.selection,
            store.groups,
            store.registry.hosts,
            moves=wanted.moves,
            works=wanted.works,
            conflicts=wanted.conflicts,
            order_by=wanted.order_by,
        )
    )
    if isinstance(found, Refused):
        return found
    lanes_or_refusal = in_waves(found.lanes, wanted.canary, wanted.waves)
    if isinstance(lanes_or_refusal, Refused):
        return lanes_or_refusal
    last_wave = lanes_or_refusal[-1].wave
    draft = Rollout(
        id=id,
        type=wanted.type,
        moves=wanted.moves,
        works=wanted.works,
        work_by=wanted.work_by,
        lanes=lanes_or_refusal,
        by=wanted.by,
        created_at=now.at,
        selection=str(wanted.selection),
        exclusions=wanted.selection.exclusions,
        size=size(lanes_or_refusal, store.groups),
        notice=wanted.notice,
        short_notice=wanted.short_notice,
        description=wanted.description,
        ticket=wanted.ticket,
        duration=wanted.duration,
        at_once=wanted.at_once,
        windows=wanted.windows,
        gate=wanted.gate,
        bake=wanted.bake,
        lasts=wanted.lasts,
        ignore_windows=wanted.ignore_windows,
        must_end_in_window=wanted.must_end_in_window,
        deadline=wanted.deadline,
        pause_after=tuple(range(wanted.pause_after.waves(last_wave))),
        max_failures=wanted.max_failures,
        conflicts=Conflicts.SPLIT if wanted.moves else wanted.conflicts,
        skipped=found.skipped,
    )
    return _appointment_problem(draft, now) or Draft(rollout=draft, conflicts=found.conflicts)


def _appointment_problem(draft: Rollout, now: World) -> Refused | None:
    if appointment(draft, announced(now)) is not None:
        return None
    if appointment(msgspec.structs.replace(draft, deadline=None), announced(now)) is not None:
        return invalid(
            "the deadline is too early: no step could be announced with its notice and start before"
            " it"
        )
    long_enough = " and is long enough for a step to end in it" if draft.must_end_in_window else ""
    return invalid(
        f"none of the windows opens within {in_words(LOOK_AHEAD)}{long_enough}; check their days"
        " and hours"
    )


def never_allowed(
    draft: Rollout, now: World, configurations: Mapping[str, Configurations]
) -> Refused | None:
    """Refuse a rollout if no time within the look-ahead lies in its windows and is allowed by the
    configurations of each step. Whether that time is before the deadline is for the plan to say."""
    endless = msgspec.structs.replace(draft, deadline=None)
    for distinct in dict.fromkeys(configurations.values()):
        if appointment(endless, now, distinct) is None:
            names = listing([f"'{configuration.name}'" for configuration in distinct])
            windows = "its windows and " if draft.windows else ""
            return conflict(
                f"some steps could not start within {in_words(LOOK_AHEAD)}: there is no time that"
                f" {windows}the windows and blackouts of {names} allow",
                hint=Hint.IGNORE_WINDOWS,
            )
    return None


def _request_problem(wanted: RolloutRequest, now: World) -> Refused | None:
    promised = wanted.type.traits.notice
    notice = promised if wanted.notice is None else wanted.notice
    if not 0 <= notice <= MAX_NOTICE:
        return invalid(
            f"a notice must be from 0 s to {in_words(MAX_NOTICE)}, not {in_words(notice)}"
        )
    if (paced := now.rules.paced(notice)) > MAX_NOTICE:
        return invalid(
            f"at this service's speed of {now.rules.speed:g} a notice of {in_words(notice)} takes"
            f" {in_words(paced)}; at most {in_words(MAX_NOTICE)} is allowed"
        )
    if notice < promised and not wanted.short_notice:
        return invalid(
            f"a {wanted.type.value} needs at least {in_words(promised)} of notice,"
            f" not {in_words(notice)}",
            hint=Hint.SHORT_NOTICE,
        )
    if wanted.work_by is not WorkBy.OPERATOR and not wanted.works:
        return invalid(f"work_by is for rollouts of type {EVACUATE_WORK_RETURN}")
    if not 1 <= wanted.at_once <= MAX_AT_ONCE:
        return invalid(f"at_once must be from 1 to {MAX_AT_ONCE}, not {wanted.at_once}")
    if not 0 <= wanted.bake <= MAX_BAKE:
        return invalid(f"a bake time must be from 0 s to {in_words(MAX_BAKE)}")
    if wanted.lasts is not None and not 0 <= wanted.lasts <= MAX_LASTS:
        return invalid(
            f"an event must last from 0 s to {in_words(MAX_LASTS)}, not {in_words(wanted.lasts)}"
        )
    if wanted.must_end_in_window and not (wanted.windows and wanted.lasts):
        return invalid(
            "steps can only be required to end in their window if the rollout has a window and the"
            " expected duration of a step is given",
            hint=Hint.LASTS,
        )
    if wanted.max_failures is not None and not 0 <= wanted.max_failures <= MAX_FAILURES:
        return invalid(f"max_failures must be from 0 to {MAX_FAILURES}, not {wanted.max_failures}")
    if len(wanted.order_by) > MAX_ORDER_LABELS:
        return invalid(f"a rollout can be ordered by at most {MAX_ORDER_LABELS} labels")
    if not UNKNOWN_DURATION <= wanted.duration <= MAX_DURATION_SECONDS:
        return invalid(
            f"duration {wanted.duration} is not a valid duration of the impact; give whole seconds"
            f" from 0 to {MAX_DURATION_SECONDS}, or -1 for unknown"
        )
    if len(wanted.windows) > MAX_WINDOWS:
        return invalid(f"a rollout can have at most {MAX_WINDOWS} windows")
    return ticket_problem(wanted.ticket) or reason_problem(wanted.description)


def reason_problem(text: str) -> Refused | None:
    if len(text) <= MAX_DESCRIPTION:
        return None
    return invalid(f"the text has {len(text)} characters; at most {MAX_DESCRIPTION} are allowed")
