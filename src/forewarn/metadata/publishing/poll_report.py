"""What a node has answered since its last report: which machine, which document, how often.

There is one entry for each machine and document, so a report stays small however often machines
poll. Of machines that go on polling the document that was reported last, only every so many reports
say so: control may have very many of them. Those that something is being done to are in each, since
it may be over as soon as they poll again. Of a machine that asks for ever other versions, some
entries are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import chain

from forewarn.core import Time, World
from forewarn.metadata.publishing.messages import Polled, Report
from forewarn.service.indexes.unknown_callers import UnknownCallers

# Documents that a machine was shown before its last one, and that are not reported yet. There are
# more only if it asks for ever other versions; control takes no more from a node.
MAX_EARLIER = 3
REPORT_SLICE = 512  # entries of one message


class _Polls:
    __slots__ = ("count", "events", "first", "group", "incarnation", "last", "repeats", "version")

    def __init__(
        self, group: str, version: str, incarnation: int, events: Collection[str], at: Time
    ) -> None:
        self.group = group
        self.version = version
        self.incarnation = incarnation
        self.events = events
        self.first = self.last = at
        self.count = 1  # since it was last reported
        self.repeats = False  # was this document reported before?


class PollReport:
    def __init__(
        self,
        repeat_every: int = 1,
        first_repeat: int = 1,
        disturbed: Callable[[str], Collection[str]] = lambda _: (),
    ) -> None:
        """Polls of a document that was reported before are in each `repeat_every`th report, from
        the `first_repeat`th on; those of machines of a group that are `disturbed`, in each."""
        self._disturbed = disturbed
        self._repeat_every = repeat_every
        self._until_repeat = first_repeat
        self._polls: dict[str, _Polls] = {}
        self._earlier: dict[str, deque[Polled]] = {}  # by machine
        self._alive: set[str] = set()
        self.unknown_callers = UnknownCallers()

    def record_poll(
        self,
        machine: str,
        group: str,
        version: str,
        incarnation: int,
        events: Collection[str],
        now: World,
    ) -> None:
        """Record that a document was answered. Called for every poll, hence written to be fast."""
        polls = self._polls.get(machine)
        if (
            polls is not None
            and polls.incarnation == incarnation
            and polls.version == version
            and polls.events == events
            and polls.group == group
        ):
            polls.count += 1
            polls.last = now.at
            return
        if polls is not None and polls.count:
            earlier = self._earlier.setdefault(machine, deque(maxlen=MAX_EARLIER))
            earlier.append(_reported(machine, polls))
        self._polls[machine] = _Polls(group, version, incarnation, events, now.at)

    def last(self, machine: str) -> Time:
        """Return when a machine polled last; 0: not lately."""
        return polls.last if (polls := self._polls.get(machine)) else 0

    def sign_of_life(self, group: str) -> None:
        self._alive.add(group)

    def begin(self) -> None:
        """Report everything again, to a control node that may not know it."""
        for polls in self._polls.values():
            polls.repeats = False

    def reports(self) -> Iterator[Report]:
        """Return what is to be reported since the last call, in messages of limited size."""
        earlier, alive = self._earlier, tuple(self._alive)
        self._earlier = {}
        self._alive.clear()
        entries = [*chain.from_iterable(earlier.values()), *self._take_polls()]
        for at in range(0, len(entries), REPORT_SLICE):
            yield Report(tuple(entries[at : at + REPORT_SLICE]))
        unknown = tuple(self.unknown_callers.take())
        if alive or unknown:
            yield Report(alive=alive, unknown=unknown)

    def _take_polls(self) -> Iterator[Polled]:
        self._until_repeat -= 1
        with_repeats = self._until_repeat <= 0
        if with_repeats:
            self._until_repeat = self._repeat_every
        before, self._polls = self._polls, {}
        disturbed = cache(self._disturbed)
        for machine, polls in before.items():
            waits = polls.repeats and not with_repeats
            if waits and polls.count and polls.events and machine in disturbed(polls.group):
                waits = False
            if waits:
                self._polls[machine] = polls
            elif polls.count or not polls.repeats:
                yield _reported(machine, polls)
                if self._repeat_every > 1:
                    polls.count, polls.repeats = 0, True
                    self._polls[machine] = polls


def _reported(machine: str, polls: _Polls) -> Polled:
    return Polled(
        machine,
        polls.group,
        polls.version,
        polls.incarnation,
        tuple(polls.events),
        polls.last if polls.repeats else polls.first,
        polls.last,
        polls.count,
    )
