"""Read a fleet file into a fleet. All mistakes are reported at once, each with line and field.

The shapes are `shapes.py`, what they mean together is `build.py`, YAML is
`support/yaml/events.py`, and messages about wrong values are `support/suggest.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
import yaml

from forewarn.core.commands import Define
from forewarn.core.events import types_that
from forewarn.core.fleet import MAX_NAME, GroupKind, Host
from forewarn.service.fleet import export
from forewarn.service.fleet import shapes as e
from forewarn.service.fleet.addresses import ANY_ADDRESS, AddressRules
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
from forewarn.support.convert import convert
from forewarn.support.suggest import fields_of, value_problem
from forewarn.support.text import not_utf8
from forewarn.support.yaml.events import MAX_DEPTH, MERGE, Events, streams
from forewarn.support.yaml.positions import Problems, Where, YamlError, all_placed

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
    "parse_machine",
]

MAX_MISTAKES = 50  # of one file that are reported; further ones are counted
MAX_COLLECTED = 1_000  # mistakes, after which the rest of a file is not read
PROGRESS_EVERY = 1_000  # machines between two reports of progress

T = TypeVar("T")
Raw: TypeAlias = dict[Any, Any]  # a mapping of a file, before its values are checked

_CHOICES = {
    "auto_approve": [type.value for type in types_that(lambda traits: traits.by_user)],
    "kind": [kind.value for kind in GroupKind],
}
_KINDS = {e.GroupEntry: "a group", e.HostEntry: "a host", e.MachineEntry: "a machine"}
_EMPTY = {
    e.FleetEntry: "it is empty; a fleet has at least groups",
    e.GroupEntry: "it is empty; a group has at least kind and machines",
    e.HostEntry: "it is empty; a host without labels is {}",
    e.MachineEntry: "it is empty; a machine that changes nothing is {}",
}


def load(path: Path, addresses: AddressRules = ANY_ADDRESS) -> Fleet:
    try:
        return parse(path.read_text(encoding="utf-8"), addresses=addresses)
    except FleetError as error:
        raise FleetError(error.named(str(path))) from error
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FleetError(f"{path}: {not_utf8(error)}") from error


def parse(
    text: str,
    progress: Callable[[float], None] = lambda _: None,
    addresses: AddressRules = ANY_ADDRESS,
) -> Fleet:
    """Parse a fleet file group by group. `progress` is called with the fraction that is read."""

    def read(problems: Problems) -> Fleet:
        builder = FleetBuilder(problems, addresses=addresses)
        return _read(text, builder, problems, progress)

    return _located(text, read)


def parse_group(
    text: str,
    name: str,
    among: Fleet,
    prepare: Callable[[Raw], Raw] = lambda raw: raw,
    addresses: AddressRules = ANY_ADDRESS,
) -> Define:
    """Parse one group that is to be part of a fleet, with distinct names and addresses. `prepare`
    may change what was read before it is looked at."""

    def read(problems: Problems) -> Define:
        entry = _single_entry(text, name, e.GroupEntry, problems, prepare)
        builder = FleetBuilder(problems, among, without=name, addresses=addresses)
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


def parse_host(text: str, name: str, prepare: Callable[[Raw], Raw] = lambda raw: raw) -> Host:
    def read(problems: Problems) -> Host:
        return host_of(_single_entry(text, name, e.HostEntry, problems, prepare), ())

    return _located(text, read)


def parse_machine(
    text: str,
    name: str,
    among: Fleet,
    prepare: Callable[[Raw], Raw] = lambda raw: raw,
    addresses: AddressRules = ANY_ADDRESS,
) -> tuple[str, Define]:
    """Parse one machine that is to be part of a group of this fleet. Return the group and what it
    becomes. Besides the keys of a fleet file, `group` names the group."""

    def read(problems: Problems) -> tuple[str, Define]:
        raw = prepare(_mapping(text, e.MachineEntry))
        group = raw.pop("group", None)
        if group is not None and not isinstance(group, str):
            raise FleetError("expected the name of a group", ("group",))
        if group is None or group not in among.groups:
            raise _unknown_group(name, group)
        entry = _named_entry(raw, name, e.MachineEntry, problems)
        define = among.groups[group]
        others = [machine.name for machine in define.machines]
        index = others.index(name) if name in others else len(others)
        group_entry = export.group_entry(group, define)
        group_entry.machines[index : index + 1] = [entry]
        left = {
            other: msgspec.structs.replace(
                define, machines=tuple(m for m in define.machines if m.name != name)
            )
            for other, define in among.groups.items()
        }
        builder = FleetBuilder(
            problems,
            Fleet(left, among.hosts),
            without=group,
            addresses=addresses,
        )
        builder.group(group_entry, ())
        built = builder.finish(_current_defaults(group, among), among.hosts).groups[group]
        for problem in problems.errors:
            if problem.path[:2] == ("machines", index):  # the text is about this machine alone
                problem.path = problem.path[2:]
        return group, built

    return _located(text, read)


def group_of_machine(text: str) -> str:
    """Return the group that the text of a machine names, if it can be read and names one."""
    try:
        group = _mapping(text, e.MachineEntry).get("group")
    except YamlError:
        return ""  # what is wrong is found again when it is parsed
    return group if isinstance(group, str) else ""


def _unknown_group(machine: str, group: str | None) -> FleetError:
    if group is None:
        return FleetError(f"a new machine needs a group; '{machine}' does not exist", ("group",))
    return FleetError(f"no group '{group}'; add it first: PUT /v1/groups/{group}", ("group",))


def _mapping(text: str, kind: Any) -> Raw:
    events = Events(text, _KINDS[kind], _EMPTY[kind])
    raw = events.value(events.next())
    events.finish()
    if not isinstance(raw, dict):
        raise FleetError("expected a mapping")
    return raw


def _single_entry(
    text: str, name: str, kind: Any, problems: Problems, prepare: Callable[[Raw], Raw]
) -> Any:
    return _named_entry(prepare(_mapping(text, kind)), name, kind, problems)


def _named_entry(raw: Raw, name: str, kind: Any, problems: Problems) -> Any:
    raw.setdefault("name", name)
    entry = _converted(raw, kind, (), problems)
    if entry is None:
        raise _NothingElse
    if entry.name != name:
        raise FleetError(
            f"this request is for '{name}'; leave the name out, or give this one", ("name",)
        )
    return entry


class _NothingElse(Exception):
    """The rest cannot be read because of what has been collected."""


def _located(text: str, read: Callable[[Problems], T]) -> T:
    """Read, and raise everything that is wrong as one error; lines are searched for only then."""
    problems = Problems()
    try:
        result = read(problems)
    except YamlError as error:
        problems.add(error)
    except _NothingElse:
        pass
    if not problems.errors:
        return result
    first, *others = all_placed(problems.errors[:MAX_MISTAKES], text, FleetError)
    first.others = tuple(others)
    first.uncounted = max(0, len(problems.errors) - MAX_MISTAKES)
    raise first


def _read(
    text: str, builder: FleetBuilder, problems: Problems, progress: Callable[[float], None]
) -> Fleet:
    events = Events(text, "a fleet", _EMPTY[e.FleetEntry])
    event = events.next()
    if type(event) is not yaml.MappingStartEvent:
        raise FleetError("a fleet must be a mapping with at least 'groups'", line=1)
    fields: dict[Any, Any] = {}
    merged: dict[Any, Any] = {}
    for key, value in events.pairs():
        if key is MERGE:
            merged = events.merged(value)
        elif key == "groups" and streams(value, yaml.SequenceStartEvent):
            fields[key] = []
            for index, item in enumerate(events.items()):
                at: Where = ("groups", index)
                group, machines = _group_entry(events, item, at, problems, progress)
                if group is not None:
                    builder.group(group, at, machines)
                progress(events.fraction)
        else:
            fields[key] = events.value(value)
    events.finish()
    fields = {**merged, **fields}
    groups = fields.get("groups")
    if isinstance(groups, list) and groups:  # they could not be streamed, because of an anchor
        for index, raw in enumerate(groups):
            at = ("groups", index)
            group = _converted(raw, e.GroupEntry, at, problems)
            if group is not None:
                builder.group(group, at)
        fields["groups"] = []
    mistakes = len(problems.errors)
    entry = _converted(fields, e.FleetEntry, (), problems)
    if entry is None:
        raise _NothingElse
    hosts = tuple(_hosts(entry, problems))
    wrong = any(error.path[:1] == ("hosts",) for error in problems.errors[mistakes:])
    return builder.finish(entry, None if wrong else hosts)


def _group_entry(
    events: Events, event: Any, at: Where, problems: Problems, progress: Callable[[float], None]
) -> tuple[e.GroupEntry | None, list[e.MachineEntry | None] | None]:
    """Read a group, and its machines one at a time, since a group may be most of the file: None for
    each one that is wrong, and None instead of a list if the group has them."""
    if not streams(event, yaml.MappingStartEvent):
        return _converted(events.value(event), e.GroupEntry, at, problems), None
    raw: dict[Any, Any] = {}
    merged: dict[Any, Any] = {}
    machines: list[e.MachineEntry | None] | None = None
    for key, value in events.pairs():
        if key is MERGE:
            merged = events.merged(value)
        elif key == "machines" and streams(value, yaml.SequenceStartEvent):
            machines, raw[key] = [], []
            for index, item in enumerate(events.items()):
                machine = events.value(item)
                where = (*at, "machines", index)
                machines.append(_converted(machine, e.MachineEntry, where, problems))
                if index % PROGRESS_EVERY == 0:
                    progress(events.fraction)
        else:
            raw[key] = events.value(value)
    return _converted({**merged, **raw}, e.GroupEntry, at, problems), machines


def _converted(raw: Any, kind: Any, at: Where, problems: Problems) -> Any:
    """Return the value as this kind, without keys that are wrong, which are added to `problems`;
    None if it cannot be used at all."""
    while True:
        try:
            return convert(raw, kind)
        except msgspec.ValidationError as error:
            message, steps, suggestion = value_problem(str(error), raw, kind, _CHOICES)
            problems.add(FleetError(message, (*at, *steps), suggestion=suggestion))
            if len(problems.errors) >= MAX_COLLECTED:
                raise _NothingElse from error
            required = {field.name for field in fields_of(kind) if field.required}
            if not steps or steps[0] not in raw or steps[0] in required or suggestion in required:
                return None  # what is missing then has been told
            raw = {key: value for key, value in raw.items() if key != steps[0]}


def _hosts(entry: e.FleetEntry, problems: Problems) -> Iterator[Host]:
    names = set()
    for index, host in enumerate(entry.hosts):
        at: Where = ("hosts", index)
        with problems.collected():
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
