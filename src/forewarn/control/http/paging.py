"""Lists in pages: the next page is named by the last item of this one, never by a count, so that
items may come and go in between. Callers follow the `Link`; the form of `after` is no promise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode

from litestar.params import QueryParameter

from forewarn.control.http.errors import RefusedError
from forewarn.core.refusal import invalid

MAX_PAGE = 1_000_000  # items in one response, and the default
BETWEEN = "~"  # which is in no name
TIMED = r"^[01]~-?[0-9]{1,18}~[0-9A-F-]{1,36}$"

Limit: TypeAlias = Annotated[
    int, QueryParameter(ge=1, le=MAX_PAGE, description="How many on a page; all, if left out.")
]
After: TypeAlias = Annotated[
    str | None,
    QueryParameter(description="What the `Link` of the page before says; the first, if left out."),
]
TimedAfter: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        description="What the `Link` of the page before says; the first, if left out.",
        schema_extra={"pattern": TIMED},
    ),
]
Mark: TypeAlias = Sequence[Any]
T = TypeVar("T")

_NUMBERS = re.compile(r"(\d{1,1000})", re.ASCII)
_TIMED = re.compile(r"([01])~(-?[0-9]{1,18})~([0-9A-F-]{1,36})", re.ASCII)


def natural(name: str) -> tuple[Any, ...]:
    """Return a sort key in natural order: web_2 before web_10."""
    parts = _NUMBERS.split(name)
    return tuple(int(p) if n % 2 else p for n, p in enumerate(parts)), name


def named_mark(after: str | None) -> tuple[str, str] | None:
    """Read where the page before ended, in a list ordered by one name, or by two. Nothing of that
    name need exist any more."""
    if after is None:
        return None
    first, _, second = after.partition(BETWEEN)
    return first, second


def timed_mark(after: str | None) -> tuple[bool, int, str] | None:
    """Read the same in a list ordered by: is it over, when was it created, its id."""
    if after is None:
        return None
    match = _TIMED.fullmatch(after)
    if match is None:
        wrong = "after: this is not what the Link of a page said; leave it out for the first page"
        raise RefusedError(invalid(wrong))
    return match[1] == "1", int(match[2]), match[3]


def cursor(mark: Mark) -> str:
    return BETWEEN.join(str(int(p)) if isinstance(p, bool) else str(p) for p in mark)


def cut(items: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """Return a page, and whether there is more."""
    page: list[T] = []
    for item in items:
        if len(page) == limit:
            return page, True
        page.append(item)
    return page, False


def linked(
    headers: MutableMapping[str, str], path: str, query: bytes, ends: Mark, key: str = "after"
) -> None:
    """Add the Link to the next page to the headers of this one."""
    query_items = [(k, v) for k, v in parse_qsl(query.decode("latin-1"), True) if k != key]
    target = urlencode([*query_items, (key, cursor(ends))])
    headers["Link"] = f'<{path}?{target}>; rel="next"'
