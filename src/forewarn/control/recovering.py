"""The answer to a request that was carried out and then not answered, since the service died: made
from what its commit brought about, as that is now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from forewarn.control import rollouts, views
from forewarn.control import schema as s
from forewarn.control.answers import RefusedError, allowed
from forewarn.control.operation import Makes, Operation
from forewarn.core.refusal import unknown
from forewarn.core.registry import RolloutPut
from forewarn.service.platform import Outcome, Outcomes
from forewarn.store.port import Commit, Keyed

if TYPE_CHECKING:
    from forewarn.control.desk import Desk


async def answer(desk: Desk, operation: Operation, kept: Keyed, named: Mapping[str, Any]) -> object:
    commit = await _commit(desk, kept)
    platform, notes = desk.platform, list(commit.notes)
    name = str(next(iter(named.values()), ""))
    match operation.makes:
        case Makes.OUTCOME:
            events = await platform.events(commit.about)
            if not events:
                raise RefusedError(unknown("it was done, and its event has been forgotten since"))
            return views.outcome(Outcome(events[0], commit.notes))
        case Makes.OUTCOMES:
            events = await platform.events(commit.about)
            return views.outcomes(Outcomes(tuple(events), commit.notes))
        case Makes.ROLLOUT:
            ids = [put.rollout.id for put in commit.puts if isinstance(put, RolloutPut)]
            return rollouts.whole(allowed(await desk.rollouts.report(ids[0] if ids else name)))
        case Makes.GROUP:
            group = platform.inventory.group(name)
            if group is None:
                raise RefusedError(unknown(platform.inventory.unknown_group(name)))
            return views.group(group)
        case _:
            found = platform.inventory.machine(name)
            if found is None:
                raise RefusedError(unknown(platform.inventory.unknown_machine(name)))
            shown = views.machine(*found, platform.witness.polls(name), desk.url_of)
            return s.Restored(**msgspec.structs.asdict(shown), notes=notes)


async def _commit(desk: Desk, kept: Keyed) -> Commit:
    async for commit in desk.store.commits(kept.seq - 1):
        if commit.seq == kept.seq:
            return commit
        break
    raise RefusedError(unknown("it was done, and what came of it has been forgotten since"))
