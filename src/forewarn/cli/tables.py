"""Tables: every value in full, whatever the width of the terminal.

A table that is wider than the terminal first wraps its last column, if that is a text. If this is
not enough, columns move to a line below each row, as `name: value`: those that the caller has
called minor first, then from the right. Nothing is cut off, because half an id or half a time is
useless.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

GAP = 2  # spaces between columns, and before the line below a row
MIN_TEXT = 24  # characters that a last column must have left to be wrapped


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    minor: Sequence[str] = (),
    rule: str = "",
) -> list[str]:
    """Return the lines of a table, the first of which is its head. Without a width, every row is
    one line. `rule` is the character of a line below the head; empty: there is none."""
    widths = [max(cell_width(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    shown = list(range(len(columns)))
    below: list[int] = []
    for column in _leaving(columns, minor):
        if width is None or _fitted(shown, widths, rows, width) is not None:
            break
        shown.remove(column)
        below.append(column)
    if width is not None:
        widths = _fitted(shown, widths, rows, width) or widths
    lines = _row_lines(columns, shown, widths)
    if rule:
        lines.append(rule * min(_total(shown, widths), width or _total(shown, widths)))
    for row in rows:
        lines += _row_lines(row, shown, widths)
        lines += _lines_below(columns, row, sorted(below), width or 0)
    return lines


def cell_width(text: str) -> int:
    """Return the number of columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _leaving(columns: Sequence[str], minor: Sequence[str]) -> list[int]:
    """Return the columns that can move below their row, in the order in which they do."""
    first = [columns.index(name) for name in minor]
    return first + [i for i in range(len(columns) - 1, 0, -1) if i not in first]


def _total(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[i] for i in shown) + GAP * (len(shown) - 1)


def _fitted(
    shown: Sequence[int], widths: Sequence[int], rows: Sequence[Sequence[str]], width: int
) -> list[int] | None:
    """Return the widths with which a table fits, or None. Only the last column can be narrower
    than its longest value, if that is a text that can be wrapped."""
    excess = _total(shown, widths) - width
    if excess <= 0:
        return list(widths)
    last = shown[-1]
    left = widths[last] - excess
    words = (word for row in rows for word in row[last].split(" "))
    if left < MIN_TEXT or max(map(cell_width, words)) > left:
        return None
    return [*widths[:last], left, *widths[last + 1 :]]


def _row_lines(row: Sequence[str], shown: Sequence[int], widths: Sequence[int]) -> list[str]:
    """Return the lines of a row, whose last column may be wrapped."""
    *others, last = shown
    start = "".join(_padded(row[i], widths[i] + GAP) for i in others)
    parts = [row[last]]
    if cell_width(row[last]) > widths[last]:
        parts = _wrapped(row[last], widths[last]) or parts
    blank = " " * cell_width(start)
    return [f"{start}{parts[0]}".rstrip(), *(f"{blank}{part}" for part in parts[1:])]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_width(text))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)


def _lines_below(
    columns: Sequence[str], row: Sequence[str], below: Sequence[int], width: int
) -> Iterator[str]:
    """Yield the lines below a row: the values that have no column, and are not empty."""
    indent = " " * GAP
    line = ""
    for value in (f"{columns[i].lower()}: {row[i]}" for i in below if row[i]):
        if line and cell_width(f"{line}{indent}{value}") <= width:
            line += f"{indent}{value}"
            continue
        if line:
            yield line
        *full, line = _wrapped(value, width - 2 * GAP) or [value]
        for n, part in enumerate(full):
            yield f"{indent * (2 if n else 1)}{part}"
        line = f"{indent * (2 if full else 1)}{line}"
    if line:
        yield line
