"""How statements with many rows are run: SQL texts, so that nothing has to be compiled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import sqlalchemy as sa

Row: TypeAlias = tuple[Any, ...]


class Statements:
    """The statements of a transaction. Their texts have `?` for each value."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def execute_many(self, statement: str, rows: Sequence[Row]) -> int:
        """Run a statement once for each row. Returns how many rows of the table it concerned."""
        if not rows:
            return 0
        text = self._in_dialect(statement)
        return self._connection.exec_driver_sql(text, list(rows)).rowcount

    def select(self, statement: str, values: Row) -> Sequence[Any]:
        return self._connection.exec_driver_sql(self._in_dialect(statement), values).all()

    def _in_dialect(self, statement: str) -> str:
        qmark = self._connection.dialect.paramstyle == "qmark"
        return statement if qmark else with_percent(statement)


@cache
def with_percent(statement: str) -> str:
    return statement.replace("?", "%s")
