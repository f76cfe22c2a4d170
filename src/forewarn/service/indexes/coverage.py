"""Coverage: which machines ask for their events at all, and which answer them.

A machine that does not ask is not warned, and one that never approves is disturbed at NotBefore,
whether it is prepared or not.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

import msgspec

from forewarn.core import Machine, Time
from forewarn.core.time import HOUR, Duration
from forewarn.service.indexes.polls import MachinePolls, PollIndex

SILENT_AFTER: Duration = HOUR  # since its last poll


class Coverage(enum.Enum):
    LISTENING = "listening"  # it has asked within SILENT_AFTER
    SILENT = "silent"  # it has asked, but not recently
    NEVER_POLLED = "never-polled"


NEVER_APPROVES = "never-approves"  # whatever its coverage is
COVERAGES = (*(coverage.value for coverage in Coverage), NEVER_APPROVES)


class CoverageCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines have which coverage; those that never approve are in the others, too."""

    listening: int = 0
    silent: int = 0
    never_polled: int = 0
    never_approves: int = 0


def coverage_of(polls: MachinePolls | None, now: Time) -> Coverage:
    if polls is None:
        return Coverage.NEVER_POLLED
    return Coverage.LISTENING if now - polls.last <= SILENT_AFTER else Coverage.SILENT


def never_approves(polls: MachinePolls | None) -> bool:
    """Were events of its own shown to the machine, of which it has never approved any nor reported
    that it is ready? Events that somebody else has approved do not count."""
    return polls is not None and polls.ignored > 0 and polls.answered is None


def has(coverage: str, polls: MachinePolls | None, now: Time) -> bool:
    """Return whether a machine is one of those that a name in COVERAGES selects."""
    if coverage == NEVER_APPROVES:
        return never_approves(polls)
    return coverage_of(polls, now).value == coverage


def count(poll_index: PollIndex, machines: Iterable[Machine], now: Time) -> CoverageCounts:
    """Count those of the machines that are not gone."""
    present = [machine.name for machine in machines if machine.alive]
    polls = [found for name in present if (found := poll_index.polls(name)) is not None]
    return _counts(polls, len(present), now)


def count_all(poll_index: PollIndex, present: int, now: Time) -> CoverageCounts:
    """Count all machines. `present` is how many there are that are not gone."""
    return _counts(tuple(poll_index.all()), present, now)


def _counts(polls: Collection[MachinePolls], present: int, now: Time) -> CoverageCounts:
    earliest = now - SILENT_AFTER
    listening = never_approving = 0
    for found in polls:  # may be all of a large fleet
        if found.last >= earliest:
            listening += 1
        if found.ignored and found.answered is None:
            never_approving += 1
    return CoverageCounts(
        listening=listening,
        silent=len(polls) - listening,
        never_polled=present - len(polls),
        never_approves=never_approving,
    )
