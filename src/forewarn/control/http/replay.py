"""The response to a keyed request whose service died between commit and response, built again from
what the commit changed, as that is now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.control.http.context import Context
from forewarn.control.http.errors import RefusedError
from forewarn.control.http.operation import Creates, Operation
from forewarn.control.schema import core as s
from forewarn.control.views import core, rollouts
from forewarn.core import Event, Refused
from forewarn.core.refusal import unknown
from forewarn.core.registry import RolloutPut
from forewarn.service.platform.platform import Outcome, Outcomes
from forewarn.store.port import Commit, Keyed


async def answer(
    context: Context, operation: Operation, kept: Keyed, named: Mapping[str, Any]
) -> object:
    commit = await _commit(context, kept)
    platform, notes = context.platform, list(commit.notes)
    name = str(next(iter(named.values()), ""))
    match operation.creates:
        case Creates.OUTCOME:
            event = _event_of_path(await platform.events(commit.about), operation, name)
            return core.outcome(Outcome(_existing(event, "its event"), commit.notes))
        case Creates.OUTCOMES:
            events = await platform.events(commit.about)
            return core.outcomes(Outcomes(tuple(events), commit.notes))
        case Creates.ROLLOUT:
            ids = [put.rollout.id for put in commit.puts if isinstance(put, RolloutPut)]
            report = await context.rollouts.report(ids[0] if ids else name)
            return rollouts.report(_existing(report, "its rollout"))
        case Creates.GROUP:
            return core.group(_existing(platform.machine_index.group(name), "its group"))
        case _:
            group, machine = _existing(platform.machine_index.machine(name), "its machine")
            shown = core.machine(
                group, machine, platform.poll_index.polls(name), context.metadata_url_of
            )
            return s.Restored(**msgspec.structs.asdict(shown), notes=notes)


def _event_of_path(events: list[Event], operation: Operation, name: str) -> Event | None:
    """Return the event that the path names: one that belongs to a joint is committed with others,
    in an order of their own."""
    if operation.tag == "events" and name:
        events = [event for event in events if event.id.startswith(name.strip().upper())]
    return events[0] if events else None


def _existing(value: Any, what: str) -> Any:
    """Return the value if it still exists; raise without naming anything else that does."""
    if value is None or isinstance(value, Refused):
        raise RefusedError(unknown(f"it was done, and {what} has been forgotten since"))
    return value


async def _commit(context: Context, kept: Keyed) -> Commit:
    async for commit in context.store.commits(kept.seq - 1):
        if commit.seq == kept.seq:
            return commit
        break
    raise RefusedError(unknown("it was done, and what came of it has been forgotten since"))
