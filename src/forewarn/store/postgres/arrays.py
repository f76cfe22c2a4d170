"""A batch on its way to PostgreSQL: rows are sent as arrays, as few statements for each table as
possible, and all statements together, before the first of them is answered."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import psycopg
import sqlalchemy as sa
from psycopg.adapt import Dumper
from psycopg.pq import Format

from forewarn.store.sql import schema as s
from forewarn.store.sql.statements import Row, Statements, with_percent

SLICE = 10_000  # rows that are sent in one statement: a fleet may have a million machines

Encode: TypeAlias = Callable[[Sequence[Any]], "Array"]

_INSERT = re.compile(r"(INSERT INTO (\w+) \(([\w, ]+)\)) VALUES \([?, ]+\)(.*)")

# An array on the wire: dimensions, whether there are NULLs, type of the items, length, first index;
# then each item with its length in bytes.
_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_BIGINT = struct.Struct("!iq")
_NULL = _LENGTH.pack(-1)
_FALSE, _TRUE = _LENGTH.pack(1) + b"\0", _LENGTH.pack(1) + b"\1"


class Array:
    __slots__ = ("data",)

    def __init__(self, type: int, length: int, items: list[bytes]) -> None:
        self.data = _HEADER.pack(1, 1, type, length, 1) + b"".join(items)


class _ArrayDumper(Dumper):
    format = Format.BINARY
    oid = 0  # as the statement says

    def dump(self, obj: Array) -> bytes:
        return obj.data


class Pipelined(Statements):
    """The statements of a transaction on a connection in pipeline mode. How many rows they concern
    is not known yet when they return."""

    def __init__(self, connection: sa.Connection, driver: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self._driver = driver

    def execute_many(self, statement: str, rows: Sequence[Row]) -> int:
        if not rows:
            return 0
        insert = _with_arrays(statement)
        if insert is None:
            return super().execute_many(statement, rows)
        text, encoders = insert
        for first in range(0, len(rows), SLICE):
            columns = zip(*rows[first : first + SLICE], strict=True)
            arrays = [encode(column) for encode, column in zip(encoders, columns, strict=True)]
            self._driver.execute(text, arrays, prepare=True)
        return 0

    def select(self, statement: str, values: Row) -> Sequence[Any]:
        return self._driver.execute(with_percent(statement), values).fetchall()


def register(connection: psycopg.Connection[Any]) -> None:
    """Let arrays be sent through this connection."""
    connection.adapters.register_dumper(Array, _ArrayDumper)


@cache
def _with_arrays(statement: str) -> tuple[str, list[Encode]] | None:
    """Return an INSERT of a row as one of arrays, a column in each; None if it is something else.
    Rows are inserted in their order, and must have different keys."""
    match = _INSERT.fullmatch(statement)
    if match is None:
        return None
    insert, table, names, rest = match.groups()
    types = [_type(s.metadata.tables[table].columns[name]) for name in names.split(", ")]
    arrays = ", ".join(f"%b::{name}[]" for name, _ in types)
    return f"{insert} SELECT * FROM unnest({arrays}){rest}", [encode for _, encode in types]


def _type(column: sa.Column[Any]) -> tuple[str, Encode]:
    return next(type for kind, type in _TYPES.items() if isinstance(column.type, kind))


def _texts(values: Sequence[str | None]) -> Array:
    items: list[bytes] = []
    for value in values:
        if value is None:
            items.append(_NULL)
        else:
            data = value.encode()
            items += (_LENGTH.pack(len(data)), data)
    return Array(25, len(values), items)


def _bodies(values: Sequence[bytes]) -> Array:
    items: list[bytes] = []
    for value in values:
        items += (_LENGTH.pack(len(value)), value)
    return Array(17, len(values), items)


def _numbers(values: Sequence[int]) -> Array:
    return Array(20, len(values), [_BIGINT.pack(8, value) for value in values])


def _flags(values: Sequence[bool]) -> Array:
    return Array(16, len(values), [_TRUE if value else _FALSE for value in values])


_TYPES: dict[type[Any], tuple[str, Encode]] = {
    sa.LargeBinary: ("bytea", _bodies),
    sa.Text: ("text", _texts),
    sa.BigInteger: ("bigint", _numbers),
    sa.Boolean: ("boolean", _flags),
}
