"""The answers that a request may get, derived from its bytes alone.

The first thing that is wrong decides, in the promised order: verb, X-Forwarded-For, Metadata
header, duplicate parameter, api-version, body. The caller is judged elsewhere. Where the promises
leave an answer open, none is expected in particular.

A target is taken byte for byte: `%3F` is not a question mark. A service may or may not serve a path
that matches the endpoint's only after decoding, or without its last slash.
Any other path below `/metadata/` that belongs to nothing known is not found, whatever the verb.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import parse_qsl, unquote

from forewarn.judge.dialect import (
    BAD_VERSION,
    GUID,
    METADATA_BRANCHES,
    METADATA_ROOT,
    NEWEST,
    NO_METADATA_HEADER,
    PATH,
    PREVIEW,
    VERSIONS,
    WAIT_PATH,
    Version,
)
from forewarn.judge.reading.records import Pairs

# Bytes; a body up to this size is no reason for 413.
SMALL_BODY = 4096
# Bytes; a longer head may be refused as malformed before any other check.
SMALL_HEAD = 4096

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD = re.compile(r"[\t -~\x80-\U0010ffff]*")  # what may stand in the value of a header
_TARGET = re.compile(r"[!-~]+")
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_ONCE = ("host", "content-length")  # headers that no request has twice


@dataclass(frozen=True, slots=True)
class Expected:
    """The statuses that an answer may have, and the reason for it.

    `errors` are the exact bodies that a 400 may have; with `any_error`, any body of the form
    {"error":"Bad request. …"}.
    """

    statuses: frozenset[int]
    reason: str
    errors: tuple[bytes, ...] = ()
    any_error: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as far as it can be judged by itself.

    `version` is the api-version of the document that a 200 to a GET must contain; None if it need
    not contain one.
    """

    about_events: bool  # whether its path is the endpoint's
    version: Version | None = None
    expected: Expected | None = None
    approves: tuple[str, ...] = ()  # ids, upper case, of a well-formed approval
    mentions: frozenset[str] = frozenset()  # everything in the body of a POST that looks like an id
    tags: tuple[str, ...] | None = None  # If-None-Match (or etag), without quotes and W/
    malformed: bool = False  # possibly not valid HTTP: it may be refused before any other check
    not_found: bool = False  # its path is below /metadata/ and does not exist

    @property
    def well_formed_approval(self) -> bool:
        return bool(self.approves) and self.expected is not None and 200 in self.expected.statuses


def read_request(method: str, target: str, headers: Pairs, body: bytes) -> Request:
    path, _, raw_query = _ABSOLUTE.sub("", target, count=1).partition("?")
    try:
        query = parse_qsl(raw_query, keep_blank_values=True)
    except ValueError:
        return Request(about_events=False)
    if path.lower().removesuffix("/") == WAIT_PATH and method == "GET":
        return _read_wait(query, headers)
    mentions: frozenset[str] = frozenset()
    if method == "POST":
        text = body.decode("utf-8", "replace")
        mentions = frozenset(guid.upper() for guid in GUID.findall(text))
    request = Request(about_events=False, mentions=mentions, malformed=_malformed(method, headers))
    if _decoded(path) != PATH:
        odd = not _TARGET.fullmatch(target) or "#" in target or "%" in path
        long = len(target) + sum(len(name) + len(value) for name, value in headers) > SMALL_HEAD
        return replace(
            request, not_found=_is_not_found(path), malformed=request.malformed or odd or long
        )
    versions = [value for name, value in query if name == "api-version"]
    version = VERSIONS.get(versions[0]) if len(versions) == 1 else None
    request = replace(request, version=version, tags=_tags(headers))
    if path.lower() != PATH or not _TARGET.fullmatch(target) or "#" in target:
        return request
    approval, ids = _read_approval(body) if method == "POST" else ("none", ())
    head = len(target) + sum(len(name) + len(value) for name, value in headers)
    expected = None
    if head > SMALL_HEAD:
        request = replace(request, malformed=True)
    elif method.isupper() and not request.malformed and not _encoded(raw_query, query):
        length = _length(headers, body)
        if length is not None and length > len(body):
            approval = "unsettled"  # not all of it was read
        expected = _expected(method, query, headers, version, approval, length)
    return replace(request, about_events=True, expected=expected, approves=ids)


def _is_not_found(path: str) -> bool:
    root, _, rest = path[1:].partition("/")
    branch = unquote(rest.partition("/")[0], "latin-1").lower()
    return (
        path.startswith("/")
        and root.lower() == METADATA_ROOT
        and bool(rest)
        and (
            branch not in METADATA_BRANCHES
            or (branch == PATH.rpartition("/")[2] and _decoded(path) != PATH)
        )
    )


def _decoded(path: str) -> str:
    return unquote(path, "latin-1").lower().removesuffix("/")


def _encoded(raw: str, query: list[tuple[str, str]]) -> bool:
    """Whether the meaning of a parameter depends on how the query is split and decoded."""
    if not set(raw) & set("%+;#"):
        return False
    plain = [tuple(part.partition("=")[::2]) for part in raw.split("&") if part]
    important = [pair for pair in query if pair[0].lower() == "api-version"]
    as_sent = [pair for pair in plain if pair[0].lower() == "api-version"]
    return (
        ";" in raw
        or important != as_sent
        or [name for name, _ in plain] != [name for name, _ in query]
    )


def _malformed(method: str, headers: Pairs) -> bool:
    names = [name for name, _ in headers]
    lengths = [value.strip() for name, value in headers if name == "content-length"]
    return (
        not _TOKEN.fullmatch(method)
        or any(not _TOKEN.fullmatch(name) or not _FIELD.fullmatch(value) for name, value in headers)
        or any(names.count(name) > 1 for name in _ONCE)
        or not all(length.isascii() and length.isdigit() for length in lengths)
        or ("content-length" in names and "transfer-encoding" in names)
    )


def _length(headers: Pairs, body: bytes) -> int | None:
    """Return the length of the body that was sent or announced; None if it is not known.

    A service need not read a body that is too long or too slow.
    """
    if any(name == "transfer-encoding" for name, _ in headers):
        return None
    announced = [int(value) for name, value in headers if name == "content-length"]
    return max([len(body), *announced])


def _read_wait(query: list[tuple[str, str]], headers: Pairs) -> Request:
    """Read a long-poll. It returns the document like a GET; its errors are not judged."""
    versions = [value for name, value in query if name == "api-version"] or [NEWEST]
    version = VERSIONS.get(versions[0]) if len(versions) == 1 else None
    etags = [("if-none-match", value) for name, value in query if name == "etag" and value]
    return Request(about_events=False, version=version, tags=_tags((*headers, *etags)))


def _expected(
    method: str,
    query: list[tuple[str, str]],
    headers: Pairs,
    version: Version | None,
    approval: str,
    length: int | None,
) -> Expected | None:
    if method not in ("GET", "POST"):
        return Expected(frozenset({405}), f"the verb {method} is not served")
    names = {name for name, _ in headers}
    if "x-forwarded-for" in names:
        return _refused("it came with X-Forwarded-For", method)
    parameters = [name for name, _ in query]
    if any(name != "api-version" and name.lower() == "api-version" for name in parameters):
        return None
    doubled = len(set(parameters)) < len(parameters)
    metadata = [value.strip().lower() for name, value in headers if name == "metadata"]
    if len(metadata) > 1:
        return None
    without: Expected | None = None
    if metadata != ["true"]:
        without = _refused("it has no header Metadata: true", method, NO_METADATA_HEADER)
        preview_post = method == "POST" and ("api-version", PREVIEW) in query
        if not preview_post or "origin" in names:
            return without
        # The preview takes a POST without the header. Whether it also takes one with a wrong
        # value, or with the version named twice, is not promised either way.
        if metadata or doubled:
            return None
    if doubled:
        return _refused("a query parameter is named twice", method)
    if version is None:
        return _refused("its api-version is missing or unknown", method, BAD_VERSION)
    if method == "GET":
        return Expected(frozenset({200, 304}), "it is in order")
    statuses = {500, 408} | ({413} if length is None or length > SMALL_BODY else set())
    match approval:
        case "good":
            return Expected(frozenset(statuses | {200, 400}), "it is in order")
        case "bad":
            return Expected(frozenset(statuses | {400}), "its body is no list of StartRequests")
    return None


def _refused(reason: str, method: str, body: bytes | None = None) -> Expected:
    statuses = {400, 408, 413} if method == "POST" else {400}
    if body is None:
        return Expected(frozenset(statuses), reason)
    return Expected(frozenset(statuses), reason, (body,), any_error=False)


class _Unsettled(Exception):
    """JSON that parsers interpret differently."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({name.lower() for name, _ in pairs}) < len(pairs):
        raise _Unsettled
    return dict(pairs)


def _constant(name: str) -> object:
    raise _Unsettled(name)


def _read_approval(body: bytes) -> tuple[Literal["good", "bad", "unsettled"], tuple[str, ...]]:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return "unsettled", ()
    if text.startswith("\ufeff"):
        return "unsettled", ()
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except ValueError:
        return "bad", ()
    except (_Unsettled, RecursionError):
        return "unsettled", ()
    if not isinstance(value, dict):
        return "bad", ()
    if "StartRequests" not in value:
        return ("unsettled" if "startrequests" in map(str.lower, value) else "bad"), ()
    entries = value["StartRequests"]
    if not isinstance(entries, list) or not entries:
        return "bad", ()
    ids: list[str] = []
    for entry in entries:
        if not isinstance(entry, dict):
            return "bad", ()
        if "EventId" not in entry and "eventid" in map(str.lower, entry):
            return "unsettled", ()
        if not isinstance(entry.get("EventId"), str):
            return "bad", ()
        ids.append(entry["EventId"].upper())
    return "good", tuple(ids)


def _tags(headers: Pairs) -> tuple[str, ...] | None:
    values = [value for name, value in headers if name == "if-none-match"]
    if not values:
        return None
    return tuple(plain_tag(tag) for value in values for tag in value.split(",") if tag.strip())


def plain_tag(tag: str) -> str:
    """Return a tag without quotes and W/, which clients may or may not send."""
    return tag.strip().removeprefix("W/").strip('"')
