"""Read a fleet file into a fleet. Every error names line and field.

The shapes are `shapes.py`, what they mean together is `build.py`, YAML is
`support/yaml_events.py`, and messages about wrong values are `support/suggest.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from forewarn.core.commands import Define
from forewarn.core.events import types_that
from forewarn.core.fleet import MAX_NAME, GroupKind, Host
from forewarn.service.fleet import shapes as e
from forewarn.service.fleet.build import (
    MAX_PLACEMENT_GROUP,
    PLACED,
    Fleet,
    FleetBuilder,
    FleetError,
    check_name,
    host_of,
)
from forewarn.service.fleet.shapes import MAX_DOMAIN
from forewarn.support.suggest import value_problem
from forewarn.support.text import not_utf8
from forewarn.support.yaml_events import MAX_DEPTH, MERGE, Events, streams
from forewarn.support.yaml_positions import Where, YamlError, placed

__all__ = [
    "MAX_DEPTH",
    "MAX_DOMAIN",
    "MAX_NAME",
    "MAX_PLACEMENT_GROUP",
    "Fleet",
    "FleetError",
    "load",
    "parse",
    "parse_group",
    "parse_host",
]

PROGRESS_EVERY = 1_000  # machines between two reports of progress

T = TypeVar("T")

_CHOICES = {
    "auto_approve": [type.value for type in types_that(lambda traits: traits.by_user)],
    "kind": [kind.value for kind in GroupKind],
}
_KINDS = {e.GroupEntry: "a group", e.HostEntry: "a host"}
_EMPTY = {
    e.FleetEntry: "it is empty; a fleet has at least groups",
    e.GroupEntry: "it is empty; a group has at least kind and machines",
    e.HostEntry: "it is empty; a host without labels is {}",
}


def load(path: Path) -> Fleet:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FleetError as error:
        raise FleetError(error.named(str(path))) from error
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FleetError(f"{path}: {not_utf8(error)}") from error


def parse(text: str, progress: Callable[[float], None] = lambda _: None) -> Fleet:
    """Parse a fleet file group by group. `progress` is called with the fraction that is read."""
    return _located(text, lambda: _read(Events(text, "a fleet", _EMPTY[e.FleetEntry]), progress))


def parse_group(text: str, name: str, among: Fleet) -> Define:
    """Parse one group that is to be part of a fleet, with distinct names and addresses."""

    def read() -> Define:
        entry = _single_entry(text, name, e.GroupEntry)
        builder = FleetBuilder(among, without=name)
        builder.group(entry, ())
        return builder.finish(_current_defaults(name, among), among.hosts).groups[name]

    return _located(text, read)


def _current_defaults(name: str, among: Fleet) -> e.FleetEntry:
    """Return the defaults for a group's place: those that it has now, since a fleet's defaults are
    not stored."""
    if name not in among.groups:
        return e.FleetEntry(groups=[])
    place = among.groups[name].place
    return e.FleetEntry(groups=[], **{key: getattr(place, key) for key in PLACED})


def parse_host(text: str, name: str) -> Host:
    return _located(text, lambda: host_of(_single_entry(text, name, e.HostEntry), ()))


def _single_entry(text: str, name: str, kind: Any) -> Any:
    events = Events(text, _KINDS[kind], _EMPTY[kind])
    raw = events.value(events.next())
    events.finish()
    if not isinstance(raw, dict):
        raise FleetError("expected a mapping")
    raw.setdefault("name", name)
    entry = _converted(raw, kind, ())
    if entry.name != name:
        raise FleetError(
            f"this request is for '{name}'; leave the name out or give the same", ("name",)
        )
    return entry


def _located(text: str, read: Callable[[], T]) -> T:
    """Add the line to an error; it is only searched for in that case."""
    try:
        return read()
    except YamlError as error:
        raise placed(error, text, FleetError) from error


def _read(events: Events, progress: Callable[[float], None]) -> Fleet:
    event = events.next()
    if type(event) is not yaml.MappingStartEvent:
        raise FleetError("a fleet must be a mapping with at least 'groups'", line=1)
    builder = FleetBuilder()
    fields: dict[Any, Any] = {}
    merged: dict[Any, Any] = {}
    for key, value in events.pairs():
        if key is MERGE:
            merged = events.merged(value)
        elif key == "groups" and streams(value, yaml.SequenceStartEvent):
            fields[key] = []
            for index, item in enumerate(events.items()):
                at: Where = ("groups", index)
                builder.group(_group_entry(events, item, at, progress), at)
                progress(events.fraction)
        else:
            fields[key] = events.value(value)
    events.finish()
    fields = {**merged, **fields}
    groups = fields.get("groups")
    if isinstance(groups, list) and groups:  # they could not be streamed, because of an anchor
        for index, raw in enumerate(groups):
            at = ("groups", index)
            builder.group(_converted(raw, e.GroupEntry, at), at)
        fields["groups"] = []
    entry = _converted(fields, e.FleetEntry, ())
    return builder.finish(entry, tuple(_hosts(entry)), ("groups",))


def _group_entry(
    events: Events, event: Any, at: Where, progress: Callable[[float], None]
) -> e.GroupEntry:
    """Read a group, its machines one at a time, since a group may be most of the file."""
    if not streams(event, yaml.MappingStartEvent):
        entry: e.GroupEntry = _converted(events.value(event), e.GroupEntry, at)
        return entry
    raw: dict[Any, Any] = {}
    merged: dict[Any, Any] = {}
    machines: list[e.MachineEntry] | None = None
    for key, value in events.pairs():
        if key is MERGE:
            merged = events.merged(value)
        elif key == "machines" and streams(value, yaml.SequenceStartEvent):
            machines, raw[key] = [], []
            for index, item in enumerate(events.items()):
                machine = events.value(item)
                machines.append(_converted(machine, e.MachineEntry, (*at, "machines", index)))
                if index % PROGRESS_EVERY == 0:
                    progress(events.fraction)
        else:
            raw[key] = events.value(value)
    entry = _converted({**merged, **raw}, e.GroupEntry, at)
    if machines is not None:
        entry.machines = machines
    return entry


def _converted(raw: Any, kind: Any, at: Where) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        message, steps, suggestion = value_problem(str(error), raw, kind, _CHOICES)
        raise FleetError(message, (*at, *steps), suggestion=suggestion) from error


def _hosts(entry: e.FleetEntry) -> Iterator[Host]:
    names = set()
    for index, host in enumerate(entry.hosts):
        at: Where = ("hosts", index)
        if isinstance(host, str):
            check_name(host, at)
            built = Host(name=host)
        else:
            built = host_of(host, at)
            at = (*at, "name")
        if built.name in names:
            raise FleetError(f"host '{built.name}' occurs twice", at)
        names.add(built.name)
        yield built
