"""Requests of guests: what a request asks for, or the error response to it.

`read_request` reads any request; those on paths that Azure does not have are in `extensions.py`. If
several things are wrong, the first in a fixed order decides: path, method, X-Forwarded-For,
Metadata header, duplicate parameter, api-version, body. Callers are identified and limited before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from forewarn.wire import errors, extensions
from forewarn.wire.errors import Problem
from forewarn.wire.headers import Headers, by_name, parameters_of
from forewarn.wire.instance import INSTANCE_VERSIONS
from forewarn.wire.versions import BY_NAME, VERSIONS, Version

EVENTS_PATH = "/metadata/scheduledevents"

_EVENTS = EVENTS_PATH.split("/")
_IDENTITY = ["", "metadata", "identity", "oauth2", "token"]


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


MetadataRequest: TypeAlias = GetDocument | PostApproval | GetInstance | GetVersions
Request: TypeAlias = MetadataRequest | extensions.ExtensionRequest


def read_request(method: str, path: str, query: bytes, headers: Headers) -> Request | Problem:
    """Read the head of any request."""
    if path[: len(extensions.ROOT)].lower() == extensions.ROOT:
        return extensions.read_extension_request(method, path, query, headers)
    return read_metadata_request(method, path, query, headers)


def read_metadata_request(
    method: str, path: str, query: bytes, headers: Headers
) -> MetadataRequest | Problem:
    elements = path.removesuffix("/").split("/")
    base = [element.lower() for element in elements[:3]]
    if base == _EVENTS and len(elements) == 3:
        methods: tuple[str, ...] = ("GET", "POST")
    elif base == ["", "metadata", "instance"] or (
        base == ["", "metadata", "versions"] and len(elements) == 3
    ):
        methods = ("GET",)
    elif [element.lower() for element in elements] == _IDENTITY:
        return errors.NO_IDENTITY  # also without Metadata: true, as clients probe for it
    else:
        return errors.NOT_FOUND
    if method not in methods:
        return errors.method_not_allowed(", ".join(methods))
    values = by_name(headers)
    if b"x-forwarded-for" in values:
        return errors.FORWARDED
    parameters = parameters_of(query)
    if values.get(b"metadata", b"").strip().lower() != b"true":
        header_optional = (
            method == "POST"
            and b"metadata" not in values
            and b"origin" not in values
            and parameters is not None
            and (version := BY_NAME.get(parameters.get("api-version", ""))) is not None
            and version.preview
        )
        if not header_optional:
            return errors.NO_METADATA_HEADER
    if parameters is None:
        return errors.DUPLICATE_PARAMETER
    match base[2]:
        case "versions":
            return GetVersions()
        case "instance":
            name = parameters.get("api-version", "")
            if name not in INSTANCE_VERSIONS:
                return errors.bad_version(INSTANCE_VERSIONS)
            return GetInstance(name, tuple(elements[3:]), parameters.get("format", "json").lower())
    version = BY_NAME.get(parameters.get("api-version", ""))
    if version is None:
        return errors.bad_version([version.name for version in VERSIONS])
    if method == "POST":
        return PostApproval(version)
    return GetDocument(version, values.get(b"if-none-match", b"").decode("latin-1"))


def read_approval(body: bytes) -> tuple[str, ...] | Problem:
    """Return the event ids that a POST approves, in upper case. Any Content-Type is accepted."""
    try:
        content = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return errors.NOT_JSON
    requests = content.get("StartRequests") if isinstance(content, dict) else None
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
    """Return the body of a POST that approves these events."""
    return msgspec.json.encode({"StartRequests": [{"EventId": id} for id in ids]})
