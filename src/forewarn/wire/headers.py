"""Parsing of HTTP headers, entity tags and query parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import parse_qsl

ANY = "*"
MAX_TAGS = 64  # of If-None-Match that are compared; the others count as not matching

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]  # names in lower case


def by_name(headers: Headers) -> dict[bytes, bytes]:
    """Return the headers by name; values of a header that is sent twice are joined by a comma."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        values[name] = values[name] + b", " + value if name in values else value
    return values


def parameters_of(query: bytes) -> dict[str, str] | None:
    """Return the parameters by name, or None if a name occurs twice."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="replace")
    parameters = dict(pairs)
    return parameters if len(parameters) == len(pairs) else None


def parse_tags(if_none_match: str) -> frozenset[str]:
    """Return the entity tags in the header, without quotes. Clients send them quoted, unquoted,
    weak, or as a list."""
    parts = [part.strip() for part in if_none_match.split(",", MAX_TAGS)[:MAX_TAGS]]
    bare = {part.removeprefix("W/").strip('"') for part in parts}
    return frozenset(bare - {"", ANY} | ({ANY} if ANY in parts else set()))


def tag_matches(named: frozenset[str], tag: str) -> bool:
    """Is this tag among the tags of the header, or `*`?"""
    return tag.strip('"') in named or ANY in named
