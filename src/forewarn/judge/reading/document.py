"""Reads one document for one api-version, and finds flaws in its form.

A flaw is proven by the document alone. A document that is too broken to be compared with others has
no events (`events` is None) and is not used further.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from forewarn.judge.dialect import GUID, USER_TYPES, WAVE, Version, read_iso8601, read_rfc1123

_TOP_KEYS = ("DocumentIncarnation", "Events")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_SPACE = re.compile(r"\s")
_EVENT_SOURCES = ("Platform", "User")

_AddFlaw = Callable[[str, str], None]


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
    # Id, status and type of each event: what an incarnation identifies.
    array: tuple[tuple[str, str, str], ...] = field(default=())


class _Object(list[tuple[str, object]]):
    """A JSON object as pairs, so that order and repetition of keys are not lost."""


def _constant(name: str) -> object:
    raise ValueError(name)


def read_document(answer: bytes, version: Version) -> Document:
    try:
        text = answer.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_Object, parse_constant=_constant)
    except (ValueError, RecursionError):
        return Document(version, (Flaw("not-a-document", _quoted("is not JSON", answer)),))
    if not isinstance(value, _Object) or sorted(key for key, _ in value) != sorted(_TOP_KEYS):
        flaw = Flaw("not-a-document", _quoted("does not have exactly the two keys", answer))
        return Document(version, (flaw,))
    flaws: list[Flaw] = []
    if _SPACE.search(_STRING.sub("", text)):
        flaws.append(Flaw("not-compact", "The document has white space outside its strings."))
    if tuple(key for key, _ in value) != _TOP_KEYS:
        flaws.append(Flaw("key-order", "DocumentIncarnation must come before Events."))
    content = dict(value)
    incarnation = content["DocumentIncarnation"]
    if type(incarnation) is not int or incarnation < 1:
        text_shown = json.dumps(incarnation)
        flaws.append(Flaw("incarnation-form", f"DocumentIncarnation is {text_shown}."))
        incarnation = None
    listed = content["Events"]
    if not isinstance(listed, list) or isinstance(listed, _Object):
        flaws.append(Flaw("not-a-document", "Events is not a list."))
        return Document(version, tuple(flaws), incarnation)
    entries = [_read_event(entry, version, flaws) for entry in listed]
    events = tuple(event for event in entries if event is not None)
    ids = frozenset(event.id for event in events)
    if len(ids) < len(events):
        flaws.append(Flaw("duplicate-event", "An event is listed twice in one document."))
    if len(ids) < len(entries):
        return Document(version, tuple(flaws), incarnation)
    return Document(
        version,
        tuple(flaws),
        incarnation,
        events,
        ids,
        frozenset(event.id for event in events if not event.started),
        min((event.not_before for event in events if event.not_before is not None), default=None),
        tuple((event.id, event.status, event.type) for event in events),
    )


def _read_event(entry: object, version: Version, flaws: list[Flaw]) -> Event | None:
    """Return the event, or None if it cannot be compared with others; add flaws either way."""
    if not isinstance(entry, _Object):
        flaws.append(Flaw("keys", "An entry of Events is not an object."))
        return None
    keys = tuple(key for key, _ in entry)
    values = dict(entry)
    event_id = values.get("EventId")
    name = event_id if isinstance(event_id, str) else None

    def flaw(rule: str, message: str) -> None:
        flaws.append(Flaw(rule, message, name))

    if sorted(keys) != sorted(version.keys):
        extra = [key for key in keys if key not in version.keys]
        missing = [key for key in version.keys if key not in values]
        twice = "" if extra or missing else "a key twice"
        differences = [f"also {', '.join(extra)}"] if extra else []
        differences += [f"no {', '.join(missing)}"] if missing else []
        flaw("keys", f"An event of {version.name} has {' and '.join(differences) or twice}.")
    elif keys != version.keys:
        flaw("key-order", f"The keys of an event are in the order {', '.join(keys)}.")
    if "EventId" in values and (name is None or not GUID.fullmatch(name) or name != name.upper()):
        flaw("event-id-form", f"EventId is {json.dumps(event_id)}, not an upper-case GUID.")
    status, kind = values.get("EventStatus"), values.get("EventType")
    if "EventStatus" in values and status not in ("Scheduled", "Started"):
        flaw("event-status", f"EventStatus is {json.dumps(status)}.")
        status = None
    if "EventType" in values and not (isinstance(kind, str) and kind in WAVE):
        flaw("event-type", f"EventType is {json.dumps(kind)}.")
        kind = None
    elif isinstance(kind, str) and WAVE[kind] > version.wave:
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
    values: dict[str, object], version: Version, status: object, flaw: _AddFlaw
) -> tuple[int | None, bool]:
    """Return the time, and whether the value is allowed for this status."""
    if "NotBefore" not in values:
        return None, False
    value = values["NotBefore"]
    if not isinstance(value, str):
        flaw("not-before-form", f"NotBefore is {json.dumps(value)}, not a string.")
        return None, False
    if value == "":
        if status == "Scheduled":
            flaw("not-before-status", "A Scheduled event shows no NotBefore.")
        return None, status == "Started"
    moment = read_iso8601(value) if version.preview else read_rfc1123(value)
    if moment is None:
        form = "ISO 8601" if version.preview else "RFC 1123"
        flaw("not-before-form", f"NotBefore is {value!r}, not {form} as in {version.name}.")
    if status == "Started":
        flaw("not-before-status", f"A Started event shows NotBefore {value!r}.")
        return None, False
    return moment, moment is not None


def _read_newer(
    values: dict[str, object], kind: object, flaw: _AddFlaw
) -> tuple[str | None, str | None, int | None]:
    description = values.get("Description")
    if "Description" in values and not isinstance(description, str):
        flaw("description-form", f"Description is {json.dumps(description)}.")
    source = values.get("EventSource")
    if "EventSource" in values and source not in _EVENT_SOURCES:
        flaw("event-source", f"EventSource is {json.dumps(source)}.")
    elif source == "User" and isinstance(kind, str) and kind not in USER_TYPES:
        flaw("event-source", f"A {kind} has EventSource User.")
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


def _quoted(problem: str, answer: bytes) -> str:
    text = answer[:60].decode("utf-8", "replace")
    return f"A 200 to a GET {problem}: {text!r}{'…' if len(answer) > 60 else ''}."
