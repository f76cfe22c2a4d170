"""Query options of lists and of what they show: `$filter`, `$expand`, `$select`, `$top`,
`$skiptoken` and `statusOnly`.

Every operation declares which of them it has. Others, and values that it does not know, are
refused: a client that asks for a few resources and gets all of them may go on to delete them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote

from forewarn.arm.errors import ArmError, invalid_parameter
from forewarn.service.access.secret import hidden

FILTER, EXPAND, SELECT, TOP, SKIP = "$filter", "$expand", "$select", "$top", "$skiptoken"
STATUS_ONLY = "statusonly"
PAGED = (TOP, SKIP)  # of every list that comes in pages
# What is left of an option whose `$` was taken away, as by a shell between double quotes.
NAMELESS = ("", "filter", "expand", "select", "top", "skiptoken")
MAX_TOP = 10**9
MAX_SHOWN = 200  # characters of an option, in the message that refuses it

Field: TypeAlias = Callable[[Any], str | Collection[str]]  # the values that an item has
Predicate: TypeAlias = Callable[[Any], bool]

# One comparison: `name eq 'value'`, `startswith(name, 'value') [eq true]` or
# `substringof('value', name)`. Azure's own examples quote names as well, and not all values.
_VALUE = r"(?:'(?P<{0}>(?:[^']|'')*)'|(?P<{0}_bare>[^\s'(),]+))"
_COMPARISON = re.compile(
    r"'?(?P<name>[\w/.]+)'?\s+eq\s+" + _VALUE.format("value"),
    re.IGNORECASE,
)
_STARTS = re.compile(
    r"startswith\(\s*(?P<name>[\w/.]+)\s*,\s*" + _VALUE.format("value") + r"\s*\)"
    r"(?:\s+eq\s+true)?",
    re.IGNORECASE,
)
_CONTAINS = re.compile(
    r"substringof\(\s*" + _VALUE.format("value") + r"\s*,\s*(?P<name>[\w/.]+)\s*\)"
    r"(?:\s+eq\s+true)?",
    re.IGNORECASE,
)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)


def check_options(given: Sequence[tuple[str, str]], allowed: Collection[str]) -> None:
    """Raise ArmError if a request has an option that its operation does not have, or one twice."""
    names = [name for name, _ in given if name.startswith("$") or name == STATUS_ONLY]
    for name, _ in given:
        bare = unquote(name).strip().removeprefix("$")
        if bare in NAMELESS and name != f"${bare}":
            problem = "an option begins with '$', which a shell replaces between double quotes"
            raise invalid(name or "''", problem)
    for name in names:
        if name not in allowed:
            offered = ", ".join(allowed) if allowed else "none"
            raise invalid(name, f"this operation does not have it; its options: {offered}")
        if names.count(name) > 1:
            raise invalid(name, "it may be given only once")


def expansions(parameters: Mapping[str, str], *known: str, option: str = EXPAND) -> set[str]:
    """Return the names in `$expand`, or in another option that is a list, in lower case."""
    names = [name.strip().lower() for name in parameters.get(option, "").split(",")]
    names = [name for name in names if name]
    if unknown := [name for name in names if name not in (word.lower() for word in known)]:
        raise invalid(option, f"'{_shown(unknown[0])}' is unknown; expected {_listed(known)}")
    return set(names)


def flag(parameters: Mapping[str, str], name: str) -> bool:
    value = parameters.get(name, "false").lower()
    if value not in ("true", "false", ""):
        raise invalid(name, f"expected true or false, not '{_shown(value)}'")
    return value == "true"


def top(parameters: Mapping[str, str]) -> int | None:
    """Return how many items are wanted at most; None: all."""
    text = parameters.get(TOP)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise invalid(TOP, f"expected a number from 1 to {MAX_TOP - 1:,}, not '{_shown(text)}'")
    return int(text)


def predicate(parameters: Mapping[str, str], fields: Mapping[str, Field]) -> Predicate | None:
    """Return whether an item is wanted by `$filter`, which compares these fields; None if all
    items are, also if it is empty, as az sends it. Texts are compared in any letter case. Raises
    ArmError."""
    text = parameters.get(FILTER, "").strip()
    if not text:
        return None
    by_name = {name.lower(): field for name, field in fields.items()}
    tests = [_comparison(part.strip(), text, by_name, fields) for part in _split(text)]
    return lambda item: all(test(item) for test in tests)


def _split(text: str) -> list[str]:
    """Split a filter at each `and` that is not inside a value."""
    quoted = [match.span() for match in re.finditer(r"'(?:[^']|'')*'", text)]
    parts, start = [], 0
    for found in _AND.finditer(text):
        if not any(first < found.start() < last for first, last in quoted):
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]


def _comparison(
    part: str, text: str, by_name: Mapping[str, Field], fields: Collection[str]
) -> Predicate:
    for pattern, compare in (
        (_COMPARISON, operator.eq),
        (_STARTS, str.startswith),
        (_CONTAINS, str.__contains__),
    ):
        if (match := pattern.fullmatch(part)) is None or match["name"].lower() not in by_name:
            continue
        groups = match.groupdict()
        quoted = groups["value"]
        value = groups["value_bare"] if quoted is None else quoted.replace("''", "'")
        if compare is not operator.eq and not value:
            break  # every text contains it
        return _test(by_name[match["name"].lower()], compare, value.lower())
    raise invalid(
        FILTER,
        f"'{_shown(text)}' is not supported; expected comparisons of"
        f" {_listed(fields)} that are joined with 'and'",
    )


def _test(field: Field, compare: Callable[[str, str], bool], value: str) -> Predicate:
    def test(item: Any) -> bool:
        values = field(item)
        values = [values] if isinstance(values, str) else values
        return any(compare(each.lower(), value) for each in values)

    return test


def invalid(name: str, problem: str) -> ArmError:
    return invalid_parameter(f"The query option {hidden(name)}: {problem}.")


def _shown(text: str) -> str:
    return hidden(text[:MAX_SHOWN])


def _listed(words: Collection[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)
