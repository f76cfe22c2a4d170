"""Conversion of arguments and the values of options to the types of a command's parameters.

Typer would build a validator with Pydantic for each of them, whose import takes longer than most
commands do. The types that commands have are converted here; Typer converts any others.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from datetime import datetime
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

import typer

from forewarn.support.instants import NoZone, parse_datetime
from forewarn.support.text import unstorable, visible

# Parameters with a program and its arguments, which may be any bytes, as paths may.
PROGRAMS = ("command", "driver_command", "exec_")

if TYPE_CHECKING:
    StateOption: TypeAlias = Path | str  # the path of a file, or the URL of a database
else:
    StateOption = Path  # for Typer, so that files are completed


def convert_here(parameter: Any) -> None:
    """Let the values of a parameter be converted by this module, if it knows their type."""
    annotation = parameter.type_descriptor.annotation
    kind = next(iter(get_args(annotation)), annotation)  # of each value, if there are several
    convert = _CONVERSIONS.get(kind)
    if kind is str and parameter.name in PROGRAMS:
        convert = str
    if kind is Path and parameter.name == "state":
        convert = _path_or_url
    if convert is None and issubclass(kind, enum.Enum):
        convert = _member_of(kind)
    if convert is not None:
        conversion = Conversion(convert, parameter.type_descriptor.parameter_info)
        parameter.get_runtime_param = lambda: conversion


class Conversion(NamedTuple):
    """Conversion of the values of one parameter."""

    convert: Callable[[str], Any]
    limits: Any  # has `min` and `max`

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert a value, or each of several. Called by Typer, also with a default."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self._checked(each) for each in value] if several else self._checked(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None

    def _checked(self, value: Any) -> Any:
        value = self.convert(value) if isinstance(value, str) else value
        if self.limits.min is not None and value < self.limits.min:
            raise ValueError(f"{value} is too small; the minimum is {self.limits.min}")
        if self.limits.max is not None and value > self.limits.max:
            raise ValueError(f"{value} is too large; the maximum is {self.limits.max}")
        return value


def _text(text: str) -> str:
    if unstorable(text):  # the bytes that Python could not decode
        raise ValueError(f"'{visible(text)}' is not valid UTF-8")
    return text


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise ValueError(f"'{text}' is not a number")
    return number


def _path(text: str) -> Path:
    if os.access(text, os.F_OK) and not os.access(text, os.R_OK):
        raise ValueError(f"path '{text}' is not readable")
    return Path(text)


def _path_or_url(text: str) -> Path | str:
    if "://" not in text:
        return _path(text)
    from forewarn.store.engines import parse_state

    return parse_state(text)


def _member_of(enumeration: type[enum.Enum]) -> Callable[[str], enum.Enum]:
    def member(text: str) -> enum.Enum:
        try:
            return enumeration(text)
        except ValueError:
            names = ", ".join(f"'{each.value}'" for each in enumeration)
            raise ValueError(f"'{text}' is not one of {names}") from None

    return member


# A flag is no text, and needs no conversion.
_CONVERSIONS: dict[Any, Callable[[str], Any]] = {
    bool: bool,
    str: _text,
    int: _whole_number,
    float: _number,
    Path: _path,
}


def parse_time(text: str) -> datetime:
    """Parse the value of an option that is a time."""
    try:
        return parse_datetime(text)
    except NoZone:
        raise
    except ValueError:
        raise ValueError(f"'{text}' is not a time; write 2030-01-31T18:00:00Z") from None
