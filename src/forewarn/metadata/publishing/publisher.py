"""When guests are shown a change: on all nodes that show its group, or on none.

A commit changes the state at once. The groups that it changes are then published, in two rounds.
Each node that shows one of them is told (News), and confirms that it has the change (Held), while
it shows what was before. When all of them have it, each stops showing that (Hide) and confirms it
(Hidden). When all of them have, they may show the change (Shown). Whoever waits for `shown` goes on
then: the caller who asked for the change, and the driver that carries it out.

A node that is silent is waited for in the first round, in which guests are answered. If it becomes
silent in the second one, the others show again what was before (Unhide) until it has confirmed, or
is not waited for any longer; then the second round begins anew.

Groups do not wait for each other, except for those that one commit changes: these are shown
together, so that a machine that moves from one to the other is always in one of them. What is
committed for a group while it is being published is collected, and published afterwards as one
change.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cached_property

from forewarn.core import Group, view
from forewarn.core.registry import GroupForgotten
from forewarn.metadata.publishing import updates
from forewarn.metadata.publishing.messages import Changed, Publication
from forewarn.service.engine.ledger import Ledger
from forewarn.store.port import Commit, Store
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.message_stream import frame

COMPARE_SLICE = 16  # groups that are compared in one iteration of the event loop
CHECK_EVERY = 0.1  # seconds between two looks for members that are late
STALLED = 1.0  # seconds by which a look may be late, unless this process was stalled
# Seconds for which guests wait for a member that does not confirm `Hide`: less than one, with the
# time until the next look and that of a message to everybody else.
HIDE_WITHIN = 0.8
IN_FLIGHT = "a change that guests are not shown yet"  # in the ledger

log = logger("forewarn")


class PendingPublication:
    """Groups that are published together."""

    def __init__(self) -> None:
        self.number = 0  # 0: not announced yet
        self.groups: dict[str, Group] = {}  # as they are to be shown
        self.has_news = False  # is there anything in it that guests can notice?
        self.forced: set[str] = set()  # groups that are told, whether they have changed or not
        self.placed: list[str] = []  # groups whose machines, or the hosts of which, have changed
        self.missing = 0  # how many members have something to confirm
        self.asked_at = guard.monotonic()  # when the last round has begun
        self.announced_at = self.asked_at
        self.showing: dict[Member, None] = {}  # who has to hide what was before
        self.hiding: dict[Member, None] = {}  # who was asked to, in the second round
        self.missed: set[Member] = set()  # those of them that did not confirm it in time
        self.overs = [asyncio.Event()]  # set when it is shown; those of merged ones, too

    @property
    def over(self) -> asyncio.Event:
        return self.overs[0]


class Announcement:
    """Publications that are announced at once, as members are told of them."""

    def __init__(self, changes: Mapping[int, list[Changed]], after: Mapping[str, Group]) -> None:
        self.changes = changes  # by the number of a publication
        self.after = after

    @cached_property
    def documents_only(self) -> bool:
        """Whether no machines or places have changed."""
        changes = (change for made in self.changes.values() for change in made)
        return all(change.machines is None and change.place is None for change in changes)

    @cached_property
    def frames(self) -> list[bytes]:
        """All of it, for members that show all of these groups and know them."""
        publications = [Publication(n, tuple(made)) for n, made in self.changes.items()]
        return [frame(message) for message in updates.news(publications)]


class Expected(Enum):
    """What a member has to confirm."""

    NEWS = "news"
    SNAPSHOT = "snapshot"  # it is not told of the publication: all groups, as they are sent to it
    HIDE = "hide"


class Member(ABC):
    """A node that shows groups to guests, and is connected."""

    two_rounds = True  # does it show what was before until it is to hide it?

    def __init__(self, *, serving: bool, groups: Iterable[str]) -> None:
        self.groups = set(groups)  # that it shows
        self.serving = serving  # may it be showing documents?
        self.whole = False  # has it confirmed all groups as they were when it connected?
        self.joined = False  # may it show what it is told?
        # What it has not confirmed, in the order in which it was asked to.
        self.unconfirmed: dict[PendingPublication, Expected] = {}

    @property
    def catching_up(self) -> bool:
        """Whether it may show old documents, because it does not know all groups yet."""
        return self.serving and not self.whole

    def shows(self, groups: Collection[str]) -> bool:
        """Return whether it shows any of these groups, or will."""
        return not self.groups.isdisjoint(groups)

    @abstractmethod
    def tell(self, news: Announcement) -> None:
        """Send it what changes."""

    @abstractmethod
    def hide(self, numbers: Collection[int]) -> None:
        """Ask it not to show any more what was before these publications."""

    @abstractmethod
    def unhide(self, numbers: Collection[int]) -> None:
        """Let it show again what was before these publications."""

    @abstractmethod
    def show(self, numbers: Collection[int]) -> None:
        """Let it show these publications."""

    @abstractmethod
    def late(self, publication: PendingPublication) -> bool:
        """Return whether it is not waited for any longer, if it has not confirmed this."""

    @abstractmethod
    def fence(self, why: str) -> None:
        """Make sure that it does not go on showing old documents: it leaves."""


class Publisher:
    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._ledger = ledger
        # Whether a node that is not connected may be showing one of the groups, and has to be
        # waited for.
        self.absent: Callable[[Collection[str]], bool] = lambda _: False
        self._announced: dict[str, Group] = dict(store.groups)  # as members were last told
        self._number = 0  # of the last publication that was announced
        self._members: dict[Member, None] = {}  # all of them
        self._by_group: dict[str, dict[Member, None]] = {}  # those that show it
        self._behind: dict[Member, None] = {}  # those that have something to confirm
        self._waiting: dict[str, PendingPublication] = {}  # by group: to be announced
        self._pending: dict[str, PendingPublication] = {}  # by group: announced, and not shown
        self._confirmed: dict[PendingPublication, None] = {}  # by all members, but not shown
        self._hidden: dict[PendingPublication, None] = {}  # those in the second round
        self._wake = asyncio.Event()
        # Who has to show a group.
        self.place: Callable[[Group], Iterable[Member]] = lambda _: ()
        store.on_own_commit(self._on_commit)

    @property
    def announced(self) -> Mapping[str, Group]:
        """The groups as members were last told of them."""
        return self._announced

    @property
    def number(self) -> int:
        """The number of the last publication that was announced."""
        return self._number

    def pending(self, groups: Iterable[str] | None = None) -> dict[str, int]:
        """Return which groups, of these or of all, are announced and not shown, and under which
        number; without publications that nobody is told, and so nobody is to show."""
        names = self._pending if groups is None else [n for n in groups if n in self._pending]
        return {name: p.number for name in names if (p := self._pending[name]).has_news}

    async def shown(self, groups: Iterable[str]) -> None:
        """Return when all that was committed for these groups is shown."""
        under_way = [
            p for all in (self._pending, self._waiting) for n in groups if (p := all.get(n))
        ]
        for publication in under_way:
            await publication.over.wait()

    async def run(self) -> None:
        """Announce what is committed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while ready := self._take_ready():
                try:
                    await self._announce(ready)
                except Exception:
                    log.exception("a change could not be sent to the nodes")
                    for publication in ready:
                        self._announced |= publication.groups
                    for member in list(self._members):
                        member.fence("it may have missed a change")
                    self._confirmed |= {p: None for p in ready if not p.over.is_set()}
                    self.settle()

    async def watch(self) -> None:
        """Do not wait for members that are late, and look again who is absent."""
        looked = guard.monotonic()
        while True:
            await guard.pause(CHECK_EVERY)
            before, looked = looked, guard.monotonic()
            if looked - before > CHECK_EVERY + STALLED:
                continue  # confirmations may be there that this process has not read yet
            for member in list(self._behind):
                if member.unconfirmed and member.late(next(iter(member.unconfirmed))):
                    member.fence("it has not confirmed a change in time")
            self.settle()
            if looked - before > CHECK_EVERY + HIDE_WITHIN / 2:
                continue
            for publication in list(self._hidden):
                if publication in self._hidden and looked - publication.asked_at >= HIDE_WITHIN:
                    self._unhide(publication)

    def unhide_all(self) -> None:
        """Have members show again what was before, until somebody else publishes what is hidden."""
        for publication in list(self._hidden):
            self._unhide(publication)

    # What is committed.

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        forgotten = [put.name for put in commit.puts if isinstance(put, GroupForgotten)]
        groups = {**changed, **{name: Group(name=name) for name in forgotten}}
        if not groups:
            return
        self._publish(groups)

    def place_again(self, name: str) -> None:
        """Tell a group once more, because other members have to show it, or other machines of it,
        although nothing was committed."""
        latest = self._waiting.get(name) or self._pending.get(name)
        group = latest.groups[name] if latest else self._announced.get(name)
        if group is not None:
            self._publish({name: group}).forced.add(name)

    def _publish(self, groups: Mapping[str, Group]) -> PendingPublication:
        publications = list(dict.fromkeys(p for n in groups if (p := self._waiting.get(n))))
        if not publications:
            self._ledger.take(IN_FLIGHT)
            publications = [PendingPublication()]
        publication = publications[0]
        for other in publications[1:]:
            publication.groups |= other.groups
            publication.forced |= other.forced
            publication.overs += other.overs
            self._ledger.release(IN_FLIGHT)
        publication.groups |= groups
        self._waiting.update(dict.fromkeys(publication.groups, publication))
        self._wake.set()
        return publication

    def _take_ready(self) -> list[PendingPublication]:
        """Take what is to be announced and has no group that is still being published."""
        ready = [
            publication
            for publication in dict.fromkeys(self._waiting.values())
            if self._pending.keys().isdisjoint(publication.groups)
        ]
        for publication in ready:
            for name in publication.groups:
                self._pending[name] = self._waiting.pop(name)
        return ready

    async def _announce(self, publications: Iterable[PendingPublication]) -> None:
        changes = [(publication, await self._changes(publication)) for publication in publications]
        numbered = enumerate(changes, self._number + 1)
        news = {number: made for number, (_, made) in numbered if made}
        after = {c.view.name: p.groups[c.view.name] for p, made in changes for c in made}
        announcement = Announcement(news, after)
        # No await from here on: a member that connects meanwhile would miss it.
        for publication, made in changes:
            self._number += 1
            publication.number = self._number
            publication.announced_at = publication.asked_at = guard.monotonic()
            publication.has_news = bool(made)
            publication.placed = [c.view.name for c in made if c.machines is not None]
            for name, group in publication.groups.items():
                self._announced[name] = group
                if group == Group(name=name):  # it was removed
                    del self._announced[name]
                for member in self.place(group):
                    self._add_group(member, name)
            told = set(self._members_of([change.view.name for change in made]) if made else ())
            for member in self._members_of(publication.groups):
                if member.serving and (member in told or not member.whole):
                    expected = Expected.NEWS if member in told else Expected.SNAPSHOT
                    self._expect(member, publication, expected)
                if member in told and member.joined and member.two_rounds:
                    publication.showing[member] = None
            if not publication.missing:
                self._confirmed[publication] = None
        for member in self._members_of(after) if news else ():
            member.tell(announcement)
        self.settle()

    def _members_of(self, groups: Iterable[str]) -> list[Member]:
        """Return the members that show one of these groups."""
        members: dict[Member, None] = {}
        for name in groups:
            members |= self._by_group.get(name, {})
        return list(members)

    def _add_group(self, member: Member, name: str) -> None:
        if member in self._members:
            member.groups.add(name)
            self._by_group.setdefault(name, {})[member] = None

    def _remove_others(self, group: Group) -> None:
        """Note that members without a machine of the group do not show it any more."""
        for member in self._by_group.get(group.name, {}).keys() - set(self.place(group)):
            self._remove_group(member, group.name)

    def _remove_group(self, member: Member, name: str) -> None:
        member.groups.discard(name)
        of_group = self._by_group.get(name, {})
        of_group.pop(member, None)
        if not of_group:
            self._by_group.pop(name, None)

    async def _changes(self, publication: PendingPublication) -> list[Changed]:
        """Return what changes for guests."""
        changes = []
        for n, (name, group) in enumerate(publication.groups.items(), 1):
            change = updates.changed(self._announced.get(name), group)
            if name in publication.forced:
                change = updates.in_full(change or Changed(view(group)), group)
            if change is not None:
                changes.append(change)
            if n % COMPARE_SLICE == 0:
                await guard.pause(0)
        return changes

    # What members confirm.

    def enter(self, member: Member) -> None:
        """Add a member. It has to be sent `announced`, and is told everything from now on. If it is
        serving, it may show what was before, until it has confirmed."""
        self._members[member] = None
        for name in member.groups:
            self._by_group.setdefault(name, {})[member] = None
        if member.serving:
            for publication in sorted(set(self._pending.values()), key=lambda p: p.number):
                if publication.number and member.shows(publication.groups):
                    self._expect(member, publication, Expected.SNAPSHOT)

    def leave(self, member: Member) -> None:
        """Remove a member. If it may be showing something, it is absent from now on."""
        self._members.pop(member, None)
        for name in list(member.groups):
            self._remove_group(member, name)
        for publication in self._pending.values():
            publication.showing.pop(member, None)
            publication.hiding.pop(member, None)
        self._receive(member, list(member.unconfirmed))

    def leave_groups(self, member: Member, names: Iterable[str]) -> None:
        """Note that a member does not show these groups any more."""
        for name in names:
            self._remove_group(member, name)

    def confirm(self, member: Member, number: int, *, whole: bool = False) -> None:
        """Note that a member has all that it was told up to this publication; and if `whole`, that
        it shows nothing any more from before it connected."""
        member.whole |= whole
        confirmed = [
            publication
            for publication, expected in member.unconfirmed.items()
            if (expected is Expected.NEWS and publication.number <= number)
            or (expected is Expected.SNAPSHOT and member.whole)
        ]
        self._receive(member, confirmed)

    def hidden(self, member: Member, numbers: Collection[int]) -> None:
        """Note that a member shows nothing any more from before these publications."""
        confirmed = [
            publication
            for publication, expected in member.unconfirmed.items()
            if expected is Expected.HIDE and publication.number in numbers
        ]
        self._receive(member, confirmed)

    def _expect(self, member: Member, publication: PendingPublication, expected: Expected) -> None:
        member.unconfirmed[publication] = expected
        self._behind[member] = None
        publication.missing += 1
        self._confirmed.pop(publication, None)

    def _receive(self, member: Member, confirmed: Collection[PendingPublication]) -> None:
        for publication in confirmed:
            del member.unconfirmed[publication]
            publication.missing -= 1
            if not publication.missing:
                self._confirmed[publication] = None
        if not member.unconfirmed:
            self._behind.pop(member, None)
        self.settle()

    def settle(self) -> None:
        """Have everything hidden that all members have, and shown that all have hidden."""
        settled = [p for p in self._confirmed if not self.absent(p.groups)]
        done = [publication for publication in settled if not publication.showing]
        for publication in done:
            del self._confirmed[publication]
            self._hidden.pop(publication, None)
            for name in publication.groups:
                del self._pending[name]
        self._hide([publication for publication in settled if publication.showing])
        if not done:
            return
        numbers: dict[Member, list[int]] = {}
        for publication in done:
            if publication.has_news:
                for member in self._members_of(publication.groups):
                    numbers.setdefault(member, []).append(publication.number)
        for member, shown in numbers.items():
            if member.joined:
                member.show(shown)
        for publication in done:
            for name in publication.placed:
                self._remove_others(publication.groups[name])
        for publication in done:
            for over in publication.overs:
                over.set()
            self._ledger.release(IN_FLIGHT)
        if self._waiting:
            self._wake.set()

    def _hide(self, publications: Iterable[PendingPublication]) -> None:
        """Begin the second round."""
        numbers: dict[Member, list[int]] = {}
        for publication in publications:
            publication.hiding, publication.showing = publication.showing, {}
            publication.asked_at = guard.monotonic()
            self._hidden[publication] = None
            for member in publication.hiding:
                self._expect(member, publication, Expected.HIDE)
                numbers.setdefault(member, []).append(publication.number)
        for member, hidden in numbers.items():
            member.hide(hidden)

    def _unhide(self, publication: PendingPublication) -> None:
        """Go back to the first round, and wait there for who has not confirmed the second one. Do
        not wait for a member again that was too slow before."""
        del self._hidden[publication]
        publication.showing, publication.hiding = publication.hiding, {}
        late = [m for m in publication.showing if publication in m.unconfirmed]
        for member in list(publication.showing):
            member.unhide((publication.number,))
        for member in publication.missed.intersection(late):
            member.fence("it has not confirmed a change in time")
        publication.missed.update(late)
