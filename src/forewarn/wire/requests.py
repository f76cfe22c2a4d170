"""Requests of guests: what a request asks for, or the error response to it.

`read_request` reads any request; those on paths that Azure does not have are in `extensions.py`. If
several things are wrong, the first in a fixed order decides: path, method, X-Forwarded-For,
Metadata header, duplicate parameter, api-version, body. Callers are identified and limited before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TypeAlias

import msgspec

from forewarn.wire import errors, extensions
from forewarn.wire.bodies import NotJson, read_json
from forewarn.wire.errors import Problem
from forewarn.wire.headers import Headers, by_name, parameters_of
from forewarn.wire.instance import INSTANCE_VERSIONS
from forewarn.wire.versions import BY_NAME, VERSIONS, Version

EVENTS_PATH = "/metadata/scheduledevents"

_EVENTS = EVENTS_PATH.split("/")
_IDENTITY_PATH = "/metadata/identity/oauth2/token"
_MAX_SPLIT = 16  # of a path: no element of instance metadata is as deep
# Ask for one of several identities of a machine, which has one at most.
_OTHER_IDENTITIES = frozenset({"client_id", "object_id", "principal_id", "mi_res_id", "msi_res_id"})
_ACCESS_TOKEN = re.compile(rb'("access_token":")([^"]*)')
MAX_RESOURCE = 512  # characters


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


class GetToken(msgspec.Struct, frozen=True):
    """Asks for a token of the machine's managed identity. A machine without one is answered that,
    whatever else is wrong: clients find out whether there is one."""

    resource: str = ""
    problem: Problem | None = None


class _StartRequest(msgspec.Struct, frozen=True, rename="pascal"):
    event_id: str


class _Approval(msgspec.Struct, frozen=True, rename="pascal"):
    """The body of a POST. What else there is in it is ignored."""

    start_requests: tuple[_StartRequest, ...] = ()


class _Unread(msgspec.Struct, frozen=True, rename="pascal"):
    """The body of a POST that is no approval, to find out why."""

    start_requests: msgspec.Raw = msgspec.Raw()


_approval = msgspec.json.Decoder(_Approval)
_unread = msgspec.json.Decoder(_Unread)

MetadataRequest: TypeAlias = GetDocument | PostApproval | GetInstance | GetVersions | GetToken
Request: TypeAlias = MetadataRequest | extensions.ExtensionRequest


def read_request(method: str, path: str, query: bytes, headers: Headers) -> Request | Problem:
    """Read the head of any request."""
    if path[: len(extensions.ROOT)].lower() == extensions.ROOT:
        return extensions.read_extension_request(method, path, query, headers)
    return read_metadata_request(method, path, query, headers)


def read_metadata_request(
    method: str, path: str, query: bytes, headers: Headers
) -> MetadataRequest | Problem:
    elements = path.removesuffix("/").split("/", _MAX_SPLIT)
    base = [element.lower() for element in elements[:3]]
    if base == _EVENTS and len(elements) == 3:
        methods: tuple[str, ...] = ("GET", "POST")
    elif base == ["", "metadata", "instance"] or (
        base == ["", "metadata", "versions"] and len(elements) == 3
    ):
        methods = ("GET",)
    elif asks_for_token(path):
        return _read_token_request(method, query, headers)
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


def asks_for_token(path: str) -> bool:
    return path.removesuffix("/").lower() == _IDENTITY_PATH


def _read_token_request(method: str, query: bytes, headers: Headers) -> GetToken:
    values, parameters = by_name(headers), parameters_of(query)
    problem: Problem | None = None
    resource = (parameters or {}).get("resource", "")
    if method != "GET":
        problem = errors.method_not_allowed("GET")
    elif b"x-forwarded-for" in values:
        problem = errors.FORWARDED
    elif values.get(b"metadata", b"").strip().lower() != b"true":
        problem = errors.NO_METADATA_HEADER
    elif not _is_address(values.get(b"host", b"")):
        problem = errors.NAMED_HOST
    elif parameters is None:
        problem = errors.DUPLICATE_PARAMETER
    elif parameters.get("api-version", "") not in INSTANCE_VERSIONS:
        problem = errors.bad_version(INSTANCE_VERSIONS)
    elif not resource or len(resource) > MAX_RESOURCE:
        problem = errors.NO_RESOURCE
    elif not _OTHER_IDENTITIES.isdisjoint(parameters):
        problem = errors.NO_IDENTITY
    return GetToken(resource, problem)


def _is_address(host: bytes) -> bool:
    """Does a Host header name an address, or is there none? A page in a browser whose own name was
    made to lead here sends that name."""
    name = host.decode("latin-1").strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        return name in ("", "localhost") or bool(ip_address(name))
    except ValueError:
        return False


def write_token(
    token: str, resource: str, client_id: str, not_before: int, expires_on: int, lasts: int
) -> bytes:
    """Return the answer with a token. Numbers are strings there, and times seconds since 1970."""
    return msgspec.json.encode(
        {
            "access_token": token,
            "client_id": client_id,
            "expires_in": str(lasts),
            "expires_on": str(expires_on),
            "ext_expires_in": str(lasts),
            "not_before": str(not_before),
            "resource": resource,
            "token_type": "Bearer",
        }
    )


def without_token(body: bytes | bytearray) -> bytes:
    """Return an answer for a recording, which must not contain a token; of the same length."""
    return _ACCESS_TOKEN.sub(lambda found: found[1] + b"x" * len(found[2]), body)


def read_approval(body: bytes) -> tuple[str, ...] | Problem:
    """Return the event ids that a POST approves, in upper case. Any Content-Type is accepted."""
    try:
        text = read_json(body)
    except NotJson:
        return errors.NOT_JSON
    try:
        requests = _approval.decode(text).start_requests
    except msgspec.ValidationError:  # at the first entry that is wrong, however many follow
        return errors.NO_EVENT_ID if _has_start_requests(text) else errors.NO_START_REQUESTS
    if not requests:
        return errors.NO_START_REQUESTS
    return tuple(request.event_id.upper() for request in requests)


def _has_start_requests(text: str) -> bool:
    try:
        return bytes(_unread.decode(text).start_requests).startswith(b"[")
    except msgspec.ValidationError:
        return False


def write_approval(ids: Sequence[str]) -> bytes:
    """Return the body of a POST that approves these events."""
    return msgspec.json.encode({"StartRequests": [{"EventId": id} for id in ids]})
