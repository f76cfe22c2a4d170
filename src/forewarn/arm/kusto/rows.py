"""The rows of a query: how values are compared, the functions, and the steps that rows go through.

Rows are read one after the other, and only sorting and summarizing keep them: as bytes, which take
little memory and no time of the garbage collector. For every row that a step takes and does not
give, it gives None, and so do the next steps: whoever runs the query can do something else then.

What is missing is the value None, whose text is empty. If one of two values is a text, their texts
are compared. There is no third truth value.
"""

from __future__ import annotations

import heapq
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

MAX_KEPT = 100_000  # rows that are sorted, or groups of a summary
MAX_BYTES = 200_000_000  # of all of them
MAX_TEXT = 100_000  # characters of a text that is made of something else

Value: TypeAlias = Any  # a text, a number, True, False, None, a list or an object
Rows: TypeAlias = Iterator["Row | None"]
Step: TypeAlias = Callable[[Rows], Rows]
Expression: TypeAlias = Callable[["Row"], Value]
Key: TypeAlias = tuple[Expression, bool, bool]  # whether it descends, and None comes first

_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


class KustoError(Exception):
    """A query that cannot be answered. The text says where."""


class Row(dict[str, Value]):
    """The columns of a row, of which some are made when they are read."""

    __slots__ = ("_made", "make")

    def __init__(
        self, columns: Mapping[str, Value], make: Callable[[str], Value] | None = None
    ) -> None:
        super().__init__(columns)
        self.make = make
        self._made: dict[str, Value] = {}  # apart, so that it is not kept

    def __missing__(self, column: str) -> Value:
        if self.make is None:
            raise KeyError(column)
        if column not in self._made:
            self._made[column] = self.make(column)
        return self._made[column]


_END = Row({})  # of rows


def as_text(value: Value) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    text = _encode(value).decode()  # also true, false and numbers
    if len(text) > MAX_TEXT:
        raise KustoError(f"a text has at most {MAX_TEXT:,} characters")
    return text


def _equal(one: Value, other: Value) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return as_text(one) == as_text(other)
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_texts(test: Callable[[str, str], bool], *, cased: bool) -> Callable[[Value, Value], bool]:
    if cased:
        return lambda one, other: test(as_text(one), as_text(other))
    return lambda one, other: test(as_text(one).lower(), as_text(other).lower())


def _of_numbers(test: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    return lambda one, other: _is_number(one) and _is_number(other) and test(one, other)


def _has(text: str, term: str) -> bool:
    """Is a term in a text, without a letter or a digit beside one of its own?"""
    start = text.find(term)
    while start >= 0:
        end = start + len(term)
        around = (text[start - 1 : start], term[:1]), (term[-1:], text[end : end + 1])
        if not any(one.isalnum() and other.isalnum() for one, other in around):
            return True
        start = text.find(term, start + 1)
    return False


ORDERS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
TESTS: dict[str, Callable[[Value, Value], bool]] = {
    "==": _equal,
    "=~": _of_texts(str.__eq__, cased=False),
    **{name: _of_numbers(test) for name, test in ORDERS.items()},
    **{
        name + ("_cs" if cased else ""): _of_texts(test, cased=cased)
        for name, test in {
            "contains": str.__contains__,
            "has": _has,
            "startswith": str.startswith,
            "endswith": str.endswith,
        }.items()
        for cased in (False, True)
    },
}
LISTS = {"in": _equal, "in~": TESTS["=~"]}
NEGATED = {
    "!=": "==",
    "<>": "==",
    "!~": "=~",
    **{f"!{name}": name for name in (*TESTS, *LISTS) if name[0].isalpha()},
}


def comparison(
    test: Callable[[Value, Value], bool],
    value: Expression,
    others: Sequence[Expression],
    wanted: bool,
) -> Expression:
    """Does the test hold for a value and any of the others, or, unless that is wanted, for none?"""

    def compare(row: Row) -> bool:
        this = value(row)
        if isinstance(this, list | dict):
            this = as_text(this)
        return any(test(this, other(row)) for other in others) is wanted

    return compare


def constant(value: Value) -> Expression:
    return lambda _: value


def column(name: str) -> Expression:
    return lambda row: row[name]


def path(value: Expression, keys: Sequence[str | float]) -> Expression:
    def follow(row: Row) -> Value:
        found = value(row)
        for key in keys:
            found = _at(found, key)
        return found

    return follow


def _at(value: Value, key: Value) -> Value:
    if isinstance(value, list | tuple) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else None
    return value.get(key) if isinstance(value, Mapping) else None


def _split(text: Value, separator: Value, index: Value = None) -> Value:
    parts = as_text(text).split(as_text(separator)) if as_text(separator) else [as_text(text)]
    return parts if index is None else [_at(parts, index)]


def _int(value: Value) -> Value:
    try:
        return int(float(as_text(value)))
    except (ValueError, OverflowError):
        return None


class Function(msgspec.Struct, frozen=True):
    of: Callable[..., Value]
    example: str
    takes: range = range(1, 2)  # so many arguments
    truth: bool = False  # is its result true or false?


FUNCTIONS = {
    "tostring": Function(as_text, "tostring(properties.EventId)"),
    "tolower": Function(lambda value: as_text(value).lower(), "tolower(name)"),
    "toupper": Function(lambda value: as_text(value).upper(), "toupper(name)"),
    "toint": Function(_int, "toint(sku.capacity)"),
    "split": Function(_split, "split(id, '/')", range(2, 4)),
    "isnull": Function(lambda value: value is None, "isnull(zones)", truth=True),
    "isnotnull": Function(lambda value: value is not None, "isnotnull(zones)", truth=True),
    "isempty": Function(lambda value: as_text(value) == "", "isempty(name)", truth=True),
    "isnotempty": Function(lambda value: as_text(value) != "", "isnotempty(name)", truth=True),
    "not": Function(lambda value: value is not True, "not(name == 'web')", truth=True),
}


def where(condition: Expression) -> Step:
    return lambda rows: (row if row is not None and condition(row) else None for row in rows)


def take(number: int) -> Step:
    def step(rows: Rows) -> Rows:
        left = number
        while left:
            row = next(rows, _END)
            if row is _END:
                return
            left -= row is not None
            yield row

    return step


def sample(number: int) -> Step:
    return sort([(lambda _: random.random(), False, False)], number)


def extend(named: Mapping[str, Expression]) -> Step:
    return lambda rows: (row and Row({**row, **_made(row, named)}, row.make) for row in rows)


def project(named: Mapping[str, Expression]) -> Step:
    return lambda rows: (row and Row(_made(row, named)) for row in rows)


def _made(row: Row, named: Mapping[str, Expression]) -> dict[str, Value]:
    return {name: value(row) for name, value in named.items()}


def group(named: Mapping[str, Expression], counted: str = "") -> Step:
    """Make one row of those that have the same values; `counted` is a column with their number."""

    def step(rows: Rows) -> Rows:
        groups = {} if named else {b"[]": 0}
        size = 0
        for row in rows:
            yield None
            if row is None:
                continue
            values = _encode([value(row) for value in named.values()])
            groups[values] = groups.get(values, 0) + 1
            if groups[values] == 1:
                size += len(values)
                _check_kept(len(groups), size)
        for values, n in groups.items():
            number = {counted: n} if counted else {}
            yield Row({**dict(zip(named, _decode(values), strict=True)), **number})

    return step


class _Down(msgspec.Struct, frozen=True, gc=False):
    """A rank in descending order."""

    rank: tuple[int, Any]

    def __lt__(self, other: _Down) -> bool:
        return other.rank < self.rank


def sort(keys: Sequence[Key], number: int | None = None) -> Step:
    """Sort rows, and take the first of them if there is a number."""

    def step(rows: Rows) -> Rows:
        kept: list[tuple[Any, ...]] = []  # a heap, so that no row takes long
        size = 0
        for row in rows:
            yield None
            if row is None:
                continue
            values = [value(row) for value, _, _ in keys]
            ranks = [_rank(value, *key[1:]) for value, key in zip(values, keys, strict=True)]
            columns = _encode(row)
            size += len(columns) + len(_encode(values))
            _check_kept(len(kept) + 1, size)
            heapq.heappush(kept, (*ranks, len(kept), columns, row.make))
        for _ in range(len(kept) if number is None else min(number, len(kept))):
            *_, columns, make = heapq.heappop(kept)
            yield Row(_decode(columns), make)

    return step


def _rank(value: Value, descends: bool, nulls_first: bool) -> tuple[int, Any] | _Down:
    """Return by what a value is sorted: false, true, numbers, texts, and then all others."""
    rank: tuple[int, Any]
    if value is None:
        rank = (0 if nulls_first is not descends else 5), 0
    elif isinstance(value, bool | int | float):
        rank = 1 if isinstance(value, bool) else 2, value
    else:
        rank = 3 if isinstance(value, str) else 4, as_text(value)
    return _Down(rank) if descends else rank


def _check_kept(number: int, size: int) -> None:
    if number > MAX_KEPT or size > MAX_BYTES:
        raise KustoError(
            f"a query sorts or summarizes at most {MAX_KEPT:,} rows of {MAX_BYTES // 1_000_000} MB;"
            " choose rows by where, or columns by project"
        )
