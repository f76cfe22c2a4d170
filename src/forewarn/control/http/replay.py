"""The response to a keyed request whose service died between commit and response, rebuilt from the
current state of what the commit changed."""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.control.http.context import Context
from forewarn.control.http.errors import RefusedError
from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.control.schema.rollouts import RolloutReport
from forewarn.control.views import core, rollouts
from forewarn.core import Event, Refused
from forewarn.core.refusal import unknown
from forewarn.core.registry import RolloutPut
from forewarn.service.platform.platform import Outcome, Outcomes
from forewarn.store.port import Commit, KeyedRequest


async def rebuild_response(
    context: Context, operation: Operation[Any], keyed: KeyedRequest, name: str
) -> object:
    """Return the response body; `name` is the resource that the path names, if it names one."""
    commit = await _commit(context, keyed)
    platform, notes = context.platform, list(commit.notes)
    if operation.returns is s.Outcome:
        event = _event_of_path(await platform.events(commit.about), operation, name)
        return core.outcome(Outcome(_existing(event, "its event"), commit.notes))
    if operation.returns is s.Outcomes:
        events = await platform.events(commit.about)
        return core.outcomes(Outcomes(tuple(events), commit.notes))
    if operation.returns is RolloutReport:
        ids = [put.rollout.id for put in commit.puts if isinstance(put, RolloutPut)]
        report = await context.rollouts.report(ids[0] if ids else name)
        return rollouts.report(_existing(report, "its rollout"))
    if operation.returns is s.Group:
        group = _existing(platform.machine_index.group(name), "its group")
        return core.group(group, platform.coverage(group.machines))
    assert operation.returns is s.MachineOutcome, operation.call
    group, machine = _existing(platform.machine_index.machine(name), "its machine")
    polls, now = platform.poll_index.polls(name), platform.writer.now().at
    view = core.machine(group, machine, polls, context.metadata_url_of, now)
    return s.MachineOutcome(**msgspec.structs.asdict(view), notes=notes)


def _event_of_path(events: list[Event], operation: Operation[Any], name: str) -> Event | None:
    """Return the event that the path names. An event of joint maintenance is committed together
    with others, in any order."""
    if operation.path.startswith("/v1/events/") and name:
        events = [event for event in events if event.id.startswith(name.strip().upper())]
    return events[0] if events else None


def _existing(value: Any, what: str) -> Any:
    """Return the value if it still exists. The refusal names nothing: the caller may have a
    limit."""
    if value is None or isinstance(value, Refused):
        raise RefusedError(
            unknown(f"the request was carried out, but {what} has been deleted since")
        )
    return value


async def _commit(context: Context, keyed: KeyedRequest) -> Commit:
    async for commit in context.store.commits(keyed.seq - 1):
        if commit.seq == keyed.seq:
            return commit
        break
    raise RefusedError(
        unknown("the request was carried out, but its result has been deleted since")
    )
