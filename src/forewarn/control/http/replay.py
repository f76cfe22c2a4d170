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
            event = _asked_about(await platform.events(commit.about), operation, name)
            return core.outcome(Outcome(_there(event, "its event"), commit.notes))
        case Creates.OUTCOMES:
            events = await platform.events(commit.about)
            return core.outcomes(Outcomes(tuple(events), commit.notes))
        case Creates.ROLLOUT:
            ids = [put.rollout.id for put in commit.puts if isinstance(put, RolloutPut)]
            report = await context.rollouts.report(ids[0] if ids else name)
            return rollouts.report(_there(report, "its rollout"))
        case Creates.GROUP:
            return core.group(_there(platform.machine_index.group(name), "its group"))
        case _:
            there, machine = _there(platform.machine_index.machine(name), "its machine")
            shown = core.machine(
                there, machine, platform.poll_index.polls(name), context.metadata_url_of
            )
            return s.Restored(**msgspec.structs.asdict(shown), notes=notes)


def _asked_about(events: list[Event], operation: Operation, name: str) -> Event | None:
    """One that goes together with others is committed with them, in an order of their own: it is
    the one that the path names."""
    if operation.tag == "events" and name:
        events = [event for event in events if event.id.startswith(name.strip().upper())]
    return events[0] if events else None


def _there(found: Any, what: str) -> Any:
    """What it was about, if it still is; else without a word about what else there is."""
    if found is None or isinstance(found, Refused):
        raise RefusedError(unknown(f"it was done, and {what} has been forgotten since"))
    return found


async def _commit(context: Context, kept: Keyed) -> Commit:
    async for commit in context.store.commits(kept.seq - 1):
        if commit.seq == kept.seq:
            return commit
        break
    raise RefusedError(unknown("it was done, and what came of it has been forgotten since"))
