"""Finds documents in texts written by people: issue threads, logs, chats.

Documents may be in code fences, after quote marks and log prefixes, pretty-printed, escaped, in
Python's notation, or with typographic quotes. Text that only resembles a document is noted with its
line number.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from forewarn.testing.recording import log_times
from forewarn.testing.recording.documents import MAX_DEPTH, RecordedDocument, recorded_document_of

MAX_DOCUMENTS = 10_000  # read from one text
MAX_DOCUMENT = 256 * 1024  # characters of one
MAX_BROKEN = 200  # of incomplete documents, after which the search ends
MAX_HEAD = 500  # characters before a document, and of the lines above, that are searched for a time
MAX_BEFORE = 512  # characters of a document before its Events

_MARK = re.compile(r"""(?:\\?["'])(?:Events|EventId)\\?["']\s*:""")
_QUOTED = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(  # of a log line, before JSON
    r"^[^{}\[\]\"'\n]{0,200}?[:|>\]]\s(?=\s{0,99}[\"{}\[\]])|^\S.{0,200}?[\]:|]\s{1,99}(?=[\"{}\]])"
)
_COMMA = re.compile(r",(\s*[}\]])")
_TYPOGRAPHY = str.maketrans(
    {**dict.fromkeys("“”„‟″", '"'), **dict.fromkeys("‘’‚′", "'"), "\xa0": " ", "\u200b": ""}
)


class FoundDocument(msgspec.Struct, kw_only=True):
    """A document, the line that it begins on, and when it was seen if the text says so."""

    line: int
    value: Mapping[str, Any]
    document: RecordedDocument
    t: float | None
    stated: bool = False


def find_documents(text: str, notes: list[str]) -> list[FoundDocument]:
    """Return all documents in a text, in order."""
    return _Search(text, notes).find_all()


class _Search:
    def __init__(self, text: str, notes: list[str]) -> None:
        plain = _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
        plain = plain.replace("&quot;", '"').translate(_TYPOGRAPHY)
        self._text = _QUOTED.sub("", plain)
        self._bare = "\n".join(_PREFIX.sub("", line) for line in self._text.split("\n"))
        self._starts = _line_starts(self._text)
        self._lines = self._text.split("\n")
        self._notes = notes

    def find_all(self) -> list[FoundDocument]:
        documents: list[FoundDocument] = []
        marks = [match.start() for match in _MARK.finditer(self._text)]
        bare = [match.start() for match in _MARK.finditer(self._bare)]
        same_marks = len(marks) == len(bare)
        until = bare_until = 0  # ends of the documents found so far
        last_noted = -1
        broken = 0
        previous = 0  # last line of the previous document
        for index, mark in enumerate(marks):
            if mark < until or (same_marks and bare[index] < bare_until):
                continue
            if len(documents) >= MAX_DOCUMENTS:
                self._notes.append(f"only the first {MAX_DOCUMENTS:,} documents are read")
                break
            line = self._line(mark)
            direct = _document(self._text, mark, until)
            without_prefixes = None
            if direct is None and same_marks:
                without_prefixes = _document(self._bare, bare[index], bare_until)
            result = direct or without_prefixes
            if result is None:
                broken += 1
                if broken > MAX_BROKEN:
                    self._notes.append(
                        f"line {line}: too many incomplete documents; the rest is ignored"
                    )
                    break
                if "Events" in self._text[mark : mark + 12] and line > last_noted:
                    self._notes.append(f"line {line}: incomplete document")
                    last_noted = line
                continue
            start, end, value = result
            if direct is not None:
                first_line = self._line(start)
                head = self._text[
                    max(self._starts[first_line - 1], until, start - MAX_HEAD) : start
                ]
                until = end
            else:
                bare_until = end
                first_line = _line_number(self._bare, start)
                head = self._lines[first_line - 1].split("{")[0][-MAX_HEAD:]
            document = recorded_document_of(value)
            if document is None:
                continue
            self._notes += [f"line {first_line}: {flaw}; ignored" for flaw in document.flaws]
            above = self._lines[
                max(previous, first_line - 1 - log_times.LOOK_BACK_HEADERS) : first_line - 1
            ]
            t = self._when(document, head, [line[:MAX_HEAD] for line in above], first_line)
            documents.append(
                FoundDocument(
                    line=first_line, value=value, document=document, t=t, stated=t is not None
                )
            )
            previous = self._line(end) if direct else _line_number(self._bare, end)
        return documents

    def _when(
        self, document: RecordedDocument, head: str, above: list[str], line: int
    ) -> float | None:
        due = [event.not_before for event in document.events if event.not_before is not None]
        year = datetime.fromtimestamp(min(due), UTC).year if due else None
        t = log_times.time_before(head, above, year)
        if t is not None and due and abs(min(due) - t) > log_times.MAX_DISTANCE:
            self._notes.append(f"line {line}: the time before it is too far from its NotBefore")
            return None
        return t

    def _line(self, at: int) -> int:
        return bisect_right(self._starts, at)


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _document(text: str, mark: int, after: int) -> tuple[int, int, Mapping[str, Any]] | None:
    """Return the document with a key at `mark`: its start, its end and its value."""
    start = _opening(text, mark, after)
    if start is None:
        return None
    escaped = text[mark] == "\\"
    for reader in (_read_escaped,) if escaped else (_read_json, _read_python):
        result = reader(text, start)
        if result is None:
            continue
        end, value = result
        if isinstance(value, dict) and isinstance(value.get("Events"), list):
            return start, end, value
        if isinstance(value, dict) and "EventType" in value and "EventStatus" in value:
            return start, end, {"Events": [value]}  # an event on its own
    return None


def _opening(text: str, mark: int, after: int) -> int | None:
    """Return the position of the brace that encloses the key."""
    depth = 0
    for at in range(mark - 1, max(after, mark - MAX_BEFORE) - 1, -1):
        if text[at] in "}]":
            depth += 1
        elif text[at] in "{[":
            if depth == 0:
                return at if text[at] == "{" else None
            depth -= 1
    return None


def _read_json(text: str, start: int) -> tuple[int, Any] | None:
    """Read JSON, also with raw control characters and trailing commas."""
    end = _end(text, start)
    if end is None:
        return None
    part = text[start:end]
    for candidate in (part, _COMMA.sub(r"\1", part)):
        try:
            return end, json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def _read_python(text: str, start: int) -> tuple[int, Any] | None:
    """Read a document as Python prints it: {'Events': []}."""
    end = _end(text, start)
    if end is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return end, ast.literal_eval(text[start:end])
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _read_escaped(text: str, start: int) -> tuple[int, Any] | None:
    """Read a document inside a JSON string: {\\"Events\\":[]}."""
    stop = text.find("\n", start)
    line = text[start : len(text) if stop < 0 else stop][:MAX_DOCUMENT]
    plain = line.replace('\\"', '"').replace("\\\\", "\\").replace("\\n", "\n")
    result = _read_json(plain, 0)
    if result is None:
        return None
    return start + len(line), result[1]


def _end(text: str, start: int) -> int | None:
    """Return the position after the brace that closes the one at `start`."""
    depth, quote, at = 0, "", start
    stop = min(len(text), start + MAX_DOCUMENT)
    while at < stop:
        c = text[at]
        if quote:
            if c == "\\":
                at += 1
            elif c == quote:
                quote = ""
        elif c in "\"'":
            quote = c
        elif c in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                return None
        elif c in "}]":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None
