"""The line of each key in a TOML file.

tomllib does not report lines, so the file is parsed statement by statement: no prefix of a
statement is valid, hence it ends with the first line after which the text can be parsed.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any


def lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key by its path, for a text that is valid as a whole. Tables count
    as keys; those of an array, [[…]], also with their number: `("notify", "0")`."""
    line_of: dict[tuple[str, ...], int] = {}
    header: list[str] = []
    statement: list[str] = []
    tables: Counter[tuple[str, ...]] = Counter()
    for number, line in enumerate(text.split("\n"), start=1):
        statement.append(line)
        try:
            raw = tomllib.loads("\n".join([*header, *statement]))
        except tomllib.TOMLDecodeError:
            continue
        for path in _paths(raw):
            line_of.setdefault(path, number - len(statement) + 1)
        if statement[0].lstrip().startswith("["):
            header = statement
            if statement[0].lstrip().startswith("[["):
                path = list(_paths(raw))[-1]
                line_of[*path, str(tables[path])] = number - len(statement) + 1
                tables[path] += 1
        statement = []
    return line_of


def _paths(raw: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in raw.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))
