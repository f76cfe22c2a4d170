"""What a token looks like, and how its secret is made, compared and kept out of what people read.

`fw_<id>_<secret>`: the beginning is what scanners look for, the id names the token in a list, and
the secret is known to nobody but its owner. Which tokens there are is `tokens.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string

import msgspec

ID_BYTES = 4  # of a token's id, which is no secret
SECRET_LENGTH = 43  # letters and digits: 256 bits
_LETTERS = string.ascii_letters + string.digits

FORM = re.compile(rf"fw_([0-9a-f]{{{2 * ID_BYTES}}})_([A-Za-z0-9]{{{SECRET_LENGTH}}})", re.ASCII)
_ID = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}", re.ASCII)
# Also one that was cut off, or in which something was added: enough of it to be worth hiding.
_LIKE = re.compile(rf"fw_([0-9a-f]{{{2 * ID_BYTES}}})_[A-Za-z0-9]{{4,}}", re.ASCII)
_LIKE_BYTES = re.compile(_LIKE.pattern.encode(), re.ASCII)

_NOBODY = "0" * 64  # what a token that does not exist is compared with


class Secret(msgspec.Struct, frozen=True):
    """A token as it is shown once. Nothing that prints it by accident shows the secret."""

    id: str
    text: str

    def __repr__(self) -> str:
        return f"Secret(id={self.id!r})"


def new_id() -> str:
    return secrets.token_hex(ID_BYTES)


def new(id: str) -> Secret:
    letters = "".join(secrets.choice(_LETTERS) for _ in range(SECRET_LENGTH))
    return Secret(id, f"fw_{id}_{letters}")


def digest(text: str) -> str:
    """Of the secret that is in it. It has as many bits as the digest: no salt, no stretching."""
    return hashlib.sha256(text.rpartition("_")[2].encode()).hexdigest()


def id_of(text: str) -> str:
    """Which token it says it is; empty if it is none at all."""
    found = FORM.fullmatch(text)
    return found[1] if found else ""


def is_id(text: str) -> bool:
    """Does it look like the id of a token, in any letter case?"""
    return _ID.fullmatch(text.lower()) is not None


def same(text: str, known: str | None) -> bool:
    """Is this the secret with that digest? None, for a token that is not there, takes as long."""
    alike = hmac.compare_digest(digest(text), known or _NOBODY)
    return alike and known is not None


def hidden(text: str) -> str:
    """The same, with every secret in it taken out."""
    return _LIKE.sub(r"fw_\1_…", text) if "fw_" in text else text


def hidden_bytes(text: bytes) -> bytes:
    return _LIKE_BYTES.sub(rb"fw_\1_...", text) if b"fw_" in text else text


def inside(text: bytes) -> bool:
    return b"fw_" in text and _LIKE_BYTES.search(text) is not None
