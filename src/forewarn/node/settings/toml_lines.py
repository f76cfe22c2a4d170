"""On which line of a TOML file each key is said.

The library that reads TOML does not tell, so the file is given to it statement by statement: no
beginning of one is valid, hence a statement ends with the first line at which it is. Knows
nothing of settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any


def lines(text: str) -> dict[tuple[str, ...], int]:
    """By the path of the key, for a text that is valid as a whole. Tables count as keys."""
    found: dict[tuple[str, ...], int] = {}
    header: list[str] = []
    statement: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        statement.append(line)
        try:
            raw = tomllib.loads("\n".join([*header, *statement]))
        except tomllib.TOMLDecodeError:
            continue
        for path in _paths(raw):
            found.setdefault(path, number - len(statement) + 1)
        if statement[0].lstrip().startswith("["):
            header = statement
        statement = []
    return found


def _paths(raw: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in raw.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))
