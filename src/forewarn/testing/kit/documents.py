"""Types of the documents that machines get, as parsed JSON."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from forewarn.testing.names import EventSource, EventStatus, EventType


class DocumentEvent(TypedDict):
    """One event in a document of the newest api-version."""

    EventId: str
    """The id, which approvals name."""
    EventStatus: EventStatus
    """Whether it is announced or has begun."""
    EventType: EventType
    """What happens to the machines."""
    ResourceType: Literal["VirtualMachine"]
    """What its resources are."""
    Resources: list[str]
    """The names of the machines that it affects."""
    NotBefore: str
    """The earliest start without an approval, as an HTTP date; empty when it has started."""
    Description: str
    """A sentence for people."""
    EventSource: EventSource
    """Who has caused it."""
    DurationInSeconds: int
    """The expected duration of the impact in seconds, or -1 if it is not known."""


class Document(TypedDict):
    """A document of the newest api-version."""

    DocumentIncarnation: int
    """A number that changes whenever the list of events does."""
    Events: list[DocumentEvent]
    """The events of the machine's group that are Scheduled or Started."""


class VersionedEvent(TypedDict):
    """One event in a document of any api-version: older ones lack some keys."""

    EventId: str
    """The id, which approvals name."""
    EventStatus: EventStatus
    """Whether it is announced or has begun."""
    EventType: EventType
    """What happens to the machines. Older versions do not list events of newer types."""
    ResourceType: Literal["VirtualMachine"]
    """What its resources are."""
    Resources: list[str]
    """The names of the machines that it affects; in 2017-03-01 with a leading underscore, except in
    cloud services."""
    NotBefore: str
    """The earliest start without an approval, as an HTTP date, or in 2017-03-01 in the format of
    ISO 8601; empty when it has started."""
    Description: NotRequired[str]
    """A sentence for people. Since 2019-04-01."""
    EventSource: NotRequired[EventSource]
    """Who has caused it. Since 2019-08-01."""
    DurationInSeconds: NotRequired[int]
    """The expected duration of the impact in seconds, or -1 if it is not known. Since
    2020-07-01."""


class VersionedDocument(TypedDict):
    """A document of any api-version."""

    DocumentIncarnation: int
    """A number that changes whenever the list of events does."""
    Events: list[VersionedEvent]
    """The events of the machine's group that are Scheduled or Started, if the version knows their
    type."""
