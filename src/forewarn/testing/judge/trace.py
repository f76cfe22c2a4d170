"""Reading a trace: records become values, in the order of their time.

What cannot be read is counted and left out; a torn last line after a kill is ordinary.
Nothing is judged here.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Pairs = tuple[tuple[str, str], ...]

# How long before the line ahead of it a torn line may have been asked.
_TORN_REACH = 60.0
_HARMLESS = frozenset({"fleet", "impact", "up", "down", "step", "disabled", "end"})
_HARMLESS_LINE = re.compile(
    rb'"method": ?"GET"|"kind": ?"(?:' + "|".join(sorted(_HARMLESS)).encode() + rb')"'
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer; it took effect at some moment between `asked` and `t`."""

    index: int
    asked: float
    t: float
    machine: str | None
    source: str | None
    method: str
    target: str
    headers: Pairs
    body: bytes
    status: int | None
    answer_headers: Pairs | None
    answer: bytes
    fault: bool


@dataclass(frozen=True, slots=True)
class Seat:
    """A machine as the fleet names it."""

    group: str
    domain: object | None
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetLine:
    t: float
    kinds: Mapping[str, str]
    machines: Mapping[str, Seat]
    complete: bool


@dataclass(frozen=True, slots=True)
class Impact:
    index: int
    t: float
    event: str
    type: str | None
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Approval:
    t: float
    event: str


@dataclass(frozen=True, slots=True)
class Disabled:
    index: int
    t: float
    group: str


@dataclass(frozen=True, slots=True)
class Trace:
    exchanges: tuple[Exchange, ...]
    fleets: tuple[FleetLine, ...]
    impacts: tuple[Impact, ...]
    approvals: tuple[Approval, ...]
    disabled: tuple[Disabled, ...]
    breaks: tuple[float, ...]  # moments at which serving or the clock was interrupted
    backstep: float  # how far, in all, the clock was stepped back
    complete: bool
    unreadable: int
    doubt: float  # from here on an approval may have come that could not be read

    @property
    def gapless(self) -> bool:
        """Complete, and nothing in it hides what the service would have answered."""
        return self.complete and not any(e.fault or e.status is None for e in self.exchanges)


class _UnreadableError(Exception):
    """A record that is not what its kind promises."""


def read_lines(paths: Sequence[Path]) -> Iterator[object]:
    """The records of all files, one after the other; a line that is not JSON stays bytes."""
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                if line.isspace():
                    continue
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    yield line


def read_trace(records: Iterable[object]) -> Trace:
    unreadable = 0
    doubt = math.inf
    last = -math.inf
    timed: list[tuple[float, Mapping[str, object]]] = []
    for record in records:
        try:
            if not isinstance(record, Mapping) or not isinstance(record.get("kind"), str):
                raise _UnreadableError
            last = _number(record, "t")
            timed.append((last, record))
        except _UnreadableError:
            unreadable += 1
            if _may_approve(record):
                doubt = min(doubt, last - _TORN_REACH)
    timed.sort(key=lambda pair: pair[0])

    exchanges: list[Exchange] = []
    fleets: list[FleetLine] = []
    impacts: list[Impact] = []
    approvals: list[Approval] = []
    disabled: list[Disabled] = []
    breaks: list[float] = []
    backstep = 0.0
    for index, (t, record) in enumerate(timed):
        try:
            match record["kind"]:
                case "exchange":
                    exchange = _exchange(index, t, record)
                    exchanges.append(exchange)
                    if exchange.status is None and not exchange.fault:
                        breaks.append(t)
                case "fleet":
                    fleets.append(_fleet(t, record))
                case "impact":
                    impacts.append(_impact(index, t, record))
                case "approval":
                    approvals.append(Approval(t, _text(record, "event").upper()))
                case "disabled":
                    disabled.append(Disabled(index, t, _text(record, "group")))
                case "up" | "down":
                    breaks.append(t)
                case "step":
                    breaks.append(t)
                    backstep += max(0.0, -_number(record, "seconds"))
                case _:
                    pass
        except _UnreadableError:
            unreadable += 1
            if _may_approve(record):
                doubt = min(doubt, t - _TORN_REACH)
    return Trace(
        tuple(exchanges),
        tuple(fleets),
        tuple(impacts),
        tuple(approvals),
        tuple(disabled),
        tuple(breaks),
        backstep,
        bool(fleets) and all(fleet.complete for fleet in fleets) and not unreadable,
        unreadable,
        doubt,
    )


def _may_approve(record: object) -> bool:
    """Whether something unreadable could have been an approval: a GET is none, nor an impact."""
    if isinstance(record, Mapping):
        return record.get("kind") not in _HARMLESS and record.get("method") != "GET"
    return not (isinstance(record, bytes) and _HARMLESS_LINE.search(record))


def _exchange(index: int, t: float, record: Mapping[str, object]) -> Exchange:
    # An exchange that does not say when it was asked may have been asked at any time before.
    asked = _number(record, "asked") if record.get("asked") is not None else -math.inf
    status = record.get("status")
    if "status" not in record or not (status is None or type(status) is int):
        raise _UnreadableError
    answer_headers = record.get("answer_headers")
    return Exchange(
        index,
        min(asked, t),
        t,
        _optional(record, "machine"),
        _optional(record, "from"),
        _text(record, "method"),
        _text(record, "target"),
        _pairs(record.get("headers") or ()),
        _bytes(record, "body"),
        status,
        None if answer_headers is None else _pairs(answer_headers),
        _bytes(record, "answer"),
        bool(record.get("fault")),
    )


def _fleet(t: float, record: Mapping[str, object]) -> FleetLine:
    kinds: dict[str, str] = {}
    for name, group in _mapping(record.get("groups", {})).items():
        kind = _mapping(group).get("kind")
        if isinstance(kind, str):
            kinds[name] = kind
    machines: dict[str, Seat] = {}
    for name, value in _mapping(record.get("machines", {})).items():
        machine = _mapping(value)
        addresses = machine.get("addresses") or ()
        if not isinstance(addresses, list | tuple):
            raise _UnreadableError
        machines[name] = Seat(
            _text(machine, "group"),
            machine.get("update_domain"),
            tuple(str(address) for address in addresses),
        )
    return FleetLine(t, kinds, machines, record.get("complete") is True)


def _impact(index: int, t: float, record: Mapping[str, object]) -> Impact:
    machines = record.get("machines")
    if not isinstance(machines, list | tuple) or not all(isinstance(m, str) for m in machines):
        raise _UnreadableError
    event = _text(record, "event").upper()
    return Impact(index, t, event, _optional(record, "type"), tuple(machines))


def _number(record: Mapping[str, object], key: str) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnreadableError
    # Beyond this, no clock: and float arithmetic on it would say nothing.
    if not abs(value) < 1e12:
        raise _UnreadableError
    return float(value)


def _text(record: Mapping[str, object], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise _UnreadableError
    return value


def _optional(record: Mapping[str, object], key: str) -> str | None:
    return None if record.get(key) is None else _text(record, key)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _UnreadableError
    return value


def _pairs(value: object) -> Pairs:
    if not isinstance(value, list | tuple):
        raise _UnreadableError
    try:
        pairs = tuple([(name.lower(), content) for name, content in value])
    except (TypeError, ValueError, AttributeError):
        raise _UnreadableError from None
    if not all(isinstance(content, str) for _, content in pairs):
        raise _UnreadableError
    return pairs


def _bytes(record: Mapping[str, object], key: str) -> bytes:
    encoded = record.get(f"{key}_base64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise _UnreadableError from None
    text = record.get(key)
    if text is None:
        return b""
    if not isinstance(text, str):
        raise _UnreadableError
    return text.encode("utf-8", "surrogatepass")
