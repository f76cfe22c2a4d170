"""The step `schedule`: any possible event, also those that no operator could announce."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from forewarn.core import EventType, Refused, Source
from forewarn.core import commands as c
from forewarn.core.events import UNKNOWN_DURATION, Span
from forewarn.core.refusal import conflict
from forewarn.core.time import Duration
from forewarn.node import Node
from forewarn.service.platform.platform import Outcome
from forewarn.support.text import parse_duration
from forewarn.testing.scenarios.file import timeline_shapes as d

BY = "scenario"


@runtime_checkable
class Lasting(Protocol):
    """A driver that takes how long an event stays Started, as the simulated one does."""

    def let_last(self, event: str, length: Duration | None) -> None: ...


async def schedule(node: Node, words: d.Schedule) -> Outcome | Refused:
    platform = node.platform
    machines = tuple(words.machines) or (words.machine,)
    group = platform.one_group(machines)
    if isinstance(group, Refused):
        return group
    id, lasts = platform.new_id(), _length(words.lasts)
    driver = node.driver
    if lasts is not None:
        if not isinstance(driver, Lasting):
            return conflict("this service's driver decides how long an event lasts; remove 'lasts'")
        driver.let_last(id, lasts)  # before it can start
    outcome = await platform.announce(group, _command(node, words, id, machines))
    if isinstance(outcome, Refused):
        if lasts is not None and isinstance(driver, Lasting):
            driver.let_last(id, None)
        return outcome
    if words.sudden and outcome.event.status.value == "Scheduled":
        return await platform.approve(outcome.event.id, BY)
    return outcome


def _command(node: Node, words: d.Schedule, id: str, machines: tuple[str, ...]) -> c.Command:
    type, source = EventType(words.type), Source(words.source)
    duration = UNKNOWN_DURATION if words.duration is None else words.duration
    failure = source is Source.PLATFORM and duration == UNKNOWN_DURATION
    if words.sudden and failure and not type.traits.deletes:
        description = words.description or ""
        return c.Fail(id=id, type=type, machines=machines, by=BY, description=description)
    held = _length(words.held)
    span = None
    if held is not None:
        span = Span(opens=node.writer.now().at + node.config.rules.paced(held))
    return c.Raise(
        id=id,
        type=type,
        machines=machines,
        by=BY,
        source=source,
        notice=_length(words.notice),
        short_notice=words.short_notice,
        description=words.description or "",
        duration=duration,
        span=span,
    )


def _length(length: str | float | None) -> Duration | None:
    return None if length is None else parse_duration(str(length))
