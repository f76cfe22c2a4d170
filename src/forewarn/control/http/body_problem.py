"""What is wrong with a body, in the words of this API: msgspec says which limit a value exceeds,
but not the value."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from forewarn.core.time import MINUTE, SECOND
from forewarn.support.convert import decode_json
from forewarn.support.instants import parse_datetime
from forewarn.support.text import counted, in_words

MAX_SHOWN = 40  # characters of a value in a message

_LIMIT = re.compile(r"Expected `\w+` (?:of length )?(>=|<=|>) (\S+) - at `\$\.?([^`]+)`")
_NO_ZONE = re.compile(r"Expected `datetime` with a timezone component - at `\$\.?([^`]+)`")
_ALLOWED = {">=": "at least", "<=": "at most", ">": "more than"}


def body_problem(error: msgspec.MsgspecError, body: bytes, body_type: Any) -> str:
    """Return why msgspec has refused a body."""
    if found := _LIMIT.match(str(error)):
        keyword, limit, where = found.groups()
        value = _value(body, where)
        allowed = f"{_ALLOWED[keyword]} {_limit(limit.removesuffix('.0'), where, body_type)}"
        return f"{where} {_size(value)}; this operation allows {allowed}"
    if found := _NO_ZONE.match(str(error)):
        try:
            parse_datetime(_value(body, found[1]))
        except ValueError as problem:
            return f"{found[1]}: {problem}"
    return f"the body is not what this operation takes: {error}"


def _value(body: bytes, where: str) -> Any:
    value = decode_json(body)
    for step in re.findall(r"[^.\[\]]+", where):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _size(value: Any) -> str:
    if isinstance(value, list):
        return f"has {counted(len(value), 'item')}"
    if isinstance(value, str):
        return f"has {counted(len(value), 'character')}"
    return f"is {str(value)[:MAX_SHOWN]}"


def _limit(limit: str, where: str, body_type: Any) -> str:
    schema = msgspec.json.schema(body_type)
    fields = schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"]
    described = fields.get(where, {}).get("description", "")
    if described.startswith("Seconds") and float(limit) > MINUTE // SECOND:
        return f"{limit} seconds ({in_words(round(float(limit) * SECOND))})"
    return limit
