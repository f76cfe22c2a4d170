"""One document: its bytes, read for one api-version, and what is wrong with their shape.

A flaw here needs no other answer to prove it. A document that is too broken to be compared
with others has no events (`events` is None) and takes no part in what follows.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from .dialect import GUID, SIGHT, USER_TYPES, Version, read_iso8601, read_rfc1123

_TOP_KEYS = ("DocumentIncarnation", "Events")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_SPACE = re.compile(r"\s")
_EVENT_SOURCES = ("Platform", "User")

_Noter = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Flaw:
    rule: str
    message: str
    event: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    id: str  # upper case
    status: str
    type: str
    resources: tuple[str, ...]
    not_before: int | None  # None once Started
    description: str | None  # None, here and below: the version does not show it
    source: str | None
    duration: int | None

    @property
    def started(self) -> bool:
        return self.status == "Started"


@dataclass(frozen=True, eq=False, slots=True)
class Document:
    """Compared by identity: equal bytes of one version are read once."""

    version: Version
    flaws: tuple[Flaw, ...]
    incarnation: int | None = None
    events: tuple[Event, ...] | None = None
    ids: frozenset[str] = frozenset()
    scheduled: frozenset[str] = frozenset()
    first_due: int | None = None  # the earliest NotBefore shown
    array: tuple[tuple[str, str, str], ...] = field(default=())  # what an incarnation stands for


class _Object(list[tuple[str, object]]):
    """A JSON object as pairs, so that order and repetition of keys are not lost."""


def _constant(name: str) -> object:
    raise ValueError(name)


def read_document(answer: bytes, version: Version) -> Document:
    try:
        text = answer.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_Object, parse_constant=_constant)
    except (ValueError, RecursionError):
        return Document(version, (Flaw("not-a-document", _quoted("is no JSON", answer)),))
    if not isinstance(value, _Object) or sorted(key for key, _ in value) != sorted(_TOP_KEYS):
        flaw = Flaw("not-a-document", _quoted("has not its two keys and no others", answer))
        return Document(version, (flaw,))
    flaws: list[Flaw] = []
    if _SPACE.search(_STRING.sub("", text)):
        flaws.append(Flaw("not-compact", "The document has white space outside its strings."))
    if tuple(key for key, _ in value) != _TOP_KEYS:
        flaws.append(Flaw("key-order", "DocumentIncarnation must stand before Events."))
    content = dict(value)
    incarnation = content["DocumentIncarnation"]
    if type(incarnation) is not int or incarnation < 1:
        shown = json.dumps(incarnation)
        flaws.append(Flaw("incarnation-form", f"DocumentIncarnation is {shown}."))
        incarnation = None
    listed = content["Events"]
    if not isinstance(listed, list) or isinstance(listed, _Object):
        flaws.append(Flaw("not-a-document", "Events is not a list."))
        return Document(version, tuple(flaws), incarnation)
    read = [_read_event(entry, version, flaws) for entry in listed]
    events = tuple(event for event in read if event is not None)
    ids = frozenset(event.id for event in events)
    if len(ids) < len(events):
        flaws.append(Flaw("duplicate-event", "An event stands twice in one document."))
    if len(ids) < len(read):
        return Document(version, tuple(flaws), incarnation)
    return Document(
        version,
        tuple(flaws),
        incarnation,
        events,
        ids,
        frozenset(event.id for event in events if not event.started),
        min((e.not_before for e in events if e.not_before is not None), default=None),
        tuple((event.id, event.status, event.type) for event in events),
    )


def _read_event(entry: object, version: Version, flaws: list[Flaw]) -> Event | None:
    """The event, or None if it lacks what is needed to compare it; flaws are noted either way."""
    if not isinstance(entry, _Object):
        flaws.append(Flaw("keys", "An entry of Events is not an object."))
        return None
    keys = tuple(key for key, _ in entry)
    values = dict(entry)
    given = values.get("EventId")
    name = given if isinstance(given, str) else None

    def flaw(rule: str, message: str) -> None:
        flaws.append(Flaw(rule, message, name))

    if sorted(keys) != sorted(version.keys):
        extra = [key for key in keys if key not in version.keys]
        missing = [key for key in version.keys if key not in values]
        twice = "" if extra or missing else "a key twice"
        told = [f"also {', '.join(extra)}"] if extra else []
        told += [f"no {', '.join(missing)}"] if missing else []
        flaw("keys", f"An event of {version.name} has {' and '.join(told) or twice}.")
    elif keys != version.keys:
        flaw("key-order", f"An event's keys stand as {', '.join(keys)}.")
    if "EventId" in values and (name is None or not GUID.fullmatch(name) or name != name.upper()):
        flaw("event-id-form", f"EventId is {json.dumps(given)}, not an upper-case GUID.")
    status, kind = values.get("EventStatus"), values.get("EventType")
    if "EventStatus" in values and status not in ("Scheduled", "Started"):
        flaw("event-status", f"EventStatus is {json.dumps(status)}.")
        status = None
    if "EventType" in values and not (isinstance(kind, str) and kind in SIGHT):
        flaw("event-type", f"EventType is {json.dumps(kind)}.")
        kind = None
    elif isinstance(kind, str) and SIGHT[kind] > version.sight:
        flaw("hidden-type", f"{version.name} does not know {kind}, but lists one.")
    if "ResourceType" in values and values["ResourceType"] != "VirtualMachine":
        flaw("resource-type", f"ResourceType is {json.dumps(values['ResourceType'])}.")
    resources = values.get("Resources")
    if isinstance(resources, _Object) or not (
        isinstance(resources, list) and all(isinstance(item, str) for item in resources)
    ):
        if "Resources" in values:
            flaw("resources-form", f"Resources is {json.dumps(resources)}.")
        resources = None
    not_before, timed = _read_not_before(values, version, status, flaw)
    description, source, duration = _read_newer(values, kind, flaw)
    if name is None or status is None or kind is None or resources is None or not timed:
        return None
    return Event(
        name.upper(),
        cast(str, status),
        cast(str, kind),
        tuple(resources),
        not_before,
        description,
        source,
        duration,
    )


def _read_not_before(
    values: dict[str, object], version: Version, status: object, flaw: _Noter
) -> tuple[int | None, bool]:
    """The time shown, and whether it was one that this status may show."""
    if "NotBefore" not in values:
        return None, False
    shown = values["NotBefore"]
    if not isinstance(shown, str):
        flaw("not-before-form", f"NotBefore is {json.dumps(shown)}, not a string.")
        return None, False
    if shown == "":
        if status == "Scheduled":
            flaw("not-before-status", "A Scheduled event shows no NotBefore.")
        return None, status == "Started"
    moment = read_iso8601(shown) if version.preview else read_rfc1123(shown)
    if moment is None:
        form = "ISO 8601" if version.preview else "RFC 1123"
        flaw("not-before-form", f"NotBefore is {shown!r}, not {form} as in {version.name}.")
    if status == "Started":
        flaw("not-before-status", f"A Started event shows NotBefore {shown!r}.")
        return None, False
    return moment, moment is not None


def _read_newer(
    values: dict[str, object], kind: object, flaw: _Noter
) -> tuple[str | None, str | None, int | None]:
    description = values.get("Description")
    if "Description" in values and not isinstance(description, str):
        flaw("description-form", f"Description is {json.dumps(description)}.")
    source = values.get("EventSource")
    if "EventSource" in values and source not in _EVENT_SOURCES:
        flaw("event-source", f"EventSource is {json.dumps(source)}.")
    elif source == "User" and isinstance(kind, str) and kind not in USER_TYPES:
        flaw("event-source", f"A {kind} is shown as a user's.")
    duration = values.get("DurationInSeconds")
    if "DurationInSeconds" in values:
        if type(duration) is not int or duration < -1:
            flaw("duration-form", f"DurationInSeconds is {json.dumps(duration)}.")
        elif source == "User" and duration != -1:
            flaw("duration-form", f"A user's event has DurationInSeconds {duration}, not -1.")
    return (
        description if isinstance(description, str) else None,
        source if isinstance(source, str) else None,
        duration if type(duration) is int else None,
    )


def _quoted(what: str, answer: bytes) -> str:
    shown = answer[:60].decode("utf-8", "replace")
    return f"A 200 to a GET {what}: {shown!r}{'…' if len(answer) > 60 else ''}."
