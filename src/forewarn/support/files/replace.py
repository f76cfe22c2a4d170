"""Replacing a file in one step, so that whoever reads it finds the former content or the new one,
also after a crash."""

from __future__ import annotations

import os
from pathlib import Path

from forewarn.support.system import sync

PRIVATE = 0o600


def replace(
    path: Path, content: bytes, *, mode: int = PRIVATE, owner: tuple[int, int] | None = None
) -> None:
    """Replace the content of a file, and return when it is on disk. `owner` are the ids of a user
    and a group. Raises OSError, in which case nothing has changed."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # of a process that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(draft, flags, PRIVATE), "wb") as file:
        if mode != PRIVATE:
            draft.chmod(mode)
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync(path.parent)
