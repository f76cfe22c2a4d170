"""What can be told from a program's file: whether libfaketime can move its clock.

It is loaded by the dynamic linker, so not into a program that is linked statically; and one that
is written in Go asks the kernel itself, however it is linked.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

_PT_INTERP, _PT_NOTE = 3, 4
_GO = b"Go\x00\x00"  # the name of a note that Go's linker leaves
_MAX_LINE = 256  # bytes of a script's first line
_MAX_NOTE = 4096


def unmoved(command: str) -> str | None:
    """Why the clock of this program will not be moved; None if nothing speaks against it."""
    found = shutil.which(command)
    if found is None:
        return None
    try:
        path = _interpreter(Path(found))
        kinds = _segments(path)
    except (OSError, struct.error, ValueError):
        return None  # no file that we can read; it may be fine
    if any(_GO in note for note in kinds.get(_PT_NOTE, ())):
        return f"{path} is written in Go and reads the clock itself"
    if _PT_INTERP not in kinds:
        return f"{path} is linked statically"
    return None


def _interpreter(path: Path) -> Path:
    """The program that a script is run by, or the program itself."""
    with path.open("rb") as file:
        line = file.read(_MAX_LINE).partition(b"\n")[0]
    if not line.startswith(b"#!"):
        return path
    words = line[2:].decode().split()
    name = words[1] if Path(words[0]).name == "env" and len(words) > 1 else words[0]
    return Path(shutil.which(name) or name)


def _segments(path: Path) -> dict[int, list[bytes]]:
    """An ELF file's segments by their kind, and what is in those that are notes."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            raise ValueError("no ELF file")
        wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
        begin, size, count = struct.unpack_from(
            order + ("32xQ14xHH" if wide else "28xI10xHH"), head
        )
        found: dict[int, list[bytes]] = {}
        for number in range(count):
            file.seek(begin + number * size)
            entry = file.read(size)
            (kind,) = struct.unpack_from(order + "I", entry)
            place = struct.unpack_from(order + ("8xQ16xQ" if wide else "4xI8xI"), entry)
            if kind == _PT_NOTE:
                file.seek(place[0])
                found.setdefault(kind, []).append(file.read(min(place[1], _MAX_NOTE)))
            else:
                found.setdefault(kind, [])
    return found
