"""The groups as a node shows them, and as it is about to show them.

A group that is about to change shows its old document until it is to be hidden. Then it shows
neither the old nor the new one until the change may be shown: other nodes may no longer show the
one, or not yet show the other. Requests wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from forewarn.core import Group, GroupView, Machine, Status, view
from forewarn.core.fleet import Place
from forewarn.metadata.publishing.messages import Changed
from forewarn.metadata.upstream import GroupNews
from forewarn.support import guard
from forewarn.support.message_stream import BrokenConnection

SHOW_SLICE = 16  # groups that are shown before the loop gets its turn


class _Change:
    """A group after a change that may not be shown yet."""

    def __init__(self) -> None:
        self.number = 0  # of the publication
        self.news: GroupNews | None = None  # None: the group is removed
        self.hidden_at: float | None = None  # in monotonic time; None: the old one is shown
        self.over = asyncio.Event()


class StagedViews:
    def __init__(self) -> None:
        self._sink: Callable[[GroupNews], None] = lambda _: None
        self._shown: dict[str, GroupNews] = {}
        self._changes: dict[str, _Change] = {}
        self._named: set[str] = set()  # groups that the present control node has sent
        self._fresh: set[str] = set()  # those with news, which are newer than the snapshot
        self._open = False  # has anything been shown yet?

    def attach(self, sink: Callable[[GroupNews], None]) -> None:
        self._sink = sink
        for news in self._shown.values():
            sink(news)

    def changing(self, group: str) -> asyncio.Event | None:
        """Return what to wait for if the group shows nothing at the moment."""
        change = self._changes.get(group)
        return None if change is None or change.hidden_at is None else change.over

    def begin(self) -> None:
        """Expect a new snapshot, from another control node or the same one."""
        self._named, self._fresh = set(), set()

    def add_snapshot(self, groups: Sequence[GroupNews], pending: Mapping[str, int]) -> None:
        """Stage the groups of a snapshot, except for those that are shown like that already.
        `pending` are those that may be shown only with a publication."""
        for news in groups:
            name = news.view.name
            self._named.add(name)
            if name in self._fresh:
                continue
            if name in self._changes or self._shown.get(name) != news:
                self._expect(pending.get(name, 0), name, news)

    def end_snapshot(self) -> None:
        """Stage the removal of all groups that were not in the snapshot."""
        for name in (self._shown.keys() | self._changes.keys()) - self._named:
            self._expect(0, name, None)

    def stage(self, number: int, groups: Sequence[Changed], *, hide: bool = True) -> None:
        """Stage groups of a publication. What they were before is shown until `hide` is called,
        unless it is hidden at once, or already."""
        for changed in groups:
            name = changed.view.name
            self._named.add(name)
            self._fresh.add(name)
            if changed.removed:
                self._expect(number, name, None, hide=hide)
                continue
            change = self._changes.get(name)
            latest = self._shown.get(name) if change is None else change.news
            machines, place = changed.machines, changed.place
            if latest is not None:
                machines = latest.machines if machines is None else machines
                place = latest.place if place is None else place
            if machines is None or place is None:
                raise BrokenConnection(f"a change of group '{name}', which was not sent before")
            self._expect(number, name, GroupNews(changed.view, machines, place), hide=hide)

    async def hide(self, numbers: Collection[int]) -> None:
        """Show nothing of the groups that are staged with these publications."""
        staged = [(n, change) for n, change in self._changes.items() if change.number in numbers]
        for n, (name, change) in enumerate(staged, 1):
            self._hide(name, change)
            if n % SHOW_SLICE == 0:
                await guard.pause(0)

    def unhide(self, numbers: Collection[int]) -> None:
        """Show the groups again that are staged with these publications, as they were before."""
        for name, change in self._changes.items():
            shown = self._shown.get(name)
            if change.number in numbers and change.hidden_at is not None and shown is not None:
                change.hidden_at = None
                self._sink(shown)
                change.over.set()
                change.over = asyncio.Event()

    async def show(self, numbers: Collection[int]) -> None:
        """Show everything that is staged with these publications."""
        await self._show(n for n, change in self._changes.items() if change.number in numbers)

    async def show_all(self, pending: Collection[int]) -> None:
        """Show everything that is staged, except with these publications."""
        await self._show(n for n, change in self._changes.items() if change.number not in pending)
        if not self._open:
            self._open = True
            for change in self._changes.values():  # may not be shown yet, but exists
                if change.news is not None:
                    self._hold_back(change.news)

    async def _show(self, ready: Iterable[str]) -> None:
        for n, name in enumerate(list(ready), 1):
            self._finish(name)
            if n % SHOW_SLICE == 0:
                await guard.pause(0)

    def contents(self) -> tuple[list[GroupNews], list[tuple[int, str, GroupNews | None]]]:
        """Return what is shown, and what is staged: with which publication, and what the group is
        to become; None if it is removed."""
        staged = [(change.number, name, change.news) for name, change in self._changes.items()]
        return list(self._shown.values()), staged

    def machines(self) -> list[tuple[str, Machine]]:
        """Return the machines that are answered, or about to be, each with its group."""
        latest = self._shown | {n: c.news for n, c in self._changes.items() if c.news is not None}
        return [(n, m) for n, news in latest.items() for m in news.machines if not m.gone]

    def disturbed(self, group: str) -> Collection[str]:
        """Return the machines of events that are shown as Started."""
        shown = self._shown.get(group)
        events = shown.view.events if shown is not None else ()
        started = (event.resources for event in events if event.status is Status.STARTED)
        return frozenset(chain.from_iterable(started))

    def show_hidden(self, hidden_by: float) -> int:
        """Show everything that was hidden by then, without permission. Returns the number of
        groups."""
        held = [
            name
            for name, change in self._changes.items()
            if self._open and change.hidden_at is not None and change.hidden_at <= hidden_by
        ]
        for name in held:
            self._finish(name)
        return len(held)

    def _expect(self, number: int, name: str, news: GroupNews | None, *, hide: bool = True) -> None:
        change, shown = self._changes.get(name), self._shown.get(name)
        if news is not None and shown is not None:
            if news.machines == shown.machines:
                # Keep one of two equal tuples.
                news = msgspec.structs.replace(news, machines=shown.machines)
            if hide and change is None and news.view == shown.view:  # no change of the document
                self._shown[name] = news
                self._sink(news)
                return
        if change is None:
            change = self._changes[name] = _Change()
        change.number, change.news = number, news
        if hide or change.hidden_at is not None:
            change.hidden_at = guard.monotonic()
            if self._open and (latest := news or shown):
                self._hold_back(latest)

    def _hide(self, name: str, change: _Change) -> None:
        shown = self._shown.get(name)
        if shown is None or (change.news is not None and change.news.view == shown.view):
            return  # nothing of it is shown, or the document stays as it is
        change.hidden_at = guard.monotonic()
        self._hold_back(shown)  # machines that it takes away are known until it is shown

    def _hold_back(self, news: GroupNews) -> None:
        self._sink(GroupNews(_without_document(news.view), news.machines, news.place))

    def _finish(self, name: str) -> None:
        change = self._changes.pop(name, None)
        if change is None:
            return
        if change.news is not None:
            self._shown[name] = change.news
            self._sink(change.news)
        else:  # which may be known, though it was never shown
            self._shown.pop(name, None)
            self._sink(GroupNews(view(Group(name=name)), (), Place()))
        change.over.set()


def _without_document(group: GroupView) -> GroupView:
    """Return a group without its document, as if it were not enabled."""
    return msgspec.structs.replace(group, enabled=False, events=())
