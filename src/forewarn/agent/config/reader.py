"""Reads the values of a configuration. Invalid ones are noted with their place, and reading goes
on, so that all problems are reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from forewarn.support.suggest import instead_of, nearest, value_problem
from forewarn.support.text import SECOND, listing, parse_duration


class Reader:
    """A file that is being read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def add_problem(self, place: str, problem: str) -> None:
        self.problems.append(f"{place}: {problem}")

    def add_warning(self, place: str, warning: str) -> None:
        self.warnings.append(f"{place}: {warning}")

    def table(self, place: str, raw: Any, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a table that have the right type."""
        if not isinstance(raw, dict):
            self.add_problem(place, "a table is expected")
            return {}
        values = {}
        for key, value in raw.items():
            at = f"{place}.{key}" if place else key
            if key not in types:
                self.add_problem(at, f"unknown key; {instead_of(key, list(types))}")
                continue
            try:
                values[key] = msgspec.convert(value, types[key])
            except msgspec.ValidationError as error:
                problem = value_problem(str(error), value, types[key])
                self.add_problem(at, problem.message)
        return values

    def duration(self, place: str, value: str | float | None, hint: str = "") -> float | None:
        """Return a duration in seconds. `hint` is added to the problem if it is invalid."""
        if value is None:
            return None
        try:
            return parse_duration(str(value)) / SECOND
        except ValueError as error:
            self.add_problem(place, f"{error}{hint}")
            return None

    def choice(self, place: str, value: str, allowed: tuple[str, ...]) -> str:
        """Return the value if it is allowed, and else the first that is."""
        if value in allowed:
            return value
        near = nearest(value, allowed)
        help = f"; did you mean '{near}'?" if near else ""
        self.add_problem(place, f"'{value}' is not one of {listing(allowed)}{help}")
        return allowed[0]

    def absolute(self, path: str) -> Path:
        """Return an absolute path. Relative paths are relative to the file's directory."""
        return (self.path.parent / path).absolute()
