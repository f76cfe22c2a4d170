"""A line of a trace, as far as it can be understood. Whatever is in it, nothing here raises.

What a guest sent may be anything at all, so every value is looked at before it is believed, and
what is kept or shown of it is cut to a length.
"""

from __future__ import annotations

import base64
import binascii
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from forewarn.verdict.wording import plain
from forewarn.wire import extensions, requests
from forewarn.wire.errors import Problem
from forewarn.wire.headers import parameters_of

MAX_WORD = 200  # characters of a name, a header or a path that are kept
MAX_ALIKE = 4_096  # characters of a request's head that is known again
KEPT_HEADS = 256  # that are
MAX_SAME = 1_000_000  # polls that one line may stand for
MAX_HEARD_BODY = 1024 * 1024  # bytes of a body or an answer that are looked at


class Stamp(NamedTuple):
    """One moment on both clocks: the service's, and a real one that only differences tell of."""

    t: float
    real: float | None = None


def apart(earlier: Stamp, later: Stamp) -> float:
    """What surely lies between the two: by the clock that went less. A wound clock gives nobody
    time to act, and a program whose own time is wound is as quick as it likes."""
    on_clock = later.t - earlier.t
    if earlier.real is None or later.real is None:
        return on_clock
    return min(on_clock, later.real - earlier.real)


def passed(earlier: Stamp, later: Stamp) -> float:
    """What may lie between the two: by the clock that went more."""
    on_clock = later.t - earlier.t
    if earlier.real is None or later.real is None:
        return on_clock
    return max(on_clock, later.real - earlier.real)


def before(earlier: Stamp, later: Stamp) -> bool:
    """Is it certain that one came before the other?"""
    if earlier.real is None or later.real is None:
        return earlier.t < later.t
    return earlier.real <= later.real


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    machine: str
    source: str  # the address that it came from
    asked: Stamp
    done: Stamp
    method: str
    path: str
    ask: requests.Request | Problem
    version: str  # that it named
    headers: Mapping[str, str]  # names in lower case
    status: int | None
    tag: str
    fault: str
    line: Mapping[str, Any]

    @property
    def took(self) -> float:
        return apart(self.asked, self.done)

    @property
    def same(self) -> int:
        """How many before this one were like it and have no line."""
        said = self.line.get("same")
        return min(max(said, 0), MAX_SAME) if type(said) is int else 0

    def body(self) -> bytes | None:
        """None: too much to look at."""
        return _content(self.line, "body")

    def answer(self) -> bytes | None:
        return _content(self.line, "answer")


def stamp(line: Mapping[str, Any]) -> Stamp | None:
    t = number(line.get("t"))
    return None if t is None else Stamp(t, number(line.get("real")))


def exchange(line: Mapping[str, Any], done: Stamp) -> Exchange:
    asked = number(line.get("asked"))
    target, method = _text(line.get("target"), MAX_HEARD_BODY), word(line.get("method"))
    head = _head(method, target, line.get("headers"))
    status = line.get("status")
    return Exchange(
        machine=word(line.get("machine")),
        source=word(line.get("from")),
        asked=Stamp(done.t if asked is None else asked, number(line.get("real_asked"))),
        done=done,
        method=method,
        path=head.path,
        ask=head.ask,
        version=head.version,
        headers=head.headers,
        status=status if isinstance(status, int) and not isinstance(status, bool) else None,
        tag=_tag(line.get("answer_headers")),
        fault=word(line.get("fault")),
        line=line,
    )


class Head(msgspec.Struct, frozen=True):
    """What a request says before its body."""

    path: str
    ask: requests.Request | Problem
    version: str
    headers: Mapping[str, str]


def _head(method: str, target: str, said: object) -> Head:
    """Nearly all polls of a client are alike, and read once."""
    headers = _headers(said)
    if len(target) + sum(len(name) + len(value) for name, value in headers) > MAX_ALIKE:
        return _read(method, target, headers)
    return _known(method, target, headers)


def _read(method: str, target: str, headers: tuple[tuple[str, str], ...]) -> Head:
    path, _, query = target.partition("?")
    raw = query.encode("latin-1", "replace")
    found = [
        (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in headers
    ]
    ask = requests.read_request(method, path, raw, found)
    by_name = {name.lower(): value for name, value in headers}
    return Head(path, ask, _version(ask, raw), by_name)


_known = functools.lru_cache(maxsize=KEPT_HEADS)(_read)


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def word(value: object) -> str:
    """Cut, and with nothing in it that acts upon a terminal or ends a line."""
    return plain(_text(value, MAX_WORD), MAX_WORD)


def words(value: object, most: int) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(word(one) for one in value[:most] if isinstance(one, str))


def _text(value: object, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""


def _version(ask: requests.Request | Problem, query: bytes) -> str:
    match ask:
        case requests.GetDocument(version=version) | requests.PostApproval(version=version):
            return version.name
        case extensions.Wait(version=version):
            return version.name
    try:
        return word((parameters_of(query) or {}).get("api-version"))
    except ValueError:
        return ""


def _headers(said: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(said, list | tuple):
        return ()
    return tuple([(pair[0], pair[1]) for pair in said if _is_pair(pair)])


def _is_pair(pair: object) -> bool:
    return (
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], str)
    )


def _tag(said: object) -> str:
    for pair in said if isinstance(said, list | tuple) else ():
        if _is_pair(pair) and pair[0].lower() == "etag":
            tag: str = pair[1][:MAX_WORD]
            return tag
    return ""


def _content(line: Mapping[str, Any], key: str) -> bytes | None:
    text, coded = line.get(key), line.get(f"{key}_base64")
    if isinstance(text, str):
        if len(text) > MAX_HEARD_BODY:
            return None
        found = text.encode("utf-8", "replace")
        return found if len(found) <= MAX_HEARD_BODY else None
    if not isinstance(coded, str):
        return b""
    if len(coded) > MAX_HEARD_BODY:
        return None
    try:
        return base64.b64decode(coded)
    except (binascii.Error, ValueError):
        return b""
