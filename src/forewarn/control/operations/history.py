"""Operations of the control API on the history."""

from __future__ import annotations

from forewarn.control.operations.operation import Operation
from forewarn.control.schema import queries as q
from forewarn.control.schema.feed import HistoryPage

GET_HISTORY = Operation(
    "GET /v1/history",
    "List history records",
    HistoryPage,
    query=q.HistoryQuery,
    respects_limits=True,
    paged=True,
    refuses=(404, 409),
    command="history --machine web_2",
)

EXPORT_HISTORY = Operation(
    "GET /v1/history/export",
    "Export history records as JSON lines",
    bytes,
    query=q.RecordsOf,
    respects_limits=True,
    refuses=(404, 409),
    command="history --export",
)
