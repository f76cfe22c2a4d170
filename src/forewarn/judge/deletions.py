"""Machines that are evicted or deleted, and the other events that name them and nobody else.

A Preempt or Terminate that was Started and is gone was carried out. An event that stood beside it
in a document was there before the machines were gone, so it is not about new machines that have
the same names. One that is Started may have to end together with others, so only those count
that are Scheduled.
"""

from collections.abc import Iterable, Iterator

from .dialect import DELETING
from .document import Document, Event


class Deletions:
    """Of one group."""

    def __init__(self) -> None:
        self._beside: dict[str, set[str]] = {}  # by the deleting event: what depends on it

    def note(self, document: Document) -> None:
        assert document.events is not None
        for delete in document.events:
            if delete.started and delete.type in DELETING:
                machines = set(delete.resources)
                self._beside.setdefault(delete.id, set()).update(
                    event.id
                    for event in document.events
                    if event.id != delete.id and machines.issuperset(event.resources)
                )

    def outlived(self, document: Document, missing: Iterable[str]) -> Iterator[Event]:
        """Events that are listed as Scheduled though what deleted their machines is `missing`."""
        over = {id for delete in missing for id in self._beside.get(delete, ())}
        if over:
            assert document.events is not None
            yield from (e for e in document.events if e.id in over and not e.started)
