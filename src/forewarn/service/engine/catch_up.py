"""Which clients have polled lately, and which of them have not yet seen the newest change, or have
not reacted to it.

For a service on virtual time, which can wait for its clients before it moves on. In a test in real
time, only its verdict and the end of a scenario wait for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from forewarn.core import Event, Group, Status, World
from forewarn.core.changes import EventMoved, MachinePut, MachineRemoved
from forewarn.core.lifecycle import Move
from forewarn.core.time import HOUR, MINUTE, SECOND, Duration, Time
from forewarn.service.engine.ledger import Hung, Ledger
from forewarn.store.port import Commit, Store
from forewarn.support import guard

POLL_PATIENCE = 5.0  # seconds of guard time for which a client is waited for
REACTION_TIME = 1.0  # seconds of guard time for a client to react to an event that it has seen
MAX_PATIENCE = 30.0  # seconds of guard time for a client that polls seldom
INTERVALS_TO_WAIT = 3  # of its own, for which a client that polls seldom is waited for
MIN_PATIENCE = 1.0  # seconds of guard time for a client whose machine is being disturbed
PREPARE_FACTOR = 3  # times as long for a client that has just seen an event of its own machine
START_FACTOR = 3  # times as long for a program that was started again, and has to begin first
REPEATED_POLLS = 5  # after which a client is known to poll by itself, in a test in real time
POLLS_TO_CATCH_UP = (
    2  # polls: the first one shows the change, the next one says that it has been handled
)
MOMENTS: tuple[Duration, ...] = (  # before NotBefore, at which clients see how close an event is
    *(hours * HOUR for hours in (12, 6, 3, 1)),
    *(minutes * MINUTE for minutes in (30, 15, 10, 5, 2, 1)),
    *(seconds * SECOND for seconds in (30, 15, 5)),
)

OnPoll: TypeAlias = Callable[[str, str, str, int, Collection[str], World], None]
Client: TypeAlias = tuple[str, str]  # a machine, and the id of the caller that polls as it
GUEST = ""  # the caller id of requests over the wire
NOBODY: frozenset[str] = frozenset()


class Stopped(Hung):
    """The service is stopping, so time does not move on."""


class Patience(NamedTuple):
    """How long clients are waited for, in seconds of guard time, and by whom."""

    polls: float = POLL_PATIENCE  # for polls; longer for a client that polls seldom
    reaction: float = REACTION_TIME  # for a client to react to its event once it has seen it
    caller: str | None = None  # who waits, and so cannot poll meanwhile
    stop_before: tuple[Duration, ...] = ()  # further moments before NotBefore, with time to react


DEFAULT_PATIENCE = Patience()


class _Polls:
    """What is known about the polls of one client."""

    __slots__ = (
        "again",
        "by_itself",
        "count",
        "disturbed",
        "ended",
        "failed",
        "given_up",
        "hung",
        "interval",
        "last",
        "owed",
        "released",
        "senders",
        "since",
        "sought",
        "started",
    )

    def __init__(self, by_itself: bool) -> None:
        self.count = 0
        self.last = guard.monotonic()  # guard time of the last one
        self.interval = 0.0  # guard time between the last two
        self.failed = 0.0  # guard time of the last one whose answer was of no use
        self.by_itself = by_itself  # it polled while its test was waiting, so it is not the test
        self.senders: frozenset[str] | None = None  # callers that may have sent all of them
        self.owed = 0  # how many, since a change
        self.since = 0.0  # guard time of that change
        self.given_up = False  # it was waited for in vain, and has not polled since
        self.hung = False  # its request was waiting for an answer then
        self.released = False  # that request has ended since
        self.again = False  # its machine has come back since, so it is waited for once more
        self.started = False  # its program was started again, and has not polled yet
        self.ended = False  # its program has ended, so there is nothing to wait for
        self.disturbed = False  # a callback has done something to it that it may not survive
        self.sought = 0.0  # seconds for which it was waited for in vain, if it may be a test

    def expected(self, patience: float, by_itself: bool) -> bool:
        """Return whether it is to be waited for, or to be given up."""
        if self.given_up and not self.again:
            return False
        return self.by_itself or (not by_itself and self.sought < patience)

    def end(self, patience: float) -> float:
        """Return until when it is waited for. A client of which it is not known whether it polls by
        itself may be the test, which cannot poll while it waits."""
        if self.ended:
            return 0.0
        since = max(self.last, self.since) if self.by_itself else self.last
        own = min(MAX_PATIENCE, INTERVALS_TO_WAIT * self.interval)
        if self.disturbed:
            return since + min(patience, max(MIN_PATIENCE, own))
        if self.started:
            return since + START_FACTOR * patience
        # Whoever gets errors still polls, and may wait a while before it tries again.
        return max(since + max(patience, own), min(self.failed, since + patience) + patience)


class CatchUp:
    """`on_poll` is called for every document that is answered, before it is counted here.

    `on_unresponsive` is called when a client has been waited for in vain, with its machine, its
    caller id, the seconds, and whether it is known to poll by itself; `on_responsive` when such a
    client polls again.
    """

    def __init__(
        self, store: Store, ledger: Ledger, on_poll: OnPoll, *, real_time: bool = False
    ) -> None:
        self._ledger = ledger
        self._on_poll = on_poll
        self._real_time = real_time
        self.waiting: Callable[[str], bool] = lambda _: False  # does a machine long-poll?
        self.end_waits: Callable[[str, str], None] = lambda *_: None  # of a machine of this group
        self.unanswered: Callable[[str], bool] = lambda _: False  # does a request of it hang?
        self.on_unresponsive: Callable[[str, str, float, bool], None] = lambda *_: None
        self.on_responsive: Callable[[str, str], None] = lambda *_: None
        self.requesting: Callable[[], frozenset[str]] = frozenset  # callers that send a request now
        self._shown: dict[str, tuple[bool, int]] = {}  # by group: enabled, and its incarnation
        self._polls: dict[str, dict[str, _Polls]] = {}  # by machine and caller id
        self._owed: dict[Client, _Polls] = {}  # those of clients that owe polls
        self._by_themselves: set[Client] = set()  # clients that are known to poll by themselves
        self._silent: set[Client] = set()  # clients that were given up, and have not polled since
        self._behind: set[Client] = set()  # those of them that are waited for
        self._away: set[str] = set()  # machines whose program is stopped or killed
        self._undecided: dict[str, Event] = {}  # by id: Scheduled events that nobody has approved
        self._noticed: dict[tuple[str, str], float] = {}  # when machines were known to have seen it
        self.commits = 0
        self._waits = 0  # calls that are waiting for clients now
        self._callers: dict[str, list[str]] = {}  # by machine: callers other than guests
        self._callers_lock = threading.Lock()
        self._woken = asyncio.Event()
        self._stopped = False
        store.on_commit(self._on_commit)
        for group in store.groups.values():
            self._shown[group.name] = group.enabled, group.incarnation
            for event in group.events:
                self._note_decision(event)

    @contextmanager
    def identified_as(self, machine: str, caller_id: str) -> Iterator[None]:
        """Attribute polls as the machine to this caller in the meantime. Usable in any thread."""
        with self._callers_lock:
            self._callers.setdefault(machine, []).append(caller_id)
        try:
            yield
        finally:
            with self._callers_lock:
                callers = self._callers[machine]
                callers.remove(caller_id)
                if not callers:
                    del self._callers[machine]

    def polled(
        self,
        machine: str,
        group: str,
        version: str,
        incarnation: int,
        ids: Collection[str],
        now: World,
    ) -> None:
        """Count a poll that was answered with a document, or with 304."""
        self._on_poll(machine, group, version, incarnation, ids, now)
        caller_id = self._caller_id(machine)
        client = machine, caller_id
        polls = self._polls_of(client)
        now_real = guard.monotonic()
        if polls.count:
            polls.interval = now_real - polls.last
        polls.count += 1
        polls.last = now_real
        if caller_id == GUEST and polls.senders != NOBODY:
            senders = self.requesting()
            polls.senders = senders if polls.senders is None else polls.senders & senders
        if (self._waits and polls.count > 1) or (
            self._real_time and caller_id == GUEST and polls.count >= REPEATED_POLLS
        ):
            self._polls_by_itself(client)
        self._responds(client)
        if client in self._owed:
            polls.owed -= 1
            # A client that waits for the next change is done with this one.
            if polls.owed == 0 or self.waiting(machine):
                self._caught_up(client)

    def polled_by_guest(self, machine: str) -> bool:
        """Has this machine been polled for over the wire?"""
        polls = self._polls.get(machine, {}).get(GUEST)
        return polls is not None and polls.count > 0

    def expect_polls(self, machine: str) -> None:
        """Take it as known that a program polls over the wire as this machine by itself."""
        self._polls_by_itself((machine, GUEST))

    def is_polling(self, machine: str) -> bool:
        """Has a guest polled as this machine lately?"""
        if not self.polled_by_guest(machine):
            return False
        return self._polls[machine][GUEST].last > guard.monotonic() - POLL_PATIENCE

    def failed(self, machine: str) -> None:
        """Take note that the answer to a poll over the wire as this machine was an error, or was
        changed by a fault."""
        if (polls := self._polls.get(machine, {}).get(GUEST)) is not None:
            polls.failed = guard.monotonic()
            if self._waits:
                self._polls_by_itself((machine, GUEST))
            if polls.hung and not self.unanswered(machine):  # so that it can poll again
                polls.hung, polls.released = False, True
                polls.again, polls.since = polls.given_up, polls.failed
            self._woken.set()

    def try_again(self) -> None:
        """Wait again for clients whose polls have failed lately, since other faults apply from now
        on."""
        now = guard.monotonic()
        for polls in self._owed.values():
            if polls.failed > now - POLL_PATIENCE:
                polls.again, polls.since = polls.given_up, now
        self._woken.set()

    def disturb(self, machine: str) -> None:
        """Wait less for the clients of a machine, which may not survive what is done to it."""
        for polls in self._polls.get(machine, {}).values():
            polls.disturbed = True

    def leave(self, machine: str) -> None:
        """Do not wait for the clients of a machine, which are stopped or killed, until `back`."""
        self._away.add(machine)
        self.forget(machine)

    def back(self, machine: str, *, expected: bool) -> None:
        """The machine is no longer disturbed or away; if `expected`, wait for its next polls."""
        self._away.discard(machine)
        for polls in self._polls.get(machine, {}).values():
            polls.disturbed = False
        if expected:
            polls = self._polls_of((machine, GUEST))
            polls.owed, polls.since, polls.started = POLLS_TO_CATCH_UP, guard.monotonic(), True
            self._owed[machine, GUEST] = polls
            self._woken.set()

    async def all_caught_up(self, patience: Patience, *, by_itself: bool = False) -> bool:
        """Wait until clients have seen everything, including what they cause meanwhile. False if
        there was none to wait for."""
        waited = False
        await self._ledger.idle()
        while await self.caught_up(patience, by_itself=by_itself):
            waited = True
            await self._ledger.idle()
        return waited

    async def caught_up(
        self, patience: Patience = DEFAULT_PATIENCE, *, by_itself: bool = False
    ) -> bool:
        """Wait until every client but the caller's has seen what is visible now, and has had time
        to react: each at most as long as `patience` says, and one that may be a test only if it has
        polled in that time. With `by_itself`, do not wait for such a client at all. False if there
        was none to wait for.
        """
        waited = False
        while not self._stopped:
            now = guard.monotonic()
            ends = {
                client: polls.end(self._patience(client, polls, patience.polls))
                for client, polls in self._owed.items()
                if not _sent_by(patience.caller, client, polls)
                and polls.expected(patience.polls, by_itself)
            }
            waited_for, self._behind = (
                self._behind,
                {client for client, end in ends.items() if end > now},
            )
            for client in ends.keys() - self._behind:
                longest = self._patience(client, self._owed[client], patience.polls)
                self._give_up(client, longest, in_vain=client in waited_for)
            end = max(ends.values(), default=now)
            if not self._behind:
                end = self._reactions_end(patience, now)
            if end <= now:
                return waited
            waited = True
            self._woken.clear()
            self._waits += 1
            try:
                async with asyncio.timeout(end - now):
                    await self._woken.wait()
            except TimeoutError:
                continue
            finally:
                self._waits -= 1
        raise Stopped("the service is stopping")

    def next_moment(
        self, now: Time, to: Time, watched: Callable[[str], bool], stop_before: Iterable[Duration]
    ) -> Time | None:
        """Return where to stop on the way, so that clients see how close their events are: at the
        next moment before the NotBefore of an event that nobody has approved and of which a machine
        is `watched`. None if there is none until `to`."""
        moments = {*MOMENTS, *stop_before}
        stops = (
            event.not_before - moment
            for event in self._undecided.values()
            if any(map(watched, event.resources))
            for moment in moments
        )
        return min((stop for stop in stops if now < stop <= to), default=None)

    def show_time(self, now: Time, patience: Patience) -> None:
        """Expect polls that show clients how close their events are. At the last moment, and at
        those of `stop_before`, they have time to react once more."""
        for event in self._undecided.values():
            left = event.not_before - now
            reacts = left <= MOMENTS[-1] or left in patience.stop_before
            for machine in event.resources:
                for caller_id, polls in self._watching(machine, patience.caller):
                    polls.owed, polls.since = POLLS_TO_CATCH_UP, guard.monotonic()
                    self._owed[machine, caller_id] = polls
                    self.end_waits(machine, event.group)
                if reacts:
                    self._noticed.pop((event.id, machine), None)

    def forget(self, machine: str) -> None:
        """Stop waiting for the clients of a machine until they poll again."""
        for caller_id in self._polls.pop(machine, {}):
            self._caught_up((machine, caller_id))

    def ended(self, machine: str) -> None:
        """Stop waiting for the program on a machine, which has ended, until it polls again."""
        polls = self._polls.get(machine, {}).get(GUEST)
        if polls is not None:
            polls.ended = True
            if not polls.given_up:
                self._give_up((machine, GUEST), POLL_PATIENCE)
            self._behind.discard((machine, GUEST))
            self._woken.set()

    def stop(self) -> None:
        """Stop waiting for clients."""
        self._stopped = True
        self._woken.set()

    def _caller_id(self, machine: str) -> str:
        if not self._callers:
            return GUEST
        with self._callers_lock:
            callers = self._callers.get(machine)
            return callers[-1] if callers else GUEST

    def _patience(self, client: Client, polls: _Polls, patience: float) -> float:
        """Return how long a client is waited for: longer if it has seen an event of its own, for
        which it may be preparing before it polls again."""
        preparing = polls.owed < POLLS_TO_CATCH_UP and any(
            client[0] in event.resources for event in self._undecided.values()
        )
        return PREPARE_FACTOR * patience if preparing else patience

    def _reactions_end(self, patience: Patience, now: float) -> float:
        """Return until when clients have time to react to their own events: each from when it was
        first known to have seen the event."""
        end = now
        for event in self._undecided.values():
            ready = {report.machine for report in event.ready}
            for machine in event.resources:
                if machine not in ready and self.watches(machine, patience.caller):
                    noticed = self._noticed.setdefault((event.id, machine), now)
                    end = max(end, noticed + patience.reaction)
        return end

    def watches(self, machine: str, caller: str | None) -> bool:
        """Return whether a client other than the caller polls by itself as this machine, and has
        seen what is visible."""
        return bool(self._watching(machine, caller))

    def _watching(self, machine: str, caller: str | None) -> list[tuple[str, _Polls]]:
        return [
            (caller_id, polls)
            for caller_id, polls in self._polls.get(machine, {}).items()
            if polls.by_itself
            and not polls.given_up
            and not polls.ended
            and (machine, caller_id) not in self._owed
            and not _sent_by(caller, (machine, caller_id), polls)
        ]

    def _note_decision(self, event: Event) -> None:
        """Remember an event for as long as clients may approve it."""
        if event.status is Status.SCHEDULED and event.listed and event.approved is None:
            self._undecided[event.id] = event
        elif self._undecided.pop(event.id, None) is not None:
            for machine in event.resources:
                self._noticed.pop((event.id, machine), None)
        self._woken.set()

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        self.commits += 1
        for entry in commit.entries:
            for item in entry.items:
                match item:
                    case MachineRemoved(name=name):
                        self._remove(name)
                    case MachinePut(machine=machine) if machine.gone:
                        self._remove(machine.name)
                    case EventMoved(what=what, event=event):
                        self._note_decision(event)
                        if what is Move.FINISH:
                            self._returned(event.resources)
                        elif what is Move.ANSWER and event.waiting is not None:
                            self._await(event.group, event.waiting.machines)
        for group in changed.values():
            shown = group.enabled, group.incarnation
            if self._shown.get(group.name) != shown:
                self._shown[group.name] = shown
                for machine in group.machines:
                    if machine.name in self._polls and machine.name not in self._away:
                        self._expect(machine.name, POLLS_TO_CATCH_UP if group.enabled else 0)

    def _await(self, group: str, machines: Iterable[str]) -> None:
        """Wait for a poll of machines before which an event is not over."""
        for machine in machines:
            if machine in self._polls and machine not in self._away:
                self._expect(machine, 1)
                self.end_waits(machine, group)

    def _returned(self, machines: Iterable[str]) -> None:
        """Wait again for clients whose machines were disturbed until now, except for a program that
        has ended: it may have ended with its machine, and nobody starts it again."""
        for machine in machines:
            for polls in self._polls.get(machine, {}).values():
                polls.again = polls.given_up and polls.by_itself and not polls.ended

    def _expect(self, machine: str, answers: int) -> None:
        now, waits = guard.monotonic(), self.waiting(machine)
        callers = self._polls[machine]
        for caller_id, polls in list(callers.items()):
            if waits:
                polls.last = now
                self._responds((machine, caller_id))
            elif caller_id != GUEST and not polls.by_itself and polls.last < now - POLL_PATIENCE:
                del callers[caller_id]  # a thread or a task that does something else by now
                self._caught_up((machine, caller_id))
                continue
            if answers:
                polls.owed, polls.since = answers, now
                self._owed[machine, caller_id] = polls
                self._woken.set()
            else:
                self._caught_up((machine, caller_id))

    def _polls_of(self, client: Client) -> _Polls:
        machine, caller_id = client
        callers = self._polls.setdefault(machine, {})
        if caller_id not in callers:
            callers[caller_id] = _Polls(client in self._by_themselves)
        return callers[caller_id]

    def _polls_by_itself(self, client: Client) -> None:
        self._by_themselves.add(client)
        if (polls := self._polls.get(client[0], {}).get(client[1])) is not None:
            polls.by_itself = True

    def _remove(self, machine: str) -> None:
        for caller_id in self._polls.get(machine, ()):
            self._by_themselves.discard((machine, caller_id))
            self._silent.discard((machine, caller_id))
        self._away.discard(machine)
        self.forget(machine)

    def _responds(self, client: Client) -> None:
        polls = self._polls_of(client)
        polls.started = polls.ended = polls.given_up = polls.again = polls.hung = False
        polls.released = False
        polls.failed = 0.0
        if client in self._silent:
            self._silent.discard(client)
            self.on_responsive(*client)

    def _give_up(self, client: Client, patience: float, *, in_vain: bool = False) -> None:
        polls = self._polls_of(client)
        polls.given_up, polls.again = True, False
        polls.hung = not polls.released and self.unanswered(client[0])
        if in_vain and not polls.by_itself:
            polls.sought = patience
        self._silent.add(client)
        self.on_unresponsive(*client, 0.0 if polls.ended else patience, polls.by_itself)

    def _caught_up(self, client: Client) -> None:
        self._owed.pop(client, None)
        self._behind.discard(client)
        if not self._behind:
            self._woken.set()


def _sent_by(caller: str | None, client: Client, polls: _Polls) -> bool:
    """Return whether the caller itself has sent the polls of a client."""
    return caller is not None and (client[1] == caller or caller in (polls.senders or ()))
