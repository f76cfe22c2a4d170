"""A case: what is said on one connection, in pieces, and how such a thing is written to a file.

The format of a file in `corpus/`, made to be read and edited by hand:

    # why it is kept, or anything else
    as quiet                    the machine that asks, or an address that is nobody's
    hurried                     if so: nothing more is said right behind the last segment
    > GET / HTTP/1.1\\r\\n        bytes of a segment; what is not printable is escaped
    2000* a                     the same, so many times
    ---                         the next segment begins

Segments are sent apart, so that each is read on its own. Bytes are printable ASCII, or \\r, \\n,
\\t, \\\\ and \\xNN.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

KEPT = Path(__file__).with_name("corpus")
SUFFIX = ".case"

_RUN = re.compile(rb"(.)\1{39,}", re.DOTALL)  # so much of one byte is written as a count
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|([rnt\\]))")
_SHORT = {"r": "\r", "n": "\n", "t": "\t", "\\": "\\"}


@dataclass(frozen=True)
class Case:
    segments: tuple[bytes, ...]
    machine: str = "quiet"
    hurried: bool = False  # the end of what is said is not sent apart from the last of it

    @property
    def whole(self) -> bytes:
        return b"".join(self.segments)

    def __str__(self) -> str:
        return "".join(_written(self))


def name_of(case: Case) -> str:
    """Named by what it is, so that the same is kept once."""
    return hashlib.sha256(str(case).encode()).hexdigest()[:12] + SUFFIX


def keep(case: Case, why: str, folder: Path = KEPT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name_of(case)
    path.write_text(f"# {why}\n{case}", encoding="ascii")
    return path


def kept(folder: Path = KEPT) -> dict[str, Case]:
    return {path.stem: read(path.read_text("ascii")) for path in sorted(folder.glob(f"*{SUFFIX}"))}


def read(text: str) -> Case:
    machine, hurried = "quiet", False
    segments: list[bytearray] = [bytearray()]
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == ">":
            segments[-1] += _bytes(rest)
        elif word.endswith("*") and word[:-1].isdecimal():
            segments[-1] += _bytes(rest) * int(word[:-1])
        elif word == "---":
            segments.append(bytearray())
        elif word == "as":
            machine = rest
        elif word == "hurried":
            hurried = True
        elif line and word != "#":
            raise ValueError(f"'{line}' is no line of a case")
    return Case(tuple(bytes(segment) for segment in segments), machine, hurried)


def _written(case: Case) -> Iterator[str]:
    yield f"as {case.machine}\n"
    if case.hurried:
        yield "hurried\n"
    for at, segment in enumerate(case.segments):
        if at:
            yield "---\n"
        for line in _LINE.findall(segment):
            yield from _pieces(line)


def _pieces(line: bytes) -> Iterator[str]:
    at = 0
    for run in _RUN.finditer(line):
        if line[at : run.start()]:
            yield f"> {_text(line[at : run.start()])}\n"
        yield f"{len(run[0])}* {_text(run[1])}\n"
        at = run.end()
    if line[at:]:
        yield f"> {_text(line[at:])}\n"


def _text(data: Iterable[int]) -> str:
    return "".join(map(_char, data))


def _char(byte: int) -> str:
    for short, char in _SHORT.items():
        if ord(char) == byte:
            return f"\\{short}"
    return chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}"


def _bytes(text: str) -> bytes:
    return _ESCAPED.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else _SHORT[found[2]], text
    ).encode("latin-1")
