"""The shapes of the history in the control API. Times are RFC 3339."""

from __future__ import annotations

import msgspec

from forewarn.control.schema.types import Moment


class HistoryRecord(msgspec.Struct, kw_only=True):
    """One thing that happened; what does not apply is left empty."""

    seq: int
    at: Moment
    what: str
    by: str = ""
    group: str = ""
    event: str = ""
    type: str = ""
    machines: list[str] = []
    host: str = ""
    cause: str = ""
    note: str = ""


class HistoryPage(msgspec.Struct, kw_only=True):
    records: list[HistoryRecord]
    # For the next page say it as `before` (or `after`, oldest first; or `after_seq`); empty: none.
    next: str = ""
