"""Whether a rollout would do again what another one, which is not over, is still to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn.core.refusal import Hint, Refused, conflict
from forewarn.core.rollouts.model import Rollout, Step
from forewarn.core.rollouts.progress import LaneProgress
from forewarn.support.text import listing


def overlap_problem(
    draft: Rollout, others: Iterable[tuple[Rollout, Sequence[LaneProgress]]]
) -> Refused | None:
    """Refuse a rollout of the same kind as another one, if both are to disturb the same machines or
    hosts. What the other one has done is no obstacle, and one that was aborted does nothing more.
    """
    for other, progress in others:
        if other.kind != draft.kind or other.aborted is not None or other.ended_at is not None:
            continue
        remaining = {
            name
            for lane in progress
            for step in lane.steps
            if not step.state.over
            for name in _disturbed(step.step)
        }
        skipped = frozenset(draft.skipped)
        lanes = [
            lane.name
            for lane in draft.lanes
            if any(
                not remaining.isdisjoint(_disturbed(step))
                for step in lane.steps
                if step.cause not in skipped
            )
        ]
        if lanes:
            return conflict(
                f"rollout {other.id} ({other.kind} of {other.selection}), which is"
                f" {'paused' if other.paused else 'under way'}, is still to do the same for"
                f" {listing(lanes)}; wait until it is over, abort it, or leave these out",
                hint=Hint.ALLOW_OVERLAP,
            )
    return None


def _disturbed(step: Step) -> Iterable[tuple[str, str]]:
    """Return the machines of a step, and its host, whose machines may change."""
    if step.host:
        yield "host", step.host
    for machine in step.machines:
        yield "machine", machine
