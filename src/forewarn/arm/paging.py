"""Lists in pages. A page names the URL of the next one (`nextLink`), which contains the last item
of this page, so that items may be added and removed in between.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import urlencode

from forewarn.arm.options import SKIP, TOP, invalid, top
from forewarn.arm.request import Answer, Request

PAGE = 500  # items
SEPARATOR = "~"  # before each part of a key; not allowed in names

T = TypeVar("T")


def page(
    request: Request,
    items: Iterable[T],
    key: Callable[[T], tuple[str, ...]],
    view: Callable[[T], Any],
) -> Answer:
    """Answer with the next items in the order of their keys."""
    return page_of_parts(request, [((), items)], key, view)


def page_of_parts(
    request: Request,
    parts: Iterable[tuple[tuple[str, ...], Iterable[T]]],
    key: Callable[[T], tuple[str, ...]],
    view: Callable[[T], Any],
) -> Answer:
    """Do the same for items in parts that follow each other, each with the beginning of the keys in
    it: parts before and after the page are not looked at."""
    after, most = _after(request), top(request.parameters)
    size = PAGE if most is None else min(PAGE, most)
    found: list[T] = []
    for start, items in parts:
        if len(found) > size:
            break
        if after is None or start >= after[: len(start)]:
            later = (item for item in items if after is None or key(item) > after)
            found += heapq.nsmallest(size + 1 - len(found), later, key=key)
    body: dict[str, Any] = {"value": [view(item) for item in found[:size]]}
    if len(found) > size and size != most:
        query = {**request.parameters, SKIP: SEPARATOR.join(("", *key(found[size - 1])))}
        if most is not None:
            query[TOP] = str(most - size)
        body["nextLink"] = f"{request.url}?{urlencode(query)}"
    return Answer(body=body)


def _after(request: Request) -> tuple[str, ...] | None:
    text = request.parameters.get(SKIP)
    if text is None:
        return None
    if not text.startswith(SEPARATOR):
        raise invalid(SKIP, "it must be that of a nextLink")
    return tuple(text.split(SEPARATOR)[1:])
