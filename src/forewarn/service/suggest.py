"""What somebody may have meant: the nearest known name, whatever its letter case."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

from forewarn.core.words import listing

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


def nearest(name: str, known: Collection[str]) -> str | None:
    by_case = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_case, n=1)
    return by_case[close[0]] if close else None


def instead_of(name: str, known: Collection[str]) -> str:
    """`did you mean 'web_0'?`, or all there are."""
    near = nearest(name, known)
    return f"did you mean '{near}'?" if near else f"there are {listing(sorted(known))}"


def helped(complaint: str, fields: Iterable[str], choices: Iterable[str] = ()) -> str:
    """A library's complaint about a file in one line, with what would have been right."""
    said = " ".join(complaint.split())
    if found := _UNKNOWN.search(said):
        return f"{said}; {instead_of(found[1], list(fields))}"
    allowed = list(choices)
    if "Invalid enum value" in said and allowed:
        return f"{said}; there are {listing(allowed)}"
    return said
