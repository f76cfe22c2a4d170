"""What the attempts at one stage of a hook add up to: success, another attempt and when, or failure
for good. Pure; the limits for attempts are here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.state.runs import Outcome, Run, RunState

RETRY_PAUSE = 1.0  # seconds before the second attempt, twice that before the third, and so on
MAX_RETRY_PAUSE = 30.0
LOST_ATTEMPTS = 3  # attempts at a stage during which the machine went down
UNDO_ATTEMPTS = 12  # until an undo is given up; with its pauses, 24 minutes
UNDO_PAUSE = 2.0  # seconds before an undo's second attempt, doubled from then on
MAX_UNDO_PAUSE = 300.0


class AttemptSummary(msgspec.Struct, frozen=True):
    attempts: int = 0  # made so far, including those that never began
    succeeded: bool = False
    given_up: bool = False
    not_until: float = 0.0  # by the machine's own clock

    @property
    def settled(self) -> bool:
        return self.succeeded or self.given_up


NO_ATTEMPTS = AttemptSummary()


def summarize(runs: Sequence[Run], hook: Hook, stage: Stage) -> AttemptSummary:
    """Summarize the runs of one stage of one hook, given in their order. A stage with an active run
    is not settled."""
    if not runs:
        return NO_ATTEMPTS
    last = runs[-1]
    attempts = last.attempt
    if last.active:
        return AttemptSummary(attempts)
    if any(run.succeeded for run in runs):
        return AttemptSummary(attempts, succeeded=True)
    if last.result and last.result.outcome in (Outcome.NO_TIME, Outcome.CANCELLED):
        return AttemptSummary(attempts, given_up=True)
    lost = sum(_is_lost(run) for run in runs)
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
        return AttemptSummary(attempts)  # lost: when is unknown, but it has been a while
    return AttemptSummary(attempts, not_until=last.result.ended + pause)


def _is_lost(run: Run) -> bool:
    """Whether the command was interrupted: the machine went down, or someone stopped it. That is
    not a failure of the hook."""
    stopped = run.result is not None and run.result.outcome == Outcome.STOPPED
    return stopped or run.state == RunState.LOST


def _pause(first: float, longest: float, failed: int) -> float:
    return float(min(longest, first * 2 ** min(max(failed - 1, 0), 32)))
