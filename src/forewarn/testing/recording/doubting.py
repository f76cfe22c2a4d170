"""A recording for the judge: where not all approvals can be in it, each event may have had one.

The judge goes by what a trace holds, and knows of no recorder that sees only a part. So what it is
given says of every event that was shown that somebody may have approved it, at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forewarn.testing.recording.lives import document_of

AT_ANY_TIME = 0.0  # before all that was recorded


def doubted(records: Iterable[Any]) -> Iterator[Any]:
    """The same records, with what a `partial` line leaves open said about what comes after it."""
    partial = False
    known: set[str] = set()
    for record in records:
        yield record
        if not isinstance(record, Mapping):
            continue
        partial |= record.get("kind") == "partial"
        document = document_of(record) if partial else None
        for event in document.events if document is not None else ():
            if event.id not in known:
                known.add(event.id)
                yield {"kind": "approval", "t": AT_ANY_TIME, "event": event.id, "by": "somebody"}
