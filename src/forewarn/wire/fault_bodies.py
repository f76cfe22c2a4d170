"""Answers that are not in order, as clients meet them on the real service, and are made here only
on purpose. **[ours]** are the bodies of 410 and 500, of which none was published.
"""

from __future__ import annotations

import msgspec

PLAIN = "text/plain; charset=utf-8"
GONE = b'{ "error": "Gone. The service is being updated. Try again" }'
ERROR = b'{ "error": "Internal server error" }'
RAW = b"\x01\t\n\x1f"  # which a JSON string may only have escaped


def without_events(document: bytes) -> bytes:
    """The document, with nothing in it but its number."""
    number = msgspec.json.decode(document)["DocumentIncarnation"]
    return msgspec.json.encode({"DocumentIncarnation": number})


def with_control_characters(document: bytes) -> bytes:
    """In what an event says of itself; in an older version, in its first resource."""
    for key in (b'"Description":"', b'"Resources":["'):
        if key in document:
            return document.replace(key, key + RAW)
    return document
