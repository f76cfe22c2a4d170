"""What a check of a configuration on this machine finds."""

from __future__ import annotations

from typing import Literal

import msgspec

Grade = Literal["ok", "note", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """A problem keeps the program from working; a note may be intended."""

    grade: Grade
    about: str
    message: str

    def __str__(self) -> str:
        return f"{self.about}: {self.message}" if self.about else self.message


def ok(about: str, message: str) -> Finding:
    return Finding("ok", about, message)


def note(about: str, message: str) -> Finding:
    return Finding("note", about, message)


def problem(about: str, message: str) -> Finding:
    return Finding("problem", about, message)
