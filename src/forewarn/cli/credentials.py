"""What the commands let themselves in with: a token and a certificate, from the environment or from
files that are named. Never a token from an argument, which everybody on the machine can read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.control.client.connection import ServiceAddress

TOKEN = "FOREWARN_TOKEN"
TOKEN_FILE = "FOREWARN_TOKEN_FILE"
CA = "FOREWARN_CA"
MAX_TOKEN_FILE = 4_096  # bytes; a token has some fifty


class CredentialError(Exception):
    """A token cannot be had; the message says why, and never what is in the file."""


_named: dict[str, Path | None] = {}  # on the command line, before the command


def named(token_file: Path | None, ca: Path | None) -> None:
    """What was said before the command, for whichever command that is."""
    _named.update(token_file=token_file, ca=ca)


def door(url: str) -> ServiceAddress:
    file = _named.get("token_file")
    token = os.environ.get(TOKEN, "").strip() if file is None else ""
    if not token and (path := file or os.environ.get(TOKEN_FILE)):
        token = _read(Path(path))
    return ServiceAddress(url, token, str(_named.get("ca") or os.environ.get(CA) or ""))


def in_the_clear(door: ServiceAddress) -> bool:
    """Would the token leave this machine for everybody on the way to read?"""
    parts = urlsplit(door.url)
    here = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
    return bool(door.token) and parts.scheme != "https" and not here


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            there = os.fstat(file.fileno())
            if stat.S_ISREG(there.st_mode) and stat.S_IMODE(there.st_mode) & 0o007:
                raise CredentialError(
                    f"{path} contains a token and is readable by everybody: chmod 600 {path}, and"
                    " revoke the token if somebody may have read it"
                )
            text = file.read(MAX_TOKEN_FILE + 1)
    except OSError as error:
        raise CredentialError(f"{path}: {error.strerror}") from error
    words = text.decode("ascii", "replace").split()
    if len(text) > MAX_TOKEN_FILE or len(words) != 1 or not words[0].startswith("fw_"):
        raise CredentialError(f"{path} does not contain a token: one line that begins with fw_")
    return words[0]
