"""The step `schedule`: any possible event, also those that no operator could announce."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from forewarn.core import EventType, Refused, Source
from forewarn.core import commands as c
from forewarn.core.events import UNKNOWN_DURATION
from forewarn.core.refusal import conflict
from forewarn.core.time import Duration
from forewarn.core.windows.model import Span
from forewarn.node import Node
from forewarn.service.platform.platform import Outcome
from forewarn.support.text import parse_duration
from forewarn.testing.scenarios.file import timeline_shapes

BY = "scenario"


@runtime_checkable
class SupportsLength(Protocol):
    """A driver that can be told how long an event stays Started, as the simulated one can."""

    def let_last(self, event: str, length: Duration | None) -> None: ...


async def schedule(node: Node, entry: timeline_shapes.Schedule) -> Outcome | Refused:
    platform = node.platform
    machines = tuple(entry.machines) or (entry.machine,)
    group = platform.common_group(machines)
    if isinstance(group, Refused):
        return group
    id, length = platform.new_id(), _duration(entry.lasts)
    driver = node.driver
    if length is not None:
        if not isinstance(driver, SupportsLength):
            return conflict("this service's driver decides how long an event lasts; remove 'lasts'")
        driver.let_last(id, length)  # before it can start
    outcome = await platform.announce(group, _command(node, entry, id, machines))
    if isinstance(outcome, Refused):
        if length is not None and isinstance(driver, SupportsLength):
            driver.let_last(id, None)
        return outcome
    if entry.sudden and outcome.event.status.value == "Scheduled":
        return await platform.approve(outcome.event.id, BY)
    return outcome


def _command(
    node: Node, entry: timeline_shapes.Schedule, id: str, machines: tuple[str, ...]
) -> c.Command:
    type, source = EventType(entry.type), Source(entry.source)
    duration = UNKNOWN_DURATION if entry.duration is None else entry.duration
    failure = source is Source.PLATFORM and duration == UNKNOWN_DURATION
    if entry.sudden and failure and not type.traits.deletes:
        description = entry.description or ""
        return c.Fail(id=id, type=type, machines=machines, by=BY, description=description)
    held = _duration(entry.held)
    span = None
    if held is not None:
        span = Span(opens=node.writer.now().at + node.config.rules.paced(held))
    return c.Raise(
        id=id,
        type=type,
        machines=machines,
        by=BY,
        source=source,
        notice=_duration(entry.notice),
        short_notice=entry.short_notice,
        description=entry.description or "",
        duration=duration,
        span=span,
    )


def _duration(text: str | float | None) -> Duration | None:
    return None if text is None else parse_duration(str(text))
