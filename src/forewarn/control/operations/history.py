"""Operations of the control API on the history."""

from __future__ import annotations

from forewarn.control.operations.operation import Operation
from forewarn.control.schema.feed import HistoryPage

GET_HISTORY = Operation(
    "GET /v1/history",
    "List history records",
    HistoryPage,
    respects_limits=True,
    paged=True,
    refuses=(404, 409),
    command="history --machine web_2",
    filters={
        "machine": "Only entries about this machine.",
        "group": "Only entries about this group.",
        "host": "Only entries about this host.",
        "event": "Only entries about this event (ID or a prefix of it).",
        "since": "Only entries since then: 2h (ago), or 2027-01-15T08:00:00Z.",
        "until": "Only entries before then; same format as --since.",
        "what": "Only these kinds of entries, separated by commas: raised,approved,…",
    },
)

EXPORT_HISTORY = Operation(
    "GET /v1/history/export",
    "Export history records as JSON lines",
    bytes,
    respects_limits=True,
    refuses=(404, 409),
    command="history --export",
)
