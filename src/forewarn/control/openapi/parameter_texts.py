"""What the document says of parameters and shapes beyond their types: which values there are, how
they are written, what they mean. The handlers enforce it; schemathesis compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.control.http.paging import TIMED
from forewarn.control.schema import types as w
from forewarn.core.history import What
from forewarn.core.labels import MAX_TERMS

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._/:@+-]{0,61}[A-Za-z0-9])?)?"
_TERM = rf"({_NAME}\s*!?=\s*{_VALUE}|!?\s*{_NAME})"
SELECTOR = rf"^\s*({_TERM}(\s*,\s*{_TERM}){{0,{MAX_TERMS - 1}}})?\s*$"
ID = r"^[0-9A-Fa-f-]{1,36}$"
MARK = r"^[0-9]{1,18}-[0-9]{1,18}$"
DAYS = r"(000[1-9]|[1-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
TIME = rf"{DAYS}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
WHEN = rf"^({TIME}|([0-9]{{1,4}}[dhms]){{1,5}}|[0-9]{{1,9}}(\.[0-9]{{1,9}})?)$"
_kinds = "|".join(what.value for what in What)
WHATS = rf"^(({_kinds})(,({_kinds})){{0,20}})?$"

_QUERY: Mapping[str, tuple[dict[str, Any], str]] = {
    "group": ({}, "Only of this group."),
    "machine": ({}, "Only those about this machine."),
    "host": ({}, "Only those of this host."),
    "event": ({"pattern": ID}, "Only of this event: its id, or how that begins."),
    "label": (
        {"pattern": SELECTOR},
        "Only those with these labels: `k=v`, `k!=v`, `k` or `!k`, with commas between them.",
    ),
    "kind": ({"enum": list(w.KINDS)}, "Only groups of this kind."),
    "enabled": ({}, "Only groups that ask for their events, or only those that do not."),
    "gone": ({}, "Only machines that are no more, or only those that are."),
    "listening": ({}, "Only machines whose group asks for its events, or only the others."),
    "health": ({"enum": list(w.HEALTHS)}, "Only those that are, or are on, a host like this."),
    "type": ({"enum": list(w.EVENT_TYPES)}, "Only events of this type."),
    "status": ({"enum": list(w.STATUSES)}, "Only events that stand so."),
    "source": ({"enum": list(w.SOURCES)}, "Only events that come from there."),
    "cause": ({}, "Only events with this cause."),
    "rollout": ({"pattern": ID}, "Only events that this rollout caused."),
    "state": ({"enum": list(w.STATES)}, "Only rollouts that stand so."),
    "raised_since": (
        {"pattern": WHEN},
        "Only events raised then or later: a time, or how long ago.",
    ),
    "since": ({"pattern": WHEN}, "Then or later: a time, or how long ago (`2h`)."),
    "until": ({"pattern": WHEN}, "Before then: a time, or how long ago."),
    "what": ({"pattern": WHATS}, "Only these kinds of record, with commas between them."),
    "past": ({}, "Also those that are over."),
    "plan": ({}, "Only tell what would change."),
    "force": ({}, "Also remove what has an active event."),
    "oldest_first": ({}, "The oldest first."),
    "wait": ({}, "How many seconds to wait if there is nothing yet."),
}
_OF_CALL: Mapping[tuple[str, str], tuple[dict[str, Any], str]] = {
    ("getHistory", "before"): ({"pattern": MARK}, "What the page before called `next`."),
    ("getHistory", "after"): (
        {"pattern": MARK},
        "What the page before called `next`, where the oldest come first.",
    ),
    ("getHistory", "after_seq"): ({}, "Only records with a higher number, in order of numbers."),
    ("listEvents", "after"): ({"pattern": TIMED}, ""),
    ("listRollouts", "after"): ({"pattern": TIMED}, ""),
    ("listTokens", "after"): ({"pattern": TIMED}, ""),
    ("followFeed", "after"): ({}, "The commit to go on behind; from now on, if left out."),
    ("getChanges", "after"): ({}, "The commit to go on behind."),
}


def of_path(name: str, tag: str) -> dict[str, Any]:
    if name != "id":
        return {"minLength": 1}
    return {"minLength": 1} if tag in ("tokens", "faults") else {"pattern": ID}


def of_query(name: str, call: str) -> tuple[dict[str, Any], str]:
    return _OF_CALL.get((call, name)) or _QUERY.get(name) or ({}, "")


def _one_of(*names: str) -> dict[str, Any]:
    return {"oneOf": [_only(name, names) for name in names]}


def _only(name: str, names: tuple[str, ...]) -> dict[str, Any]:
    others = {other: {"type": "null"} for other in names if other != name}
    there = {name: {"not": {"type": "null"}}}
    return {"required": [name], "properties": there | others}


def _not_both(one: str, other: str) -> dict[str, Any]:
    """At most one of them is said, null being nothing."""
    null = {"type": "null"}
    return {"anyOf": [{"properties": {one: null}}, {"properties": {other: null}}]}


SHAPES: Mapping[str, dict[str, Any]] = {
    "AdvanceRequest": _one_of("by", "to"),
    "ScaleInRequest": _one_of("count", "to"),
    "ScheduleRequest": _not_both("notice", "not_before"),
    "MaintainRequest": _not_both("notice", "not_before"),
}
