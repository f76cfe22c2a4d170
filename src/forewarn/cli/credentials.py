"""Credentials of the commands: a token and a CA bundle, from options or the environment. A token is
never an argument, because other users can read the arguments of a process.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from forewarn.control.client.connection import ServiceAddress

TOKEN = "FOREWARN_TOKEN"
TOKEN_FILE = "FOREWARN_TOKEN_FILE"
CA = "FOREWARN_CA"
MAX_TOKEN_FILE = 16_384  # bytes; a token has about fifty, one of an OIDC issuer up to this many


class CredentialError(Exception):
    """The token cannot be read; the message says why, but never what is in the file."""


_options: dict[str, Path | None] = {}  # the options before the command


def set_options(token_file: Path | None, ca: Path | None) -> None:
    """Store the options that were given before the command, for the command itself."""
    _options.update(token_file=token_file, ca=ca)


def address_of(url: str) -> ServiceAddress:
    """Return the address of a service, with the credentials of this command."""
    from forewarn.control.client.connection import ServiceAddress

    file = _options.get("token_file")
    token = os.environ.get(TOKEN, "").strip() if file is None else ""
    if not token and (path := file or os.environ.get(TOKEN_FILE)):
        token = _read_token(Path(path))
    return ServiceAddress(url, token, str(_options.get("ca") or os.environ.get(CA) or ""))


def sends_token_unencrypted(address: ServiceAddress) -> bool:
    """Return whether the token would be sent to another machine without TLS."""
    parts = urlsplit(address.url)
    local = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
    return bool(address.token) and parts.scheme != "https" and not local


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and stat.S_IMODE(mode) & 0o007:
                raise CredentialError(
                    f"{path} contains a token and is readable by all users: chmod 600 {path}, and"
                    " revoke the token if somebody may have read it"
                )
            text = file.read(MAX_TOKEN_FILE + 1)
    except OSError as error:
        raise CredentialError(f"{path}: {error.strerror}") from error
    words = text.decode("ascii", "replace").split()
    if len(text) > MAX_TOKEN_FILE or len(words) != 1 or not words[0].startswith(("fw_", "eyJ")):
        raise CredentialError(
            f"{path} does not contain a token: one line that begins with fw_, or with eyJ if it is"
            " from an OIDC issuer"
        )
    return words[0]
