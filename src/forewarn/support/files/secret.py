"""Files that contain a secret, which never appears in an error."""

from __future__ import annotations

import os
from pathlib import Path


class SecretUnreadable(Exception):
    """A file with a secret cannot be read."""


def read_secret(path: str, what: str) -> bytes:
    """Return the content of a file with a secret. `what` names the setting in errors."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SecretUnreadable(f"{what} {path} cannot be read: {error.strerror}") from None


def secret_file_problems(path: str, what: str) -> list[str]:
    """Return what is wrong with a file that contains a secret."""
    try:
        mode = Path(path).stat().st_mode
        Path(path).open("rb").close()
    except OSError as error:
        return [f"{what} {path} cannot be read: {error.strerror}"]
    if os.name == "posix" and mode & 0o007:
        return [f"{what} {path} is readable by every user of this machine; chmod o= {path}"]
    return []
