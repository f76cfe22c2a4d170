"""Finds events that outlive their machines: all their machines were evicted or deleted.

A Preempt or Terminate that was Started and has ended was carried out. An event that was listed
beside it existed before the machines were deleted, so it is not about new machines with the same
names. Only Scheduled events are reported: a Started one may have to end together with others.
"""

from collections.abc import Iterable, Iterator

from forewarn.judge.dialect import DELETING
from forewarn.judge.reading.document import Document, Event


class Deletions:
    """The deletions of one group."""

    def __init__(self) -> None:
        self._beside: dict[str, set[str]] = {}  # events of the same machines, by deleting event

    def add(self, document: Document) -> None:
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
        """Yield Scheduled events of machines whose deleting event is `missing`, so has ended."""
        ids = {id for delete in missing for id in self._beside.get(delete, ())}
        if ids:
            assert document.events is not None
            yield from (event for event in document.events if event.id in ids and not event.started)
