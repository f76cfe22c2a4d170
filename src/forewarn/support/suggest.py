"""What somebody may have meant: the nearest known name, whatever its letter case; and a library's
complaint about a value in our own words, with the place it is about."""

from __future__ import annotations

import difflib
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from heapq import nsmallest
from itertools import islice
from typing import Any

import msgspec

from forewarn.support.text import LISTED_AT_MOST, listing

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")
_CHOICE = re.compile(r"Invalid enum value (.*)")
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_AT = re.compile(r" - at (?:`key` in )?`(\$[^`]*)`")
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\[(\.\.\.)\]")
IN_WORDS = {  # a library's names of kinds of values
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
MAX_COMPARED = 500  # names that are compared with one that nobody knows

_SCALARS = {"int", "float", "bool", "date", "datetime"}


def nearest(name: str, known: Collection[str]) -> str | None:
    """Guests wait while this is looked for: of many, few are compared."""
    if len(name) > MAX_NAME:
        return None
    by_case = {candidate.lower(): candidate for candidate in _alike(name, known)}
    close = difflib.get_close_matches(name.lower(), by_case, n=1)
    return by_case[close[0]] if close else None


def _alike(name: str, known: Collection[str]) -> Collection[str]:
    """Of more than can be compared, those that are one slip away; if there are none, the first
    that begin alike and are about as long."""
    if len(known) <= MAX_COMPARED:
        return known
    every = known if isinstance(known, Mapping | Set) else frozenset(known)
    if slips := [slip for said in {name, name.lower()} for slip in _slips(said) if slip in every]:
        return slips[:MAX_COMPARED]
    least, most = len(name) - 2, len(name) + 2
    half = len(name) // 2 or 1
    begin = name[:half].lower()
    scanned = islice(known, MAX_SCANNED)
    alike = (one for one in scanned if least <= len(one) <= most and one[:half].lower() == begin)
    return list(islice(alike, MAX_COMPARED))


def _slips(said: str) -> Iterator[str]:
    """Itself, and all that is one letter more, less, another, or two in the other order."""
    yield said
    for at in range(len(said) + 1):
        before, after = said[:at], said[at:]
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
    """`did you mean 'web_0'?`, or all there are."""
    near = nearest(name, known)
    if near:
        return f"did you mean '{near}'?"
    if not known:
        return "there is none"
    shown = nsmallest(LISTED_AT_MOST, islice(known, MAX_SCANNED))
    rest = len(known) - len(shown)
    return f"there are {listing(shown)}{f' and {rest} more' if rest else ''}"


def helped(complaint: str, fields: Iterable[str], choices: Iterable[str] = ()) -> str:
    """A library's complaint about a file in one line, with what would have been right."""
    said = " ".join(complaint.split())
    if found := _UNKNOWN.search(said):
        return f"{said}; {instead_of(found[1], list(fields))}"
    allowed = list(choices)
    if "Invalid enum value" in said and allowed:
        return f"{said}; there are {listing(allowed)}"
    return said


def complaint(
    said: str, raw: Any, kind: Any, choices: Mapping[str, Iterable[str]] | None = None
) -> tuple[str, tuple[str | int, ...]]:
    """What is wrong with `raw`, which was to be of this kind, and at which steps into it.

    `choices` says, by key, what may stand there where not everything may."""
    steps = list(_steps(said, raw))
    if said.startswith("Expected `str`") and (wrong_key := _wrong_key(_walked(raw, steps))):
        return wrong_key, tuple(steps)
    if found := _UNKNOWN.search(said):
        known = [field.name for field in msgspec.structs.fields(_kind_at(kind, steps))]
        return f"unknown key; {instead_of(found[1], known)}", (*steps, found[1])
    if found := _MISSING.search(said):
        return f"key '{found[1]}' is missing", tuple(steps)
    if found := _CHOICE.search(said):
        key = next(step for step in reversed(steps) if isinstance(step, str))
        allowed = list((choices or {}).get(key, ()))
        wrong = _walked(raw, steps)
        near = nearest(str(wrong), allowed)
        meant = f"; did you mean '{near}'?" if near else ""
        return f"'{wrong}' is none of {listing(allowed)}{meant}", tuple(steps)
    if found := _EXPECTED.search(said):
        wanted = [word.strip() for word in found[1].split("|")]
        words = " or ".join(IN_WORDS.get(word, word) for word in wanted if word != "null")
        got = IN_WORDS.get(found[2], found[2])
        quotes = "; write it in quotes" if "str" in wanted and found[2] in _SCALARS else ""
        return f"{words} is expected, not {got}{quotes}", tuple(steps)
    return " ".join(said.split(" - at `")[0].split()), tuple(steps)


def _steps(said: str, raw: Any) -> Iterable[str | int]:
    """A library's path. Where it says [...] it means one of a mapping's values or keys."""
    found = _AT.search(said)
    value = raw
    for name, index, some in _STEP.findall(found[1] if found else ""):
        step: str | int = name or (int(index) if index else "")
        if some and isinstance(value, dict):
            step = next((str(k) for k, v in value.items() if not isinstance(v, str)), "")
        if step == "" and not name:
            return
        yield step
        value = _walked(value, [step])


def _wrong_key(value: Any) -> str:
    """What is wrong with the first key of a mapping that is not text; empty if all are."""
    keys = value if isinstance(value, dict) else {}
    for key in keys:
        if not isinstance(key, str):
            shown = str(key).lower() if isinstance(key, bool) else "null" if key is None else key
            return f"a key is text, which {shown} is not; write it in quotes"
    return ""


def _walked(value: Any, steps: Iterable[str | int]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _kind_at(kind: Any, steps: Iterable[str | int]) -> Any:
    """The struct that is expected there."""
    for step in steps:
        if isinstance(step, str):
            hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
            kind = _struct_in(hints.get(step)) or kind
    return kind


def _struct_in(type: Any) -> Any:
    if isinstance(type, msgspec.StructMeta):
        return type
    for inner in getattr(type, "__args__", ()):
        if found := _struct_in(inner):
            return found
    return None
