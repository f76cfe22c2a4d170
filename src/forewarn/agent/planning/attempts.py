"""How a hook's stage stands after the attempts so far: done, to be tried again and when, or given
up. Pure; the limits of trying are here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.state.runs import Outcome, Run, State

RETRY_PAUSE = 1.0  # seconds before the second attempt, twice that before the third, and so on
MAX_RETRY_PAUSE = 30.0
LOST_ATTEMPTS = 3  # of a stage that the machine died in the middle of, time and again
UNDO_ATTEMPTS = 12  # until an undo is given up; with its pauses, 24 minutes
UNDO_PAUSE = 2.0  # seconds before an undo's second attempt, doubled from then on
MAX_UNDO_PAUSE = 300.0


class AttemptSummary(msgspec.Struct, frozen=True):
    attempts: int = 0  # made so far, also those that were never begun
    good: bool = False
    given_up: bool = False
    not_until: float = 0.0  # by the machine's own clock

    @property
    def settled(self) -> bool:
        return self.good or self.given_up


FRESH = AttemptSummary()


def standing(runs: Sequence[Run], hook: Hook, stage: Stage) -> AttemptSummary:
    """Of one stage of one hook, with its runs in their order. An active one is not settled."""
    if not runs:
        return FRESH
    last = runs[-1]
    attempts = last.attempt
    if last.active:
        return AttemptSummary(attempts)
    if any(run.good for run in runs):
        return AttemptSummary(attempts, good=True)
    if last.result and last.result.outcome in (Outcome.NO_TIME, Outcome.CANCELLED):
        return AttemptSummary(attempts, given_up=True)
    lost = sum(_lost(run) for run in runs)
    failed = len(runs) - lost
    if stage == "undo":
        if len(runs) >= UNDO_ATTEMPTS:
            return AttemptSummary(attempts, given_up=True)
        pause = _pause(UNDO_PAUSE, MAX_UNDO_PAUSE, failed)
    else:
        if failed > hook.retries or lost >= LOST_ATTEMPTS:
            return AttemptSummary(attempts, given_up=True)
        pause = _pause(RETRY_PAUSE, MAX_RETRY_PAUSE, failed)
    if last.result is None:
        return AttemptSummary(attempts)  # lost: nobody knows when, and it has been a while
    return AttemptSummary(attempts, not_until=last.result.ended + pause)


def _lost(run: Run) -> bool:
    """It came to no end of its own: the machine died, or somebody stopped it. That is no
    failure."""
    stopped = run.result is not None and run.result.outcome == Outcome.STOPPED
    return stopped or run.state == State.LOST


def _pause(first: float, most: float, failed: int) -> float:
    return float(min(most, first * 2 ** min(max(failed - 1, 0), 32)))
