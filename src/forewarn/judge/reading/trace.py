"""Reads a trace: converts records into values, in the order of time.

Lines that cannot be read are counted and skipped: an incomplete last line is normal after a kill.
Nothing is judged here.
"""

import base64
import binascii
import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from .recording_file import Torn, TornFirst
from .records import (
    Approval,
    Configuration,
    Disabled,
    DisconnectedLine,
    Exchange,
    FleetLine,
    FleetMachine,
    Gap,
    HaltsLine,
    Impact,
    Joint,
    MaintenanceLine,
    Over,
    Pairs,
    Placement,
    Reach,
    RecordedEvent,
    Scope,
    Step,
    Trace,
    Unannounced,
    Window,
    WithoutNode,
)

_T = TypeVar("_T")

# Seconds before the previous line at which the request of a missing line may have been sent.
MISSING_REACH = 60.0
# Stores of one process, which knows whether a commit has failed. A database may carry it out later.
_DEFINITE_ENGINES = frozenset({"sqlite", "memory"})
_NOT_APPROVALS = frozenset(
    {
        "fleet",
        "impact",
        "up",
        "down",
        "step",
        "disabled",
        "joint",
        "window",
        "placement",
        "disconnected",
        "joined",
        "without-node",
        "halts",
        "maintenance",
        "ignores-windows",
        "postponed",
        "unannounced",
        "over",
        "event",
        "short-notice",
        "activity",
        "scenario",
        "unresponsive",
        "responsive",
        "partial",
        "gap",
        "unreachable",
        "reachable",
        "clock",
        "end",
    }
)
_NOT_APPROVAL_LINE = re.compile(
    rb'"method": ?"GET"|"kind": ?"(?:' + "|".join(sorted(_NOT_APPROVALS)).encode() + rb')"'
)


class _UnreadableError(Exception):
    """A record that is not what its kind promises."""


def read_trace(records: Iterable[object]) -> Trace:
    """Convert records into a trace. Equal values are shared: a long trace repeats itself."""
    unreadable = torn = 0
    approvals_uncertain_from = math.inf
    last = -math.inf
    shared: dict[object, object] = {}
    exchanges: list[Exchange] = []
    fleets: list[FleetLine] = []
    impacts: list[Impact] = []
    approvals: list[Approval] = []
    disabled: list[Disabled] = []
    ups: list[float] = []
    downs: list[float] = []
    steps: list[Step] = []
    interruptions: list[float] = []
    joints: list[Joint] = []
    windows: list[Window] = []
    unannounced: list[Unannounced] = []
    overs: list[Over] = []
    short_notices: set[str] = set()
    moves: dict[str, set[str]] = {}
    changes: dict[str | None, list[float]] = {}
    partial = False
    postponed: dict[str, set[int]] = {}
    placements: list[Placement] = []
    halts: list[HaltsLine] = []
    maintenance: list[MaintenanceLine] = []
    ignores_windows: dict[str, float] = {}
    recorded: dict[str, RecordedEvent] = {}
    disconnected: list[DisconnectedLine] = []
    without_node: list[WithoutNode] = []
    # By how much that of a node may be wrong, by its host and the time since when.
    clocks: dict[tuple[str, float], float] = {}
    wall: set[bool] = set()
    engines: set[object] = set()
    node_ups: dict[str, list[float]] = {}
    gaps: list[Gap] = []
    control_ups: list[float] = []
    reach: list[Reach] = []
    for index, record in enumerate(records):
        try:
            if not isinstance(record, Mapping) or not isinstance(record.get("kind"), str):
                raise _UnreadableError
            last = t = _number(record, "t")
            match record["kind"]:
                case "exchange":
                    exchange = _exchange(index, t, record, shared)
                    exchanges.append(exchange)
                    if exchange.status is None and not exchange.fault:
                        interruptions.append(t)
                case "fleet":
                    fleets.append(_fleet(t, record, shared))
                case "impact":
                    impacts.append(_impact(t, record))
                case "approval":
                    approvals.append(Approval(t, _text(record, "event").upper()))
                case "disabled":
                    disabled.append(
                        Disabled(index, t, _text(record, "group"), record.get("removed") is True)
                    )
                case "up" | "down" if record.get("host") is not None:
                    interruptions.append(t)  # of one node, while the others went on
                    host = _text(record, "host")
                    if record["kind"] == "up":
                        node_ups.setdefault(host, []).append(t)
                    if record.get("clock_error") is not None:
                        clocks[host, t] = _number(record, "clock_error")
                case "clock":
                    since = _number(record, "since")
                    clocks[_text(record, "host"), since] = _number(record, "error")
                case "up":
                    answered = record.get("answered") is True  # all the time, by nodes
                    (interruptions if answered else ups).append(t)
                    control_ups.append(t)
                    wall.add(record.get("clock") == "wall")
                    engines.add(record.get("engine"))
                case "down":
                    downs.append(t)
                case "step":
                    of_node = record.get("host") is not None
                    steps.append(Step(t, _number(record, "seconds"), of_node))
                case "joint":
                    joints.append(_joint(t, record))
                case "window":
                    windows.append(_window(record))
                case "placement":
                    placements.append(_placement(t, record))
                case "disconnected" | "joined":
                    disconnected.append(_disconnected(index, t, record))
                case "without-node":
                    without_node.append(WithoutNode(t, _text(record, "host")))
                case "halts":
                    halts.append(_halts(t, record))
                case "maintenance":
                    maintenance.append(_maintenance(t, record))
                case "ignores-windows":
                    since = t if record.get("from") is None else _number(record, "from")
                    event = _text(record, "event").upper()
                    ignores_windows[event] = min(since, ignores_windows.get(event, since))
                case "postponed":
                    later = postponed.setdefault(_text(record, "event").upper(), set())
                    later.add(round(_number(record, "not_before")))
                case "unannounced":
                    unannounced.append(_unannounced(t, record))
                case "over":
                    overs.append(Over(t, _text(record, "event").upper()))
                case "short-notice":
                    short_notices.add(_text(record, "event").upper())
                case "event":
                    if record.get("move") == "postpone":
                        later = postponed.setdefault(_text(record, "event").upper(), set())
                        later.add(round(_number(record, "not_before")))
                    moves.setdefault(_text(record, "event").upper(), set()).add(
                        _text(record, "move")
                    )
                    group = record.get("group")
                    group_name = group if isinstance(group, str) else None
                    changes.setdefault(group_name, []).append(t)
                    event = _text(record, "event").upper()
                    recorded[event] = _recorded(recorded.get(event, RecordedEvent()), t, record)
                case "gap":
                    gaps.append(_gap(t, record))
                    if record.get("until") is not None:  # the clock may have been set back
                        steps.append(Step(t, min(0.0, _number(record, "until") - t)))
                case "unreachable" | "reachable":
                    reached = record["kind"] == "reachable"
                    reach.append(Reach(t, reached, _names(record, "hosts")))
                case "partial":
                    partial, approvals_uncertain_from = True, -math.inf
                case _:
                    pass
        except _UnreadableError:
            if isinstance(record, Torn):
                torn += 1
                continue
            unreadable += 1
            if _may_approve(record):
                since = -math.inf if isinstance(record, TornFirst) else last - MISSING_REACH
                approvals_uncertain_from = min(approvals_uncertain_from, since)
    if node_ups and not (control_ups or fleets or recorded):
        gaps.append(Gap(-math.inf))  # nothing of control's recording is there
    # Sorting is stable: among equals the given order stays.
    return Trace(
        tuple(sorted(exchanges, key=lambda exchange: exchange.t)),
        tuple(sorted(fleets, key=lambda fleet: fleet.t)),
        tuple(sorted(impacts, key=lambda impact: impact.t)),
        tuple(approvals),
        tuple(sorted(disabled, key=lambda line: line.t)),
        tuple(sorted(ups)),
        tuple(sorted(downs)),
        tuple(steps),
        tuple(sorted([*interruptions, *ups, *downs, *_times(steps), *_times(gaps)])),
        sum((max(0.0, -step.seconds) for step in steps), _difference(clocks)),
        bool(fleets) and all(fleet.complete for fleet in fleets) and not unreadable + torn,
        unreadable,
        torn,
        approvals_uncertain_from,
        tuple(joints),
        tuple(windows),
        tuple(unannounced),
        tuple(overs),
        frozenset(short_notices),
        {event: frozenset(names) for event, names in moves.items()},
        {group: tuple(sorted(times)) for group, times in changes.items()},
        partial,
        {event: frozenset(times) for event, times in postponed.items()},
        tuple(sorted(placements, key=lambda line: line.t)),
        tuple(sorted(halts, key=lambda line: line.t)),
        tuple(sorted(maintenance, key=lambda line: line.t)),
        ignores_windows,
        recorded,
        tuple(sorted(disconnected, key=lambda line: line.t)),
        tuple(without_node),
        wall == {True},
        bool(engines) and engines <= _DEFINITE_ENGINES,
        {host: tuple(times) for host, times in node_ups.items()},
        tuple(
            _until_next_up(gap, control_ups if gap.host is None else node_ups.get(gap.host, ()))
            for gap in gaps
        ),
        tuple(sorted(reach, key=lambda line: line.t)),
    )


def _difference(clocks: Mapping[tuple[str, float], float]) -> float:
    """Return how far the clocks of two nodes may be from each other."""
    errors: dict[str, float] = {}
    for (host, _), error in clocks.items():
        errors[host] = max(error, errors.get(host, 0.0))
    return sum(sorted(errors.values())[-2:])


def _times(lines: Iterable[Step] | Iterable[Gap]) -> Iterator[float]:
    return (line.t for line in lines)


def _may_approve(record: object) -> bool:
    """Return whether an unreadable record could have been an approval."""
    if isinstance(record, Mapping):
        return record.get("kind") not in _NOT_APPROVALS and record.get("method") != "GET"
    return not (isinstance(record, bytes) and _NOT_APPROVAL_LINE.search(record))


def _exchange(
    index: int, t: float, record: Mapping[str, object], shared: dict[object, object]
) -> Exchange:
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
        _pairs(record.get("headers") or (), shared),
        _bytes(record, "body", shared),
        status,
        None if answer_headers is None else _pairs(answer_headers, shared),
        _bytes(record, "answer", shared),
        bool(record.get("fault")),
        _optional(record, "host"),
        None if record.get("real") is None else _number(record, "real"),
    )


def _fleet(t: float, record: Mapping[str, object], shared: dict[object, object]) -> FleetLine:
    kinds: dict[str, str] = {}
    for name, group in _mapping(record.get("groups", {})).items():
        kind = _mapping(group).get("kind")
        if isinstance(kind, str):
            kinds[name] = kind
    machines: dict[str, FleetMachine] = {}
    for name, value in _mapping(record.get("machines", {})).items():
        machine = _mapping(value)
        addresses = machine.get("addresses") or ()
        if not isinstance(addresses, list | tuple):
            raise _UnreadableError
        machines[name] = FleetMachine(
            _share(_text(machine, "group"), shared),
            _domain(machine),
            _share(tuple(str(address) for address in addresses), shared),
            () if machine.get("hosts") is None else _share(_names(machine, "hosts"), shared),
        )
    grace = None if record.get("grace") is None else _number(record, "grace")
    speed = 1.0 if record.get("speed") is None else _number(record, "speed")
    groups = _mapping(record.get("groups", {}))
    windowed = frozenset(n for n, group in groups.items() if _mapping(group).get("windows") is True)
    complete = record.get("complete") is True
    shown = {name: _mapping(group).get("shown") for name, group in groups.items()}
    numbers = {name: number for name, number in shown.items() if isinstance(number, int)}
    back_within = {}
    for name, group in groups.items():
        if within := _mapping(_mapping(group).get("back_within", {})):
            back_within[name] = {type: _number(within, type) for type in within}
    return FleetLine(
        *(t, kinds, machines, complete, grace, max(1.0, speed), windowed, numbers, back_within)
    )


def _impact(t: float, record: Mapping[str, object]) -> Impact:
    event = _text(record, "event").upper()
    return Impact(t, event, _optional(record, "type"), _names(record, "machines"))


def _joint(t: float, record: Mapping[str, object]) -> Joint:
    events = _mapping(record.get("events"))
    groups = {id.upper(): _text(events, id) for id in events}
    host = _optional(record, "host")
    return Joint(t, _text(record, "id"), groups, host, record.get("domain"))


def _domain(machine: Mapping[str, object]) -> object | None:
    """Return the update domain of a machine; if several fault domains have a part in it, with its
    fault domain."""
    update, fault = machine.get("update_domain"), machine.get("fault_domain")
    return update if update is None or fault is None else f"{update}.{fault}"


def _placement(t: float, record: Mapping[str, object]) -> Placement:
    machines = _mapping(record.get("machines"))
    return Placement(t, {name: _names(machines, name) for name in machines})


def _disconnected(index: int, t: float, record: Mapping[str, object]) -> DisconnectedLine:
    machines, host = _names(record, "machines"), _optional(record, "host")
    return DisconnectedLine(index, t, record["kind"] == "joined", machines, host)


def _gap(t: float, record: Mapping[str, object]) -> Gap:
    host = _optional(record, "host")
    if record.get("beginning") is True:
        stated = math.inf if record.get("stated") is None else _number(record, "stated")
        return Gap(-math.inf, t, host, stated)
    until = math.inf if record.get("until") is None else _number(record, "until")
    return Gap(min(t, until), max(t, until), host)


def _until_next_up(gap: Gap, ups: Iterable[float]) -> Gap:
    """End a gap where the recorder has begun again, perhaps in another file; for control, where any
    control node, which may have taken over, has."""
    if gap.stated is not None:
        return replace(gap, stated=min([gap.stated, *(up for up in ups if up >= gap.until)]))
    return replace(gap, until=min([gap.until, *(up for up in ups if up > gap.t)]))


def _halts(t: float, record: Mapping[str, object]) -> HaltsLine:
    return HaltsLine(t, tuple(_scope(halt) for halt in _list(record, "halts")))


def _maintenance(t: float, record: Mapping[str, object]) -> MaintenanceLine:
    configurations = tuple(
        Configuration(
            _text(configuration, "name"),
            _scope(configuration),
            tuple(_span(times) for times in _items(configuration, "open")),
        )
        for configuration in _list(record, "configurations")
    )
    return MaintenanceLine(t, _number(record, "until"), configurations)


def _scope(record: Mapping[str, object]) -> Scope:
    groups = None if record.get("groups") is None else frozenset(_names(record, "groups"))
    machines = None if record.get("machines") is None else frozenset(_names(record, "machines"))
    return Scope(groups, machines)


def _span(value: object) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise _UnreadableError
    opens, closes = ({"time": time} for time in value)
    return _number(opens, "time"), _number(closes, "time")


def _recorded(before: RecordedEvent, t: float, record: Mapping[str, object]) -> RecordedEvent:
    """Return what is known about an event after another line of the service about it."""
    if before == RecordedEvent():
        with contextlib.suppress(_UnreadableError):
            before = RecordedEvent(
                _optional(record, "group"),
                None if record.get("machines") is None else _names(record, "machines"),
                _optional(record, "type"),
                _optional(record, "source"),
            )
    move = record.get("move")
    if move in ("raise", "strike") and before.raised is None:
        before = replace(before, raised=t, unlisted=record.get("listed") is False)
    if move == "start" and before.started is None:
        approved = None if record.get("approved") is None else _number(record, "approved")
        by = _optional(record, "approved_by")
        return replace(before, started=t, approved=approved, approved_by=by)
    if move == "finish" and record.get("carried_out") is True:
        return replace(before, carried_out=t)
    return before


def _window(record: Mapping[str, object]) -> Window:
    closes = None if record.get("closes") is None else _number(record, "closes")
    return Window(_text(record, "event").upper(), _number(record, "opens"), closes)


def _unannounced(t: float, record: Mapping[str, object]) -> Unannounced:
    machines = None if record.get("machines") is None else _names(record, "machines")
    event = _text(record, "event").upper()
    return Unannounced(t, event, _optional(record, "group"), machines)


def _number(record: Mapping[str, object], key: str) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnreadableError
    # No clock goes beyond this, and float arithmetic would be too coarse.
    if not abs(value) < 1e12:
        raise _UnreadableError
    return float(value)


def _text(record: Mapping[str, object], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise _UnreadableError
    return value


def _names(record: Mapping[str, object], key: str) -> tuple[str, ...]:
    names = record.get(key)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise _UnreadableError
    return tuple(names)


def _items(record: Mapping[str, object], key: str) -> Sequence[object]:
    value = record.get(key)
    if not isinstance(value, list | tuple):
        raise _UnreadableError
    return value


def _list(record: Mapping[str, object], key: str) -> Iterator[Mapping[str, object]]:
    return (_mapping(item) for item in _items(record, key))


def _optional(record: Mapping[str, object], key: str) -> str | None:
    return None if record.get(key) is None else _text(record, key)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _UnreadableError
    return value


def _pairs(value: object, shared: dict[object, object]) -> Pairs:
    if not isinstance(value, list | tuple):
        raise _UnreadableError
    try:
        pairs = tuple([_share((name.lower(), content), shared) for name, content in value])
    except (TypeError, ValueError, AttributeError):
        raise _UnreadableError from None
    for _, content in pairs:
        if not isinstance(content, str):
            raise _UnreadableError
    return _share(pairs, shared)


def _bytes(record: Mapping[str, object], key: str, shared: dict[object, object]) -> bytes:
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
    return _share(text.encode("utf-8", "surrogatepass"), shared)


def _share(value: _T, shared: dict[object, object]) -> _T:
    """Return the equal value that is stored already, or store this one."""
    return cast(_T, shared.setdefault(value, value))
