"""Bodies of injected faults: defective answers that clients get from the real service.

The bodies of 410 and 500 are our own, because Azure has published none.
"""

from __future__ import annotations

import msgspec

PLAIN = "text/plain; charset=utf-8"
GONE = b'{ "error": "Gone. The service is being updated. Try again" }'
ERROR = b'{ "error": "Internal server error" }'
CONTROL_CHARACTERS = b"\x01\t\n\x1f"  # not allowed in a JSON string


def without_events(document: bytes) -> bytes:
    """Return the document with its incarnation only."""
    incarnation = msgspec.json.decode(document)["DocumentIncarnation"]
    return msgspec.json.encode({"DocumentIncarnation": incarnation})


def with_control_characters(document: bytes) -> bytes:
    """Return the document with control characters in descriptions, or in names of resources if the
    version has no descriptions."""
    for key in (b'"Description":"', b'"Resources":["'):
        if key in document:
            return document.replace(key, key + CONTROL_CHARACTERS)
    return document
