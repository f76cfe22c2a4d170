"""URLs that may contain a password, as they may be shown."""

from __future__ import annotations

import re

HIDDEN = "***"

_PASSWORD = re.compile(r"(?<=://)([^:@/?]*):.*@")  # up to the last @: one may be in the password
_SECRET = re.compile(r"([?&][^=&]*(?:pass|%)[^=&]*=)[^&]*", re.IGNORECASE)  # of the query


def without_password(url: str) -> str:
    """Return a URL with its passwords hidden, for messages, logs and commands."""
    return _SECRET.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1:{HIDDEN}@", url))
