"""Reading values off a configuration: each that cannot be meant is noted with its place, and the
reading goes on, so that everything that is wrong is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from forewarn.support.suggest import instead_of, nearest, value_problem
from forewarn.support.text import SECOND, listing, parse_duration


class Reader:
    """One file being read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def wrong(self, place: str, says: str) -> None:
        self.problems.append(f"{place}: {says}")

    def note(self, place: str, says: str) -> None:
        self.warnings.append(f"{place}: {says}")

    def typed(self, place: str, raw: Any, shape: Mapping[str, Any]) -> dict[str, Any]:
        """What of it has the right shape."""
        if not isinstance(raw, dict):
            self.wrong(place, "a table is expected")
            return {}
        good = {}
        for key, value in raw.items():
            at = f"{place}.{key}" if place else key
            if key not in shape:
                self.wrong(at, f"unknown key; {instead_of(key, list(shape))}")
                continue
            try:
                good[key] = msgspec.convert(value, shape[key])
            except msgspec.ValidationError as error:
                says = value_problem(str(error), value, shape[key]).message
                self.wrong(at, says)
        return good

    def duration(self, place: str, said: str | float | None, more: str = "") -> float | None:
        """In seconds."""
        if said is None:
            return None
        try:
            return parse_duration(str(said)) / SECOND
        except ValueError as error:
            self.wrong(place, f"{error}{more}")
            return None

    def choice(self, place: str, said: str, allowed: tuple[str, ...]) -> str:
        """One of these: the first, if it is none."""
        if said in allowed:
            return said
        near = nearest(said, allowed)
        meant = f"; did you mean '{near}'?" if near else ""
        self.wrong(place, f"'{said}' is none of {listing(allowed)}{meant}")
        return allowed[0]

    def placed(self, path: str) -> Path:
        """As seen from the file, wherever one stands."""
        return (self.path.parent / path).absolute()
