"""The text of a token: how its secret is created, compared, and hidden in what people read.

`fw_<id>_<secret>`: scanners look for the prefix, the id names the token in a list, and only its
owner knows the secret. The tokens themselves are `tokens.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string

import msgspec

ID_BYTES = 4  # of a token's id, which is not secret
SECRET_LENGTH = 43  # letters and digits: 256 bits
_LETTERS = string.ascii_letters + string.digits

FORM = re.compile(rf"fw_([0-9a-f]{{{2 * ID_BYTES}}})_([A-Za-z0-9]{{{SECRET_LENGTH}}})", re.ASCII)
_ID = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}", re.ASCII)
# Also matches one that is cut off or has something added.
_LIKE = re.compile(rf"fw_([0-9a-f]{{{2 * ID_BYTES}}})_[A-Za-z0-9]{{4,}}", re.ASCII)
_LIKE_BYTES = re.compile(_LIKE.pattern.encode(), re.ASCII)
# A signed token of an issuer: a header and claims, both JSON objects in base64.
_SIGNED = re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?", re.ASCII)
_SIGNED_BYTES = re.compile(_SIGNED.pattern.encode(), re.ASCII)

_NO_DIGEST = "0" * 64  # compared with the secret of a token that does not exist


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
    """Return the digest of the secret in a token. The secret has as many bits as the digest, so
    there is no salt and no stretching."""
    return hashlib.sha256(text.rpartition("_")[2].encode()).hexdigest()


def id_of(text: str) -> str:
    """Return the id in the text of a token; empty if the text is not a token."""
    match = FORM.fullmatch(text)
    return match[1] if match else ""


def is_id(text: str) -> bool:
    """Does a text look like the id of a token, in any letter case?"""
    return _ID.fullmatch(text.lower()) is not None


def same(text: str, expected: str | None) -> bool:
    """Does the token have the expected digest? None, for an unknown token, takes as long."""
    equal = hmac.compare_digest(digest(text), expected or _NO_DIGEST)
    return equal and expected is not None


def hidden(text: str) -> str:
    """Return the text without the secrets in it."""
    text = _LIKE.sub(r"fw_\1_…", text) if "fw_" in text else text
    return _SIGNED.sub("eyJ…", text) if "eyJ" in text else text


def hidden_bytes(text: bytes) -> bytes:
    text = _LIKE_BYTES.sub(rb"fw_\1_...", text) if b"fw_" in text else text
    return _SIGNED_BYTES.sub(b"eyJ...", text) if b"eyJ" in text else text


def inside(text: bytes) -> bool:
    return (b"fw_" in text and _LIKE_BYTES.search(text) is not None) or (
        b"eyJ" in text and _SIGNED_BYTES.search(text) is not None
    )
