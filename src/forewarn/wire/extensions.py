"""Extensions of the metadata service: requests of guests on paths of our own, and their bodies.

Waiting for another document than one has (long polling), and readiness for an event. Requests are
refused in the same order and for the same reasons as those of `requests.py`. Azure knows none of
these paths and answers 404; a client then polls.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from forewarn.wire import errors
from forewarn.wire.errors import Problem
from forewarn.wire.headers import Headers, by_name, parameters_of, parse_tags
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
    """Answer with the document as soon as its tag is none of these."""

    version: Version
    tags: frozenset[str]  # bare; if there are none, answer at once
    timeout: float  # seconds


class GetReadiness(msgspec.Struct, frozen=True):
    event: str  # upper case


class PutReadiness(msgspec.Struct, frozen=True):
    event: str  # upper case


ExtensionRequest: TypeAlias = Wait | GetReadiness | PutReadiness


class ReadinessReport(msgspec.Struct, frozen=True):
    """The body of a PUT: whether the machine is ready, and why."""

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


def read_extension_request(
    method: str, path: str, query: bytes, headers: Headers
) -> ExtensionRequest | Problem:
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
    values = by_name(headers)
    if b"x-forwarded-for" in values:
        return errors.FORWARDED
    if values.get(b"metadata", b"").strip().lower() != b"true":
        return errors.NO_METADATA_HEADER
    parameters = parameters_of(query)
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
    named = parse_tags(values.get(b"if-none-match", b"").decode("latin-1"))
    named |= parse_tags(parameters.get("etag", ""))
    return Wait(version, named, min(timeout, MAX_WAIT))


def read_readiness(body: bytes, max_note: int) -> ReadinessReport | Problem:
    """Read the body of a PUT; without one the machine is ready. Any Content-Type will do."""
    if not body:
        return ReadinessReport()
    try:
        content = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return errors.NOT_JSON
    try:
        report = msgspec.convert(content, ReadinessReport)
    except msgspec.ValidationError:
        return errors.BAD_READINESS
    return errors.long_note(max_note) if len(report.note) > max_note else report


def render(readiness: Readiness) -> bytes:
    return msgspec.json.encode(readiness)


def _seconds(text: str) -> float | None:
    """Read `30`, `2.5`, `30s`, `1m30s`, `5min` or `PT5M`; None if it is none of these."""
    text = text.strip().lower()
    if len(text) > MAX_TIMEOUT:
        return None
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3_600 + minutes * 60 + seconds
