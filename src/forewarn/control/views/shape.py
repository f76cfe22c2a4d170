"""Conversion of values of the core to types of the control API that have fields of the same names.

A view says only what differs: everything else is an attribute of the same name. A field of the API
that is neither is an error as soon as the view is used, so that none is forgotten.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from forewarn.core.time import SECOND, Duration
from forewarn.support.instants import to_datetime

T = TypeVar("T")


def view(shape: Callable[..., T], *values: object, **others: Any) -> T:
    """Return a type of the API: `others`, and attributes of the first of the values that has them.
    Instants become times, enumerations their values, tuples lists, and values inside of it views.
    """
    place, value = 0, values[0]
    fields = _fields(shape, tuple(others), tuple(map(type, values)))
    for name, source, convert in fields:
        if source != place:
            place, value = source, values[source]
        found = getattr(value, name)
        others[name] = found if convert is None or found is None else convert(found)
    return shape(**others)


def seconds(duration: Duration | None) -> Any:
    """Return a duration as the API has it."""
    return None if duration is None else duration / SECOND


def moment(at: int | None) -> Any:
    """Return an instant as the API has it."""
    return None if at is None else to_datetime(at)


@cache
def _fields(
    shape: Any, given: tuple[str, ...], sources: tuple[type, ...]
) -> list[tuple[str, int, Callable[[Any], Any] | None]]:
    """Return the fields that are not given: in which of the sources each is, and how it is
    converted."""
    fields = []
    for field in msgspec.structs.fields(shape):
        if field.name in given:
            continue
        having = [place for place, source in enumerate(sources) if hasattr(source, field.name)]
        if not having:
            raise TypeError(f"nothing says what '{field.name}' of {shape.__name__} is")
        fields.append((field.name, having[0], _conversion(field.type)))
    return sorted(fields, key=lambda field: field[1])


def _conversion(annotation: Any) -> Callable[[Any], Any] | None:
    """Return how a value becomes this type; None: it is already, or is None."""
    while (origin := typing.get_origin(annotation)) in (Annotated, typing.Union, types.UnionType):
        (annotation,) = (
            part
            for part in typing.get_args(annotation)[: 1 if origin is Annotated else None]
            if part is not types.NoneType
        )
    if origin is list:
        convert = _conversion(typing.get_args(annotation)[0])
        return list if convert is None else lambda values: [*map(convert, values)]
    if annotation is datetime:
        return to_datetime
    if annotation is str or origin is typing.Literal:
        return _text
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return lambda value: view(annotation, value)
    return None


def _text(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value
