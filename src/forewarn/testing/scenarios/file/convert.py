"""Converts parsed YAML into the shapes of a scenario file, or explains what is wrong with it.

Only the shapes are checked here; `read` checks what the values mean together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec

from forewarn.core.time import Duration
from forewarn.support.convert import convert
from forewarn.support.suggest import instead_of, value_problem
from forewarn.support.text import parse_duration
from forewarn.support.yaml.positions import Problems, Where, YamlError

E = TypeVar("E", bound=msgspec.Struct)


def mapping(raw: Any, at: Where, what: str) -> dict[str, Any]:
    """Return the value if it is a mapping whose keys are text."""
    if not isinstance(raw, dict):
        raise YamlError(f"{what} must be a mapping", at)
    for key in raw:
        if not isinstance(key, str):
            raise YamlError(f"a key must be text, not {key!r}; write it in quotes", at)
    return raw


def convert_entry(
    raw: Any, kind: type[E], at: Where, what: str, problems: Problems, also: Collection[str] = ()
) -> E:
    """Convert a mapping into a struct. `also` are further keys that are allowed.

    What is wrong is added to `problems`. The struct then has a placeholder for every key that is
    required and is wrong or missing, so that the rest of it can be checked.
    """
    values = dict(mapping(raw, at, what))
    fields = _fields(kind)
    for key in [key for key in values if key not in fields and key not in also]:
        problems.add(YamlError(f"unknown key; {instead_of(key, list(fields))}", (*at, key)))
        del values[key]
    replaced = {name for name, field in fields.items() if field.required and name not in values}
    for name in fields:
        if name in replaced:
            problems.add(YamlError(f"{what} needs '{name}'", at))
            values[name] = _placeholder(kind, name)
    while True:
        try:
            converted = convert(values, kind)
        except msgspec.ValidationError as error:
            problem = _problem(str(error), values, kind, at)
            wrong = str(next(iter(problem.path[len(at) :]), ""))
            if wrong in replaced or wrong not in values:  # there is no placeholder for it
                raise problem from error
            problems.add(problem)
            replaced.add(wrong)
            del values[wrong]
            if fields[wrong].required:
                values[wrong] = _placeholder(kind, wrong)
            continue
        _check_bounds(converted, at, problems)
        return converted


def _placeholder(kind: Any, name: str) -> Any:
    """Return a value of the type of a field, with which the rest of the struct can be checked.

    None if there is none.
    """
    if choices := _choices(kind, [name]):
        return choices[0]
    types = _outer_types(_fields(kind)[name].type)
    return next((type() for type in types if type in (str, list)), None)


def _outer_types(type: Any) -> list[Any]:
    """Return what a field may be, without looking into lists: `list` for `list[str] | None`."""
    origin = get_origin(type)
    if origin is Annotated:
        return _outer_types(get_args(type)[0])
    if origin is Union or origin is UnionType:
        return [outer for argument in get_args(type) for outer in _outer_types(argument)]
    return [origin or type]


@cache
def _fields(kind: Any) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields by their names in a file."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _check_bounds(struct: msgspec.Struct, at: Where, problems: Problems) -> None:
    """Check that numbers are within the bounds of the schema.

    msgspec does not check the bounds of optional fields.
    """
    for name, field in _fields(type(struct)).items():
        value, where = getattr(struct, field.name), (*at, name)
        if isinstance(value, msgspec.Struct):
            _check_bounds(value, where, problems)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            for meta in getattr(field.type, "__metadata__", ()):
                with problems.collected():
                    _check_number(value, meta.extra_json_schema or {}, where)


def _check_number(value: float, bounds: Mapping[str, Any], at: Where) -> None:
    minimum, maximum = bounds.get("minimum", -math.inf), bounds.get("maximum", math.inf)
    above = bounds.get("exclusiveMinimum")
    if minimum <= value <= maximum and (above is None or value > above):
        return
    if above is not None:
        expected = f"above {above} and up to {maximum}"
    elif maximum == math.inf:
        expected = f"at least {minimum}"
    else:
        expected = f"from {minimum} to {maximum}"
    raise YamlError(f"expected {expected}, not {value}", at)


def _problem(message: str, raw: Any, kind: Any, at: Where) -> YamlError:
    """Turn a message of msgspec into an error with a position and an explanation."""
    choices = {name: _choices(kind, [name]) for name in _fields(kind)}
    problem = value_problem(message, raw, kind, choices)
    steps = problem.steps
    inner = _struct_at(kind, steps)
    if inner is not None and isinstance(value := raw.get(steps[0]), dict):
        inside = Problems()
        with inside.collected():
            convert_entry(value, inner, (*at, *steps), f"'{steps[-1]}'", inside)
        if inside.errors:
            return inside.errors[0]
    return YamlError(problem.message, (*at, *steps))


def _struct_at(kind: Any, steps: Sequence[Any]) -> Any:
    """Return the struct that is expected at `steps`, if it is a field of `kind`."""
    field = _field(kind, steps)
    if field is None or len(steps) != 1:
        return None
    return next(
        (member for member in _union_members(field.type) if isinstance(member, msgspec.StructMeta)),
        None,
    )


def _choices(kind: Any, steps: Sequence[Any]) -> list[str]:
    field = _field(kind, steps)
    members = _union_members(field.type) if field is not None else []
    return [member for member in members if isinstance(member, str)]


def _field(kind: Any, steps: Sequence[Any]) -> Any:
    return _fields(kind).get(steps[0]) if steps and isinstance(steps[0], str) else None


def _union_members(type: Any) -> list[Any]:
    """Return the members of a union, annotation or literal; or the type itself."""
    inner = getattr(type, "__args__", ())
    return (
        [member for argument in inner for member in _union_members(argument)] if inner else [type]
    )


def duration(value: Any, at: Where) -> Duration:
    if isinstance(value, bool):
        raise YamlError("a duration is expected, for example 30s", at)
    try:
        if isinstance(value, float):
            value = f"{value:f}"
        return parse_duration(str(value))
    except ValueError as error:
        raise YamlError(str(error), at) from error


def check_known(name: str, names: Collection[str], at: Where, what: str) -> str:
    if name not in names:
        if not names:
            raise YamlError(f"there is no {what} '{name}'; there is none at all", at)
        raise YamlError(f"there is no {what} '{name}'; {instead_of(name, names)}", at)
    return name


def check_name(name: str, pattern: re.Pattern[str], max_length: int, at: Where) -> str:
    if len(name) > max_length or not pattern.fullmatch(name):
        raise YamlError(
            f"'{name[:max_length]}' is not a valid name: up to {max_length} letters, digits, '.',"
            " '_' or '-', beginning with a letter or digit",
            at,
        )
    return name
