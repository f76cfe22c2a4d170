"""What a request asks for, or what is wrong with it.

When several things are wrong the first in one fixed order answers: path, verb,
X-Forwarded-For, Metadata header, duplicate parameter, api-version, body. Who asks, and how
often, has been looked at before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias
from urllib.parse import parse_qsl

import msgspec

from forewarn.wire import errors
from forewarn.wire.errors import Problem
from forewarn.wire.instance_versions import INSTANCE_VERSIONS
from forewarn.wire.versions import BY_NAME, VERSIONS, Version

EVENTS_PATH = "/metadata/scheduledevents"
ANY = "*"
MAX_TAGS = 64  # of If-None-Match that are looked at; without a match the answer is whole

_EVENTS = EVENTS_PATH.split("/")


class GetDocument(msgspec.Struct, frozen=True):
    version: Version
    if_none_match: str = ""


class PostApproval(msgspec.Struct, frozen=True):
    version: Version


class GetInstance(msgspec.Struct, frozen=True):
    version: str
    path: tuple[str, ...]
    format: str


class GetVersions(msgspec.Struct, frozen=True):
    pass


Ask: TypeAlias = GetDocument | PostApproval | GetInstance | GetVersions
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]  # names in lower case


def read(method: str, path: str, query: bytes, headers: Headers) -> Ask | Problem:
    elements = path.removesuffix("/").split("/")
    place = [element.lower() for element in elements[:3]]
    if place == _EVENTS and len(elements) == 3:
        verbs: tuple[str, ...] = ("GET", "POST")
    elif place == ["", "metadata", "instance"] or (
        place == ["", "metadata", "versions"] and len(elements) == 3
    ):
        verbs = ("GET",)
    else:
        return errors.NOT_FOUND
    if method not in verbs:
        return errors.method_not_allowed(", ".join(verbs))
    found = by_name(headers)
    if b"x-forwarded-for" in found:
        return errors.FORWARDED
    parameters = parameters_of(query)
    if found.get(b"metadata", b"").strip().lower() != b"true":
        excused = (
            method == "POST"
            and b"metadata" not in found
            and b"origin" not in found
            and parameters is not None
            and (version := BY_NAME.get(parameters.get("api-version", ""))) is not None
            and version.preview
        )
        if not excused:
            return errors.NO_METADATA_HEADER
    if parameters is None:
        return errors.DUPLICATE_PARAMETER
    match place[2]:
        case "versions":
            return GetVersions()
        case "instance":
            name = parameters.get("api-version", "")
            if name not in INSTANCE_VERSIONS:
                return errors.bad_version(INSTANCE_VERSIONS)
            return GetInstance(name, tuple(elements[3:]), parameters.get("format", "json").lower())
    known = BY_NAME.get(parameters.get("api-version", ""))
    if known is None:
        return errors.bad_version([version.name for version in VERSIONS])
    if method == "POST":
        return PostApproval(known)
    return GetDocument(known, found.get(b"if-none-match", b"").decode("latin-1"))


def read_approval(body: bytes) -> tuple[str, ...] | Problem:
    """The event ids that a POST approves, in upper case. Its Content-Type does not matter."""
    try:
        said = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return errors.NOT_JSON
    requests = said.get("StartRequests") if isinstance(said, dict) else None
    if not isinstance(requests, list) or not requests:
        return errors.NO_START_REQUESTS
    ids: list[str] = []
    for request in requests:
        id = request.get("EventId") if isinstance(request, dict) else None
        if not isinstance(id, str):
            return errors.NO_EVENT_ID
        ids.append(id.upper())
    return tuple(ids)


def write_approval(ids: Sequence[str]) -> bytes:
    return msgspec.json.encode({"StartRequests": [{"EventId": id} for id in ids]})


def tags(if_none_match: str) -> frozenset[str]:
    """What the header names, bare. Quoted, bare, weak, or in a list: all are sent."""
    parts = [part.strip() for part in if_none_match.split(",", MAX_TAGS)[:MAX_TAGS]]
    bare = {part.removeprefix("W/").strip('"') for part in parts}
    return frozenset(bare - {"", ANY} | ({ANY} if ANY in parts else set()))


def tag_matches(named: frozenset[str], tag: str) -> bool:
    """Does the header name this tag, or any?"""
    return tag.strip('"') in named or ANY in named


def by_name(headers: Headers) -> dict[bytes, bytes]:
    """By name; a header that is sent twice is one with both values, as HTTP has it."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found[name] = found[name] + b", " + value if name in found else value
    return found


def parameters_of(query: bytes) -> dict[str, str] | None:
    """By name, or None if a name stands twice."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="replace")
    found = dict(pairs)
    return found if len(found) == len(pairs) else None
