"""An event in a test's hands: where it stands now, and what a test can do about it.

Reading it asks the service and polls nothing: the verdict does not take a test for a client.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from forewarn.core import Event as Record
from forewarn.core import EventType, Source, Time
from forewarn.support.text import parse_duration
from forewarn.testing.kit.errors import RefusedByService, allowed

if TYPE_CHECKING:
    from forewarn.testing.kit.inprocess import Answer
    from forewarn.testing.kit.machines import Machine
    from forewarn.testing.kit.service import Service


AnEvent: TypeAlias = "Event | Record | str"  # whatever says which


def id_of(event: AnEvent) -> str:
    return event if isinstance(event, str) else event.id


class Announcement(TypedDict, total=False):
    """What may be said of an event, besides its type and machines."""

    notice: str | float | None  # "20m", or seconds; what the type promises if not said
    not_before: Time  # instead of a notice: microseconds since 1970
    short_notice: bool  # yes, it is meant to be less than what the type promises
    description: str
    duration: int  # of the impact, in seconds; -1 if it is not known
    source: str  # Platform or User


def announced(details: Announcement) -> dict[str, Any]:
    """The same as the platform takes it."""
    said: dict[str, Any] = dict(details)
    if said.get("notice") is not None:
        said["notice"] = duration_of(said["notice"])
    if "source" in said:
        sources = {source.value.lower(): source for source in Source}
        if said["source"].lower() not in sources:
            raise RefusedByService(f"an event's source is Platform or User, not '{said['source']}'")
        said["source"] = sources[said["source"].lower()]
    return said


def duration_of(said: str | float) -> int:
    try:
        return parse_duration(str(said))
    except ValueError as error:
        raise RefusedByService(str(error)) from None


def event_type(type: str) -> EventType:
    for kind in EventType:
        if kind.value.lower() == type.lower():
            return kind
    kinds = ", ".join(kind.value for kind in EventType)
    raise RefusedByService(f"'{type}' is no type of event; there are {kinds}")


def instant(at: Time) -> datetime:
    return datetime.fromtimestamp(at / 1_000_000, UTC)


class Event:
    """One event. Its id, type and machines never change; all else is as it is when asked for."""

    def __init__(self, service: Service, record: Record) -> None:
        self._service = service
        self._raised = record

    @property
    def id(self) -> str:
        return self._raised.id

    @property
    def type(self) -> str:
        """Freeze, Reboot, Redeploy, Preempt or Terminate."""
        return self._raised.type.value

    @property
    def source(self) -> str:
        """Platform or User."""
        return self._raised.source.value

    @property
    def group(self) -> str:
        return self._raised.group

    @property
    def resources(self) -> tuple[str, ...]:
        return self._raised.resources

    @property
    def description(self) -> str:
        return self._raised.description

    @property
    def duration(self) -> int:
        """How long the impact is said to last, in seconds; -1 if that is not known."""
        return self._raised.duration

    @property
    def not_before(self) -> datetime:
        return instant(self._raised.not_before)

    @property
    def record(self) -> Record:
        """All that the service knows of it now."""
        found: Record = allowed(self._service.run(self._service.node.platform.event(self.id)))
        return found

    @property
    def status(self) -> str:
        """Scheduled or Started, as guests are shown it; then Finished or Withdrawn, when they see
        it gone."""
        return self.record.status.value

    @property
    def over(self) -> bool:
        return self.record.status.over

    @property
    def approved_by(self) -> str | None:
        """The machine that approved it first, `operator`, or None."""
        approval = self.record.approved
        return approval.by if approval else None

    @property
    def started_at(self) -> datetime | None:
        at = self.record.started_at
        return instant(at) if at is not None else None

    @property
    def ended_at(self) -> datetime | None:
        at = self.record.ended_at
        return instant(at) if at is not None else None

    @property
    def ready(self) -> tuple[str, ...]:
        """The machines that have said that they are prepared."""
        return tuple(one.machine for one in self.record.ready)

    @property
    def seen_by(self) -> dict[str, datetime]:
        """The machines that were shown it in an answer, and when first. While it is active."""
        explained = allowed(self._service.run(self._service.node.platform.explain(self.id)))
        return {machine: instant(at) for machine, at in explained.seen_by.items()}

    def explain(self) -> str:
        """Where it stands and what it waits for, in words."""
        says: str = allowed(self._service.run(self._service.node.platform.explain(self.id))).says
        return says

    def approve(self, by: Machine | str | None = None) -> Event:
        """As an operator, or as a machine that sends the POST. It starts if nothing holds it."""
        if by is None:
            self._service.did(self._service.node.platform.approve(self.id, "operator"))
            return self
        answer: Answer = self._service.approve(str(by), self)
        if answer.status != 200:
            said = answer.body.decode(errors="replace")
            raise RefusedByService(f"machine '{by}' was answered {answer.status}: {said}")
        return self

    def cancel(self, why: str = "") -> Event:
        """It does not happen after all. Only what has not started can be cancelled."""
        self._service.did(self._service.node.platform.cancel(self.id, "operator", why))
        return self

    def finish(self, reason: str = "the test says so") -> Event:
        """It is over now, whatever the driver is doing."""
        self._service.did(self._service.node.platform.finish(self.id, "operator", reason))
        return self

    def until_started(self, *, approve: bool = False, play: bool = False) -> Event:
        """Wind the clock to its NotBefore, or approve it; refused if it does not start then."""
        from forewarn.testing.kit import course

        course.to_start(self._service, self, approve=approve, play=play)
        return self

    def until_over(self, *, play: bool = False) -> Event:
        """Wind the clock until guests see it gone."""
        from forewarn.testing.kit import course

        course.to_end(self._service, self, play=play)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        words = f"{self.type} {self.id} of {', '.join(self.resources)}"
        try:
            return f"<{words}: {self.record.status.value}>"
        except Exception:  # the service has stopped, and that is no reason to fail in a message
            return f"<{words}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.record, name)
