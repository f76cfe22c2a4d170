"""The options of the driver `command`: the table [command] in the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec

from forewarn.drivers.port import DriverOptions
from forewarn.support.program import ProgramUnusable, find_program
from forewarn.support.text import parse_duration

FILES_PER_PROGRAM = 4  # its standard input, output and error, and its pidfd


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program that can be called."""

    words: tuple[str, ...]  # its whole path and its first arguments
    timeout: float = 600.0  # seconds of guard time for one call
    repeatable: bool = False  # may it be called again if it is not known whether it succeeded?
    work: bool = False  # does it have the verbs for work on empty hosts?
    max_at_once: int = 256  # programs that run at a time


class CommandOptions(DriverOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    program: Annotated[  # and its first arguments
        list[str],
        msgspec.Meta(
            description="the program that carries events out",
            examples=[["/usr/local/lib/forewarn/carry"]],
        ),
    ]
    timeout: str = "10m"  # for one call
    repeatable: bool = False  # may it be called again if it is not known whether it succeeded?
    work: bool = False  # does it have the verbs for work on empty hosts?
    max_at_once: int = 256  # programs that run at a time

    programs: ClassVar[tuple[str, ...]] = ("program",)

    def problems(self) -> Iterator[tuple[str, str]]:
        try:
            find_program(self.program)
        except ProgramUnusable as error:
            yield "program", str(error)
        try:
            if parse_duration(self.timeout) <= 0:
                yield "timeout", "must be more than 0"
        except ValueError as error:
            yield "timeout", str(error)
        if self.max_at_once < 1:
            yield "max_at_once", "must be at least 1"

    def open_files(self) -> int:
        return FILES_PER_PROGRAM * self.max_at_once

    def resolve(self) -> Program:
        """Return the program with its whole path. Raises ProgramUnusable."""
        return Program(
            words=find_program(self.program),
            timeout=parse_duration(self.timeout) / 1e6,
            repeatable=self.repeatable,
            work=self.work,
            max_at_once=self.max_at_once,
        )
