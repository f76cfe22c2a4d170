"""Beside the wire: what a guest may ask on paths of our own, and what it is told there.

Waiting for a document that is another, and readiness for an event. Pure, as the endpoint's own
requests are, and refused in the same order for the same reasons. Azure knows none of these paths
and answers 404, which means: poll.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from forewarn.wire import errors, requests
from forewarn.wire.errors import Problem
from forewarn.wire.requests import Headers
from forewarn.wire.versions import BY_NAME, NEWEST, VERSIONS, Version

ROOT = "/forewarn/v1/"
WAIT = f"{ROOT}wait"
READY = f"{ROOT}ready"  # and the event

DEFAULT_WAIT = 30.0  # seconds
MAX_WAIT = 300.0  # seconds; whoever asks for longer waits for so long
MAX_TIMEOUT = 40  # characters of a timeout

_WAIT, _READY = WAIT.split("/"), READY.split("/")
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_DURATION = re.compile(r"(?:pt)?(?=\d)(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)


class Wait(msgspec.Struct, frozen=True):
    """Tell me the document when it is none of these."""

    version: Version
    tags: frozenset[str]  # bare; none of them: whatever it is
    timeout: float  # seconds


class GetReadiness(msgspec.Struct, frozen=True):
    event: str  # upper case


class PutReadiness(msgspec.Struct, frozen=True):
    event: str  # upper case


Ask: TypeAlias = Wait | GetReadiness | PutReadiness


class ReadinessReport(msgspec.Struct, frozen=True):
    """What a machine says of itself."""

    ready: bool = True
    note: str = ""


# The order of the fields is the order of the keys.
class ReadyMachine(msgspec.Struct, frozen=True, rename="pascal"):
    machine: str
    at: str  # RFC 1123
    note: str


class Readiness(msgspec.Struct, frozen=True, rename="pascal"):
    event_id: str
    ready: tuple[ReadyMachine, ...]  # in the order they said so
    waiting: tuple[str, ...]  # in the order of the event's Resources


def read(method: str, path: str, query: bytes, headers: Headers) -> Ask | requests.Ask | Problem:
    """What any request asks for, beside the wire or on it."""
    if path[: len(ROOT)].lower() != ROOT:
        return requests.read(method, path, query, headers)
    elements = path.removesuffix("/").split("/")
    place = [element.lower() for element in elements[:4]]
    if place == _WAIT and len(elements) == 4:
        verbs: tuple[str, ...] = ("GET",)
    elif place == _READY and len(elements) == 5:
        verbs = ("GET", "PUT")
    else:
        return errors.NOT_FOUND
    if method not in verbs:
        return errors.method_not_allowed(", ".join(verbs))
    found = requests.by_name(headers)
    if b"x-forwarded-for" in found:
        return errors.FORWARDED
    if found.get(b"metadata", b"").strip().lower() != b"true":
        return errors.NO_METADATA_HEADER
    parameters = requests.parameters_of(query)
    if parameters is None:
        return errors.DUPLICATE_PARAMETER
    if place == _READY:
        event = elements[4].upper()
        return PutReadiness(event) if method == "PUT" else GetReadiness(event)
    version = BY_NAME.get(parameters.get("api-version", NEWEST.name))
    if version is None:
        return errors.bad_version([version.name for version in VERSIONS])
    timeout = _seconds(parameters["timeout"]) if "timeout" in parameters else DEFAULT_WAIT
    if timeout is None:
        return errors.BAD_TIMEOUT
    named = requests.tags(found.get(b"if-none-match", b"").decode("latin-1"))
    named |= requests.tags(parameters.get("etag", ""))
    return Wait(version, named, min(timeout, MAX_WAIT))


def read_word(body: bytes, max_note: int) -> ReadinessReport | Problem:
    """What a PUT says; without a body it says: ready. Its Content-Type does not matter."""
    if not body:
        return ReadinessReport()
    try:
        said = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return errors.NOT_JSON
    try:
        word = msgspec.convert(said, ReadinessReport)
    except msgspec.ValidationError:
        return errors.NOT_A_WORD
    return errors.long_note(max_note) if len(word.note) > max_note else word


def render(readiness: Readiness) -> bytes:
    return msgspec.json.encode(readiness)


def _seconds(text: str) -> float | None:
    """Of `30`, `2.5`, `30s`, `1m30s`, `5min` or `PT5M`; None if it is none of these."""
    said = text.strip().lower()
    if len(said) > MAX_TIMEOUT:
        return None
    if _NUMBER.fullmatch(said):
        return float(said)
    found = _DURATION.fullmatch(said)
    if found is None:
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3_600 + minutes * 60 + seconds
