"""Lists in pages: where a page ends is said by what it ends with, never by a count, so that things
may come and go in between. What a caller is given for the next page is a `Link`; what is in its
`after` is no promise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode

from litestar.params import QueryParameter

from forewarn.control.http.errors import RefusedError
from forewarn.core.refusal import invalid

MAX_PAGE = 1_000_000  # things in one answer, and how many are unless somebody says
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
    """The order in which people count: web_2 before web_10."""
    parts = _NUMBERS.split(name)
    return tuple(int(p) if n % 2 else p for n, p in enumerate(parts)), name


def named_mark(said: str | None) -> tuple[str, str] | None:
    """Where the page before ended, in a list that goes by one name, or by two. There need be
    nothing of that name any more."""
    if said is None:
        return None
    first, _, second = said.partition(BETWEEN)
    return first, second


def timed_mark(said: str | None) -> tuple[bool, int, str] | None:
    """The same in a list that goes by: is it over, when was it made, its id."""
    if said is None:
        return None
    found = _TIMED.fullmatch(said)
    if found is None:
        wrong = "after: this is not what the Link of a page said; leave it out for the first page"
        raise RefusedError(invalid(wrong))
    return found[1] == "1", int(found[2]), found[3]


def cursor(mark: Mark) -> str:
    return BETWEEN.join(str(int(p)) if isinstance(p, bool) else str(p) for p in mark)


def cut(found: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """A page, and whether there is more."""
    page: list[T] = []
    for one in found:
        if len(page) == limit:
            return page, True
        page.append(one)
    return page, False


def linked(
    heads: MutableMapping[str, str], path: str, query: bytes, ends: Mark, key: str = "after"
) -> None:
    """The way to the next page, as a header of this one."""
    said = [(k, v) for k, v in parse_qsl(query.decode("latin-1"), True) if k != key]
    target = urlencode([*said, (key, cursor(ends))])
    heads["Link"] = f'<{path}?{target}>; rel="next"'
