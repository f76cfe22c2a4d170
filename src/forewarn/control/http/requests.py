"""Conversion of requests to what the service takes: the opposite of `views.shape`.

A field of a request becomes the parameter of the same name of the method that carries it out, or
the field of the same name of the value that describes it. What that is annotated with says how it
is converted. A field without such a counterpart is an error as soon as the request is used, unless
the handler says that it reads it itself.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, TypeAlias

import msgspec

from forewarn.control.http.errors import (
    duration_of,
    instant,
    parse_enum,
    parse_selector,
    parse_text,
)
from forewarn.core.events import EventType
from forewarn.core.labels import Term
from forewarn.core.windows.may_postpone import MayPostpone, parse_may_postpone
from forewarn.core.windows.model import Blackout, Window
from forewarn.core.windows.syntax import parse_blackout, parse_window

Convert: TypeAlias = Callable[[Any], Any]

_KINDS: Mapping[Any, str] = {EventType: "event type"}  # in refusals; of others, the field's name
_PARSERS: Mapping[Any, Callable[[str], Any]] = {
    Window: parse_window,
    Blackout: parse_blackout,
    MayPostpone: parse_may_postpone,
}


def arguments(
    request: msgspec.Struct,
    target: Callable[..., Any],
    *,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Return the fields of a request as arguments of a method or of a type. Seconds become
    durations, times instants, texts members of enumerations, selectors or windows, and lists
    tuples. Fields that are not set are left out, and null where that is not a value."""
    names = tuple(
        name
        for name in request.__struct_fields__
        if name not in without and (only is None or name in only)
    )
    found: dict[str, Any] = {}
    for name, convert, nullable in _fields(type(request), target, names):
        value = getattr(request, name)
        if value is not msgspec.UNSET and (value is not None or nullable):
            found[name] = value if convert is None or value is None else convert(value)
    return found


@cache
def _fields(
    shape: type[msgspec.Struct], target: Any, names: tuple[str, ...]
) -> list[tuple[str, Convert | None, bool]]:
    """Return how fields of a request are converted, and whether they can be None."""
    if isinstance(target, type):
        hints = {field.name: field.type for field in msgspec.structs.fields(target)}
    else:
        hints = typing.get_type_hints(target)
    types_of = {field.name: field.type for field in msgspec.structs.fields(shape)}
    if unknown := [name for name in names if name not in hints]:
        raise TypeError(f"{target.__name__} has no {unknown}, which {shape.__name__} has")
    return [
        (
            name,
            _conversion(name, types_of[name], hints[name]),
            types.NoneType in typing.get_args(hints[name]),
        )
        for name in names
    ]


def _conversion(name: str, source: Any, target: Any) -> Convert | None:
    """Return how a value becomes one of the target's type; None: it is one already."""
    source, target = _plain(source), _plain(target)
    if isinstance(target, type) and issubclass(target, enum.Enum):
        return partial(parse_enum, target, _KINDS.get(target, name))
    if target in _PARSERS:
        return partial(parse_text, _PARSERS[target])
    if source is datetime:
        return instant
    if source is float and target is int:
        return partial(duration_of, name)
    if typing.get_origin(target) is tuple:
        item, _ = typing.get_args(target)
        if item is Term:
            return parse_selector
        convert = _conversion(name, typing.get_args(source)[0], item)
        return tuple if convert is None else lambda values: tuple(map(convert, values))
    return None


def _plain(annotation: Any) -> Any:
    """Return a type without what it is annotated with, None and UNSET."""
    while (origin := typing.get_origin(annotation)) in (Annotated, typing.Union, types.UnionType):
        parts = typing.get_args(annotation)
        if origin is Annotated:
            parts = parts[:1]
        (annotation,) = (part for part in parts if part not in (types.NoneType, msgspec.UnsetType))
    return annotation
