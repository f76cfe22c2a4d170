"""Suggestions for wrong names, and messages of msgspec about wrong values translated for users.

A suggestion is the most similar known name, ignoring case."""

from __future__ import annotations

import difflib
import functools
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from heapq import nsmallest
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from forewarn.support.text import MAX_LISTED, listing

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")
_CHOICE = re.compile(r"Invalid enum value (.*)")
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_AT = re.compile(r" - at (?:`key` in )?`(\$[^`]*)`")
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\[(\.\.\.)\]")
KIND_NAMES = {  # by msgspec's name of the kind of value
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
    "date": "a date",
    "datetime": "a time",
}
_LETTERS = string.ascii_lowercase + string.digits + "._-"
MAX_NAME = 80  # characters of a name that is compared
MAX_SCANNED = 10_000  # names that are searched for candidates
MAX_COMPARED = 500  # names that are compared with an unknown one

_SCALARS = {"int", "float", "bool", "date", "datetime"}


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that is most similar to this one, if any is similar.

    If there are many names, only some are compared: guests wait meanwhile."""
    if len(name) > MAX_NAME:
        return None
    by_case = {candidate.lower(): candidate for candidate in _candidates(name, known)}
    close = difflib.get_close_matches(name.lower(), by_case, n=1)
    return by_case[close[0]] if close else None


def _candidates(name: str, known: Collection[str]) -> Collection[str]:
    """Return the names to compare: all, if they are few; else those that are one typing error away;
    if there are none, the first that begin alike and are about as long."""
    if len(known) <= MAX_COMPARED:
        return known
    names = known if isinstance(known, Mapping | Set) else frozenset(known)
    if typos := [typo for text in {name, name.lower()} for typo in _typos(text) if typo in names]:
        return typos[:MAX_COMPARED]
    least, most = len(name) - 2, len(name) + 2
    half = len(name) // 2 or 1
    begin = name[:half].lower()
    scanned = islice(known, MAX_SCANNED)
    alike = (n for n in scanned if least <= len(n) <= most and n[:half].lower() == begin)
    return list(islice(alike, MAX_COMPARED))


def _typos(text: str) -> Iterator[str]:
    """Yield the text, and all with a letter more or less, another letter, or two exchanged."""
    yield text
    for at in range(len(text) + 1):
        before, after = text[:at], text[at:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        for letter in _LETTERS:
            yield before + letter + after[1:]
            yield before + letter + after


def shortened(name: str) -> str:
    """Shorten an unknown name for a message; no real one is longer than `MAX_NAME`."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"


def instead_of(name: str, known: Collection[str]) -> str:
    """Return `did you mean 'web_0'?`, or the names that there are."""
    scanned = list(islice(known, MAX_SCANNED))
    numbered = sorted((other for other in scanned if _is_numbered(other, name)), key=len)
    if len(numbered) < 2:
        near = nearest(name, known)
        if near:
            return f"did you mean '{near}'?"
        if not known:
            return "there is none"
        if len(known) == 1:
            return f"there is only {scanned[0]}"
    names: Collection[str] = numbered if len(numbered) > 1 else known
    shown = numbered[:MAX_LISTED] if len(numbered) > 1 else nsmallest(MAX_LISTED, scanned)
    rest = len(names) - len(shown)
    return f"there are {listing(shown)}{f' and {rest} more' if rest else ''}"


def _is_numbered(name: str, stem: str) -> bool:
    """Return whether a name is another one with a number, such as web_0 for web."""
    rest = name.removeprefix(stem)
    return bool(stem) and rest != name and rest[1:].isdecimal() and rest[0] in "_-"


@functools.cache
def fields_of(kind: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a kind of struct. To find them takes long, and a file may have many
    mistakes."""
    return msgspec.structs.fields(kind)


class ValueProblem(NamedTuple):
    """What is wrong with a value, the path to it, and the most similar valid name."""

    message: str
    steps: tuple[str | int, ...]
    suggestion: str = ""


def value_problem(
    error: str, raw: Any, kind: Any, choices: Mapping[str, Iterable[str]] | None = None
) -> ValueProblem:
    """Translate msgspec's error about `raw`, which should be of this kind, for users.

    `choices` are the allowed values by key, for keys that do not allow all values."""
    steps = list(_steps(error, raw))
    if error.startswith("Expected `str`") and (key_problem := _key_problem(_value_at(raw, steps))):
        return ValueProblem(key_problem, tuple(steps))
    if match := _UNKNOWN.search(error):
        key = match[1]
        known = [field.name for field in fields_of(_kind_at(kind, steps))]
        near = nearest(key, known) or ""
        return ValueProblem(f"unknown key; {instead_of(key, known)}", (*steps, key), near)
    if match := _MISSING.search(error):
        return ValueProblem(f"key '{match[1]}' is missing", tuple(steps))
    if _CHOICE.search(error):
        key = next(step for step in reversed(steps) if isinstance(step, str))
        allowed = list((choices or {}).get(key, ()))
        value = _value_at(raw, steps)
        near = nearest(str(value), allowed) or ""
        hint = f"; did you mean '{near}'?" if near else ""
        return ValueProblem(
            f"unknown value '{value}'; expected one of {listing(allowed)}{hint}", tuple(steps), near
        )
    if match := _EXPECTED.search(error):
        wanted = [name.strip() for name in match[1].split("|")]
        expected = " or ".join(KIND_NAMES.get(name, name) for name in wanted if name != "null")
        actual = KIND_NAMES.get(match[2], match[2])
        quotes = "; write it in quotes" if "str" in wanted and match[2] in _SCALARS else ""
        return ValueProblem(f"expected {expected}, not {actual}{quotes}", tuple(steps))
    return ValueProblem(" ".join(error.split(" - at `")[0].split()), tuple(steps))


def _steps(error: str, raw: Any) -> Iterable[str | int]:
    """Yield the steps of msgspec's path. `[...]` is an unspecified key or value of a mapping."""
    match = _AT.search(error)
    value = raw
    for name, index, any_of_mapping in _STEP.findall(match[1] if match else ""):
        step: str | int = name or (int(index) if index else "")
        if any_of_mapping and isinstance(value, dict):
            step = next((str(k) for k, v in value.items() if not isinstance(v, str)), "")
        if step == "" and not name:
            return
        yield step
        value = _value_at(value, [step])


def _key_problem(value: Any) -> str:
    """Describe the first key of a mapping that is not text; empty if all are."""
    keys = value if isinstance(value, dict) else {}
    for key in keys:
        if not isinstance(key, str):
            shown = str(key).lower() if isinstance(key, bool) else "null" if key is None else key
            return f"a key must be text, not {shown}; write it in quotes"
    return ""


def _value_at(value: Any, steps: Iterable[str | int]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _kind_at(kind: Any, steps: Iterable[str | int]) -> Any:
    """Return the struct that is expected at the end of the path."""
    kind = _struct_in(kind) or kind  # which may be optional
    for step in steps:
        if isinstance(step, str):
            hints = {field.name: field.type for field in fields_of(kind)}
            kind = _struct_in(hints.get(step)) or kind
    return kind


def _struct_in(type: Any) -> Any:
    if isinstance(type, msgspec.StructMeta):
        return type
    for inner in getattr(type, "__args__", ()):
        if struct := _struct_in(inner):
            return struct
    return None
