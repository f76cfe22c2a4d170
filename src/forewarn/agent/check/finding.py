"""What `agent check` has found about one thing: all right, worth knowing, or in the way."""

from __future__ import annotations

from typing import Literal

import msgspec

Grade = Literal["ok", "note", "problem"]


class Finding(msgspec.Struct, frozen=True):
    grade: Grade
    about: str
    says: str


def ok(about: str, says: str) -> Finding:
    return Finding("ok", about, says)


def note(about: str, says: str) -> Finding:
    return Finding("note", about, says)


def problem(about: str, says: str) -> Finding:
    return Finding("problem", about, says)
