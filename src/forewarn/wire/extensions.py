"""Extensions of the metadata service: requests on paths that Azure does not have, and their bodies.

Waiting for a new document (long polling), readiness for an event, and postponing one. Requests are
refused in the same order and for the same reasons as those of `requests.py`. Azure answers these
paths with 404; a client then polls.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from forewarn.wire import errors
from forewarn.wire.bodies import NotJson, read_json
from forewarn.wire.errors import Problem
from forewarn.wire.headers import Headers, by_name, parameters_of, parse_tags
from forewarn.wire.times import parse_iso8601, parse_rfc1123
from forewarn.wire.versions import BY_NAME, NEWEST, VERSIONS, Version

ROOT = "/forewarn/v1/"
WAIT = f"{ROOT}wait"
READY = f"{ROOT}ready"  # followed by the id of the event
POSTPONE = f"{ROOT}postpone"  # followed by the id of the event

DEFAULT_WAIT = 30.0  # seconds
MAX_WAIT = 300.0  # seconds; a longer timeout is reduced to this
MAX_TIMEOUT = 40  # characters of a timeout

_WAIT, _READY, _POSTPONE = WAIT.split("/"), READY.split("/"), POSTPONE.split("/")
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_DURATION = re.compile(r"(?:pt)?(?=\d)(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)


class Wait(msgspec.Struct, frozen=True):
    """Wait until the document has another entity tag than these."""

    version: Version
    tags: frozenset[str]  # without quotes; if empty, answer at once
    timeout: float  # seconds


class GetReadiness(msgspec.Struct, frozen=True):
    event: str  # upper case


class PutReadiness(msgspec.Struct, frozen=True):
    event: str  # upper case


class PutPostponement(msgspec.Struct, frozen=True):
    event: str  # upper case


ExtensionRequest: TypeAlias = Wait | GetReadiness | PutReadiness | PutPostponement


class ReadinessReport(msgspec.Struct, frozen=True):
    """The body of a PUT: whether the machine is ready, and why."""

    ready: bool = True
    note: str = ""


class Postponement(msgspec.Struct, frozen=True):
    """The body of a PUT: the time before which the event should not start."""

    until: str  # as NotBefore in a document: RFC 1123, or ISO 8601 in UTC


_report = msgspec.json.Decoder(ReadinessReport)
_postponement = msgspec.json.Decoder(Postponement)


# The order of the fields is the order of the keys.
class ReadyMachine(msgspec.Struct, frozen=True, rename="pascal"):
    machine: str
    at: str  # RFC 1123
    note: str


class Readiness(msgspec.Struct, frozen=True, rename="pascal"):
    event_id: str
    ready: tuple[ReadyMachine, ...]  # in the order of their reports
    waiting: tuple[str, ...]  # in the order of the event's Resources


class Postponed(msgspec.Struct, frozen=True, rename="pascal"):
    event_id: str
    not_before: str  # RFC 1123


def read_extension_request(
    method: str, path: str, query: bytes, headers: Headers
) -> ExtensionRequest | Problem:
    elements = path.removesuffix("/").split("/", len(_READY) + 1)
    base = [element.lower() for element in elements[:4]]
    if base == _WAIT and len(elements) == 4:
        methods: tuple[str, ...] = ("GET",)
    elif base == _READY and len(elements) == 5:
        methods = ("GET", "PUT")
    elif base == _POSTPONE and len(elements) == 5:
        methods = ("PUT",)
    else:
        return errors.NOT_FOUND
    if method not in methods:
        return errors.method_not_allowed(", ".join(methods))
    values = by_name(headers)
    if b"x-forwarded-for" in values:
        return errors.FORWARDED
    if values.get(b"metadata", b"").strip().lower() != b"true":
        return errors.NO_METADATA_HEADER
    parameters = parameters_of(query)
    if parameters is None:
        return errors.DUPLICATE_PARAMETER
    if base == _READY:
        event = elements[4].upper()
        return PutReadiness(event) if method == "PUT" else GetReadiness(event)
    if base == _POSTPONE:
        return PutPostponement(elements[4].upper())
    version = BY_NAME.get(parameters.get("api-version", NEWEST.name))
    if version is None:
        return errors.bad_version([version.name for version in VERSIONS])
    timeout = _seconds(parameters["timeout"]) if "timeout" in parameters else DEFAULT_WAIT
    if timeout is None:
        return errors.BAD_TIMEOUT
    tags = parse_tags(values.get(b"if-none-match", b"").decode("latin-1"))
    tags |= parse_tags(parameters.get("etag", ""))
    return Wait(version, tags, min(timeout, MAX_WAIT))


def read_readiness(body: bytes, max_note: int) -> ReadinessReport | Problem:
    """Read the body of a PUT; an empty one means ready. Any Content-Type is accepted."""
    if not body:
        return ReadinessReport()
    try:
        report = _report.decode(read_json(body))
    except NotJson:
        return errors.NOT_JSON
    except msgspec.ValidationError:
        return errors.BAD_READINESS
    return errors.note_too_long(max_note) if len(report.note) > max_note else report


def read_postponement(body: bytes) -> int | Problem:
    """Read the body of a PUT: the time in it, in seconds since 1970."""
    try:
        until = _postponement.decode(read_json(body)).until
        return parse_iso8601(until) if until.endswith("Z") else parse_rfc1123(until)
    except (NotJson, ValueError):
        return errors.BAD_POSTPONEMENT


def render(answer: Readiness | Postponed) -> bytes:
    return msgspec.json.encode(answer)


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
