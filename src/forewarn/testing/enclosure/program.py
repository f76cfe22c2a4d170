"""Checks whether libfaketime can change the clock of a program, by its executable file.

libfaketime is loaded by the dynamic linker, so it does not work with statically linked programs;
and programs written in Go ask the kernel for the time, however they are linked.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

_PT_INTERP, _PT_NOTE = 3, 4
_GO = b"Go\x00\x00"  # name of the note that Go's linker writes
_MAX_LINE = 256  # bytes of a script's first line
_MAX_NOTE = 4096


def fake_time_problem(command: str) -> str | None:
    """Return why libfaketime will not work with this program; None if no reason is known."""
    executable = shutil.which(command)
    if executable is None:
        return None
    try:
        path = _interpreter(Path(executable))
        segments = _segments(path)
    except (OSError, struct.error, ValueError):
        return None  # not a readable ELF file; it may work
    if any(_GO in note for note in segments.get(_PT_NOTE, ())):
        return f"{path} is written in Go and reads the clock itself"
    if _PT_INTERP not in segments:
        return f"{path} is linked statically"
    return None


def _interpreter(path: Path) -> Path:
    """Return the interpreter of a script, or the program itself."""
    with path.open("rb") as file:
        line = file.read(_MAX_LINE).partition(b"\n")[0]
    if not line.startswith(b"#!"):
        return path
    command = line[2:].decode().split()
    name = command[1] if Path(command[0]).name == "env" and len(command) > 1 else command[0]
    return Path(shutil.which(name) or name)


def _segments(path: Path) -> dict[int, list[bytes]]:
    """Return the segments of an ELF file by kind, with the contents of notes."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            raise ValueError("not an ELF file")
        is_64_bit, order = head[4] == 2, "<" if head[5] == 1 else ">"
        offset, size, count = struct.unpack_from(
            order + ("32xQ14xHH" if is_64_bit else "28xI10xHH"), head
        )
        segments: dict[int, list[bytes]] = {}
        for number in range(count):
            file.seek(offset + number * size)
            entry = file.read(size)
            (kind,) = struct.unpack_from(order + "I", entry)
            extent = struct.unpack_from(order + ("8xQ16xQ" if is_64_bit else "4xI8xI"), entry)
            if kind == _PT_NOTE:
                file.seek(extent[0])
                segments.setdefault(kind, []).append(file.read(min(extent[1], _MAX_NOTE)))
            else:
                segments.setdefault(kind, [])
    return segments
