"""From what YAML says to entries, or what is wrong with it and what would have been right.

Knows shapes only, not what they mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from forewarn.core.time import Duration
from forewarn.support.suggest import IN_WORDS, instead_of, nearest
from forewarn.support.text import listing, parse_duration
from forewarn.support.yaml_positions import Where, YamlError

E = TypeVar("E", bound=msgspec.Struct)

_AT = re.compile(r" - at `\$\.?([^`]*)`")
_STEP = re.compile(r"([\w-]+)|\[(\d+)\]")
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")


def mapping(raw: Any, at: Where, what: str) -> dict[str, Any]:
    """A mapping whose keys are text."""
    if not isinstance(raw, dict):
        raise YamlError(f"{what} is a mapping", at)
    for key in raw:
        if not isinstance(key, str):
            raise YamlError(f"a key is text, which {key!r} is not; write it in quotes", at)
    return raw


def entry(raw: Any, kind: type[E], at: Where, what: str, also: Collection[str] = ()) -> E:
    """`also` are keys that have been looked at already."""
    said = mapping(raw, at, what)
    fields = _fields(kind)
    for key in said:
        if key not in fields and key not in also:
            raise YamlError(f"unknown key; {instead_of(key, list(fields))}", (*at, key))
    for name, field in fields.items():
        if field.required and name not in said:
            raise YamlError(f"{what} needs '{name}'", at)
    try:
        made = msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        raise _wrong(str(error), said, kind, at) from error
    _bounded(made, at)
    return made


@cache
def _fields(kind: Any) -> dict[str, msgspec.structs.FieldInfo]:
    """By their names in a file."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _bounded(made: msgspec.Struct, at: Where) -> None:
    """Numbers are as large as the schema says: the library checks none that may be left out."""
    for name, field in _fields(type(made)).items():
        value, where = getattr(made, field.name), (*at, name)
        if isinstance(value, msgspec.Struct):
            _bounded(value, where)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            for meta in getattr(field.type, "__metadata__", ()):
                _bound(value, meta.extra_json_schema or {}, where)


def _bound(value: float, bounds: Mapping[str, Any], at: Where) -> None:
    least, most = bounds.get("minimum", -math.inf), bounds.get("maximum", math.inf)
    above = bounds.get("exclusiveMinimum")
    if least <= value <= most and (above is None or value > above):
        return
    if above is not None:
        expected = f"above {above} and up to {most}"
    elif most == math.inf:
        expected = f"at least {least}"
    else:
        expected = f"from {least} to {most}"
    raise YamlError(f"{expected} is expected, not {value}", at)


def _wrong(complaint: str, raw: Any, kind: Any, at: Where) -> YamlError:
    """A library's complaint in our own words, and where."""
    found = _AT.search(complaint)
    steps = [
        int(index) if index else name for name, index in _STEP.findall(found[1] if found else "")
    ]
    wrong = raw
    for step in steps:
        wrong = wrong[step]
    inner = _kind_at(kind, steps)
    if inner is not None and isinstance(wrong, dict):
        try:
            entry(wrong, inner, (*at, *steps), f"'{steps[-1]}'")
        except YamlError as error:
            return error
    if choices := _choices(kind, steps):
        near = nearest(str(wrong), choices)
        meant = f"; did you mean '{near}'?" if near else ""
        return YamlError(f"'{wrong}' is none of {listing(choices)}{meant}", (*at, *steps))
    says = complaint.split(" - at `")[0]
    if expected := _EXPECTED.search(complaint):
        wanted = [word.strip() for word in expected[1].split("|")]
        words = " or ".join(IN_WORDS.get(word, word) for word in wanted if word != "null")
        says = f"{words} is expected, not {IN_WORDS.get(expected[2], expected[2])}"
        if "str" in wanted and expected[2] in ("int", "float", "bool"):
            says += "; write it in quotes"
    return YamlError(says, (*at, *steps))


def _kind_at(kind: Any, steps: list[Any]) -> Any:
    """The struct that is expected there, if it is not the one we came from."""
    field = _field(kind, steps)
    if field is None or len(steps) != 1:
        return None
    return next((one for one in _parts(field.type) if isinstance(one, msgspec.StructMeta)), None)


def _choices(kind: Any, steps: list[Any]) -> list[str]:
    field = _field(kind, steps)
    parts = _parts(field.type) if field is not None else []
    return [one for one in parts if isinstance(one, str)]


def _field(kind: Any, steps: list[Any]) -> Any:
    return _fields(kind).get(steps[0]) if steps and isinstance(steps[0], str) else None


def _parts(type: Any) -> list[Any]:
    """A type, or those of which it is made: unions, annotations, literals."""
    inner = getattr(type, "__args__", ())
    return [part for one in inner for part in _parts(one)] if inner else [type]


def duration(value: Any, at: Where) -> Duration:
    if isinstance(value, bool):
        raise YamlError("a duration is expected, for example 30s", at)
    try:
        if isinstance(value, float):
            value = f"{value:f}"
        return parse_duration(str(value))
    except ValueError as error:
        raise YamlError(str(error), at) from error


def known(name: str, names: Collection[str], at: Where, what: str) -> str:
    if name not in names:
        if not names:
            raise YamlError(f"there is no {what} '{name}', nor any other", at)
        raise YamlError(f"there is no {what} '{name}'; {instead_of(name, names)}", at)
    return name


def named(name: str, pattern: re.Pattern[str], most: int, at: Where) -> str:
    if len(name) > most or not pattern.fullmatch(name):
        raise YamlError(
            f"'{name[:most]}' is no name: up to {most} letters, digits, '.', '_' or '-', which"
            " begins with a letter or digit",
            at,
        )
    return name
