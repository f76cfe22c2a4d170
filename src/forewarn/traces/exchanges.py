"""One exchange of a trace: a request and its response, as far as they can be parsed.

Nothing here raises, whatever a line holds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from forewarn.traces.lines import MAX_NAME, MAX_RESOURCES, content, name, number, text
from forewarn.wire import extensions, requests
from forewarn.wire.errors import Problem
from forewarn.wire.headers import parameters_of
from forewarn.wire.versions import BY_NAME, NEWEST, Version

MAX_CACHED_HEAD = 4_096  # characters of a request's head; longer ones are not cached
CACHED_HEADS = 256
MAX_SAME = 1_000_000  # polls that one line can represent
MAX_BODY = 4 * 1024 * 1024  # bytes of a body or a response that are read


class Stamp(NamedTuple):
    """A moment on the service's clock, and on a monotonic clock that only measures differences."""

    t: float
    real: float | None = None


def seconds_between(earlier: Stamp, later: Stamp) -> float:
    """Return the time between two moments by the clock that advanced less.

    Moving a virtual clock gives a client no time to act; and a client whose own clock follows the
    virtual one can act in no time.
    """
    on_clock = later.t - earlier.t
    if earlier.real is None or later.real is None:
        return on_clock
    return min(on_clock, later.real - earlier.real)


def passed(earlier: Stamp, later: Stamp) -> float:
    """Return the time between two moments by the clock that advanced more."""
    on_clock = later.t - earlier.t
    if earlier.real is None or later.real is None:
        return on_clock
    return max(on_clock, later.real - earlier.real)


def before(earlier: Stamp, later: Stamp) -> bool:
    """Return whether one moment certainly came before the other."""
    if earlier.real is None or later.real is None:
        return earlier.t < later.t
    return earlier.real <= later.real


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its response."""

    machine: str
    source: str  # the address that the request came from
    asked: Stamp
    done: Stamp
    method: str
    path: str
    ask: requests.Request | Problem
    version: str  # the api-version of the request
    headers: Mapping[str, str]  # names in lower case
    status: int | None
    tag: str
    fault: str
    gave_up: bool  # the client closed the connection before it was answered
    line: Mapping[str, Any]

    @property
    def took(self) -> float:
        return seconds_between(self.asked, self.done)

    @property
    def route(self) -> str:
        """The path in lower case and without a slash at its end."""
        return self.path.removesuffix("/").lower()

    @property
    def about_events(self) -> bool:
        return self.route == requests.EVENTS_PATH

    @property
    def polls(self) -> bool:
        """Whether it asks for the document, at once or by waiting for a change."""
        return self.method == "GET" and self.route in (requests.EVENTS_PATH, extensions.WAIT)

    @property
    def approves(self) -> bool:
        return self.method == "POST" and self.about_events

    @property
    def readiness_of(self) -> str:
        """The event whose readiness the request reports, or an empty string."""
        prefix = f"{extensions.READY}/"
        if self.method != "PUT" or not self.route.startswith(prefix):
            return ""
        return self.route.removeprefix(prefix).strip("/").upper()

    @property
    def known_version(self) -> Version:
        """The version asked for, or the newest if there is no such version."""
        return BY_NAME.get(self.version, NEWEST)

    @property
    def same(self) -> int:
        """How many identical requests before this one have no line of their own."""
        count = self.line.get("same")
        return min(max(count, 0), MAX_SAME) if type(count) is int else 0

    def body(self) -> bytes | None:
        """Return the request's body, or None if it is too long to be read."""
        return content(self.line, "body", MAX_BODY)

    def answer(self) -> bytes | None:
        """Return the response's body, or None if it is too long to be read."""
        return content(self.line, "answer", MAX_BODY)

    def approved_ids(self) -> tuple[str, ...]:
        """Return the ids in the body of an approval, in upper case; none if it has no such form."""
        ids = requests.read_approval(self.body() or b"")
        if isinstance(ids, Problem):
            return ()
        return tuple(dict.fromkeys(name(id).upper() for id in ids[:MAX_RESOURCES]))


def stamp(line: Mapping[str, Any]) -> Stamp | None:
    t = number(line.get("t"))
    return None if t is None else Stamp(t, number(line.get("real")))


def exchange(line: Mapping[str, Any], done: Stamp) -> Exchange:
    asked = number(line.get("asked"))
    target, method = text(line.get("target"), MAX_BODY), name(line.get("method"))
    head = _head(method, target, line.get("headers"))
    status = line.get("status")
    return Exchange(
        machine=name(line.get("machine")),
        source=name(line.get("from")),
        asked=Stamp(done.t if asked is None else asked, number(line.get("real_asked"))),
        done=done,
        method=method,
        path=head.path,
        ask=head.ask,
        version=head.version,
        headers=head.headers,
        status=status if isinstance(status, int) and not isinstance(status, bool) else None,
        tag=_tag(line.get("answer_headers")),
        fault=name(line.get("fault")),
        gave_up=line.get("gave_up") is True,
        line=line,
    )


class Head(msgspec.Struct, frozen=True):
    """A request without its body."""

    path: str
    ask: requests.Request | Problem
    version: str
    headers: Mapping[str, str]


def _head(method: str, target: str, value: object) -> Head:
    """Read the head of a request, which is cached: nearly all polls of a client have the same."""
    headers = _pairs(value)
    if len(target) + sum(len(key) + len(value) for key, value in headers) > MAX_CACHED_HEAD:
        return _parse_head(method, target, headers)
    return _cached_head(method, target, headers)


def _parse_head(method: str, target: str, headers: tuple[tuple[str, str], ...]) -> Head:
    path, _, query = target.partition("?")
    raw = query.encode("latin-1", "replace")
    encoded = [
        (key.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for key, value in headers
    ]
    ask = requests.read_request(method, path, raw, encoded)
    by_name = {key.lower(): value for key, value in headers}
    return Head(path, ask, _version(ask, raw), by_name)


_cached_head = functools.lru_cache(maxsize=CACHED_HEADS)(_parse_head)


def _version(ask: requests.Request | Problem, query: bytes) -> str:
    match ask:
        case requests.GetDocument(version=version) | requests.PostApproval(version=version):
            return version.name
        case extensions.Wait(version=version):
            return version.name
    try:
        return name((parameters_of(query) or {}).get("api-version"))
    except ValueError:
        return ""


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    """Return the header lines that are pairs of strings."""
    if not isinstance(value, list | tuple):
        return ()
    return tuple([(pair[0], pair[1]) for pair in value if _is_pair(pair)])


def _is_pair(pair: object) -> bool:
    return (
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], str)
    )


def _tag(headers: object) -> str:
    return next((value[:MAX_NAME] for key, value in _pairs(headers) if key.lower() == "etag"), "")
