"""Paging of lists. The cursor of the next page (`after`) contains the sort key of the last item on
this page, not a count, so that items may be added and removed in between. Callers follow the `Link`
header; the format of the cursor is not part of the API.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode

from forewarn.control.http.errors import RefusedError
from forewarn.core.refusal import invalid

SEPARATOR = "~"  # not allowed in names
TIMED = r"^[01]~-?[0-9]{1,18}~[0-9A-F-]{1,36}$"
STARTS = r"^s~-?[0-9]{1,18}~[^~]{1,200}~[0-9A-F-]{1,36}$"

Cursor: TypeAlias = Sequence[Any]  # sort key of an item
T = TypeVar("T")

_STARTS = re.compile(r"s~(-?[0-9]{1,18})~([^~]{1,200})~([0-9A-F-]{1,36})", re.ASCII)
_TIMED = re.compile(r"([01])~(-?[0-9]{1,18})~([0-9A-F-]{1,36})", re.ASCII)
NOT_A_CURSOR = invalid(
    "after: not a cursor from the Link of a page in this order; omit it for the first page"
)


def parse_name_cursor(after: str | None) -> tuple[str, str] | None:
    """Parse the cursor of a list that is ordered by one name, or by two. An item of that name need
    not exist any more."""
    if after is None:
        return None
    first, _, second = after.partition(SEPARATOR)
    return first, second


def parse_time_cursor(after: str | None) -> tuple[bool, int, str] | None:
    """Parse the cursor of a list that is ordered by whether items are over, their creation time and
    their id."""
    if after is None:
        return None
    match = _TIMED.fullmatch(after)
    if match is None:
        raise RefusedError(NOT_A_CURSOR)
    return match[1] == "1", int(match[2]), match[3]


def parse_start_cursor(after: str | None) -> tuple[int, str, str] | None:
    """Parse the cursor of a list of events that is ordered by when they may start."""
    if after is None:
        return None
    match = _STARTS.fullmatch(after)
    if match is None:
        raise RefusedError(NOT_A_CURSOR)
    return int(match[1]), match[2], match[3]


def format_cursor(cursor: Cursor) -> str:
    return SEPARATOR.join(str(int(p)) if isinstance(p, bool) else str(p) for p in cursor)


def take_page(items: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """Return the first `limit` items, and whether there are more."""
    page: list[T] = []
    for item in items:
        if len(page) == limit:
            return page, True
        page.append(item)
    return page, False


def add_next_link(
    headers: MutableMapping[str, str], path: str, query: bytes, last: Cursor, key: str = "after"
) -> None:
    """Add the Link to the page after `last` to the response headers."""
    query_items = [(k, v) for k, v in parse_qsl(query.decode("latin-1"), True) if k != key]
    target = urlencode([*query_items, (key, format_cursor(last))])
    headers["Link"] = f'<{path}?{target}>; rel="next"'
