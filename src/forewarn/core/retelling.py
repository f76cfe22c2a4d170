"""Commits told again, long after they were made, to whoever follows them.

The history's words, without the states before the commits: what only those would tell was kept
with each commit (`Scribe.words`). Commits older than that are told with the more general word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forewarn.core.changes import GroupDefined
from forewarn.core.fleet import Host, Machine
from forewarn.core.history import HistoryWriter, What, Word


class HistoryReplayer(HistoryWriter):
    """Of one commit."""

    def __init__(self, words: Iterable[Word]) -> None:
        super().__init__({}, {})
        self._kept = _one_by_one(words)

    def _note(self, what: What, note: str) -> None:
        """It was."""

    def _became(self, group: str, machine: Machine) -> tuple[What, str]:
        del group, machine
        return next(self._kept, (What.MACHINE_CHANGED, ""))

    def _host(self, host: Host) -> What:
        del host
        return next(self._kept, (What.HOST_CHANGED, ""))[0]

    def _redefined(self, group: str, item: GroupDefined) -> str:
        del group, item
        return next(self._kept, (What.GROUP_CHANGED, ""))[1]


def _one_by_one(words: Iterable[Word]) -> Iterator[tuple[What, str]]:
    for times, what, note in words:
        for _ in range(times):
            yield What(what), note
