"""The step `schedule`: any possible event, also those that no operator could announce."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from forewarn.core import EventType, Refused, Source
from forewarn.core import commands as c
from forewarn.core.events import UNKNOWN_DURATION
from forewarn.core.refusal import conflict
from forewarn.core.time import Duration
from forewarn.core.windows.model import Span
from forewarn.drivers.simulated import Course
from forewarn.node import Node
from forewarn.service.platform.platform import Outcome
from forewarn.support.text import parse_duration
from forewarn.testing.scenarios.file import timeline_shapes

BY = "scenario"


@runtime_checkable
class SupportsCourses(Protocol):
    """A driver that can be reached how to carry out an event, as the simulated one can."""

    def let_take(self, event: str, course: Course | None) -> None: ...


async def schedule(node: Node, entry: timeline_shapes.Schedule) -> Outcome | Refused:
    platform = node.platform
    machines = tuple(entry.machines) or (entry.machine,)
    group = platform.common_group(machines)
    if isinstance(group, Refused):
        return group
    id, course, driver = platform.new_id(), _course(entry), node.driver
    if course != Course():
        if not isinstance(driver, SupportsCourses):
            return conflict(
                "this service's driver decides how an event is carried out; remove 'lasts',"
                " 'happens' and 'second-after'"
            )
        driver.let_take(id, course)  # before it can start
    outcome = await platform.announce(group, _command(node, entry, id, machines))
    if isinstance(outcome, Refused):
        if isinstance(driver, SupportsCourses):
            driver.let_take(id, None)
        return outcome
    if entry.sudden and outcome.event.status.value == "Scheduled":
        return await platform.approve(outcome.event.id, BY)
    return outcome


def _course(entry: timeline_shapes.Schedule) -> Course:
    return Course(
        lasts=_duration(entry.lasts),
        happens=None if entry.happens is None else EventType(entry.happens),
        second_after=_duration(entry.second_after),
        second_duration=entry.second_duration,
    )


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
