"""Which clients have polled lately, and which of them have not yet seen the newest change.

For a service on virtual time, which can wait for its clients before it moves on. On real time
nothing waits for clients, so polls are not counted here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from forewarn.core import Group, Now
from forewarn.core.changes import MachinePut, MachineRemoved
from forewarn.service.engine.ledger import Hung
from forewarn.store.port import Commit, Store
from forewarn.support import guard

POLL_PATIENCE = 5.0  # seconds of guard time since a client's last poll for which it is waited for
POLLS_TO_CATCH_UP = (
    2  # polls: the first one shows the change, the next one says that it has been handled
)

OnPoll: TypeAlias = Callable[[str, str, str, int, Collection[str], Now], None]
Client: TypeAlias = tuple[str, str]  # a machine, and the id of the caller that polls as it
GUEST = ""  # the caller id of requests over the wire


class Stopped(Hung):
    """The service is stopping, so time does not move on."""


class CatchUp:
    """`on_poll` is called for every document that is answered, before it is counted here."""

    def __init__(self, store: Store, on_poll: OnPoll) -> None:
        self._on_poll = on_poll
        self.waiting: Callable[[str], bool] = lambda _: False  # does a machine long-poll?
        self._shown: dict[str, tuple[bool, int]] = {}  # by group: enabled, and its incarnation
        self._last: dict[str, dict[str, float]] = {}  # by machine and caller id: its last poll
        self._returned: dict[str, float] = {}  # machines that are back, and have not polled yet
        self._owed: dict[Client, int] = {}  # how many polls, since a change
        self._behind: set[Client] = set()  # those of them that are waited for
        self._callers: dict[str, list[str]] = {}  # by machine: callers other than guests
        self._callers_lock = threading.Lock()
        self._woken = asyncio.Event()
        self._stopped = False
        store.on_commit(self._on_commit)
        for group in store.groups.values():
            self._shown[group.name] = group.enabled, group.incarnation

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
        now: Now,
    ) -> None:
        """Count a poll that was answered with a document, or with 304."""
        self._on_poll(machine, group, version, incarnation, ids, now)
        caller_id = self._caller_id(machine)
        self._returned.pop(machine, None)
        self._last.setdefault(machine, {})[caller_id] = guard.monotonic()
        client = machine, caller_id
        if client in self._owed:
            self._owed[client] -= 1
            # A client that waits for the next change is done with this one.
            if self._owed[client] == 0 or self.waiting(machine):
                self._caught_up(client)

    def polled_by_guest(self, machine: str) -> bool:
        """Has this machine been polled for over the wire?"""
        return GUEST in self._last.get(machine, {})

    async def caught_up(self, patience: float = POLL_PATIENCE, but_for: str | None = None) -> bool:
        """Wait until every client that polled in the last `patience` seconds has seen what is
        visible now, except the caller `but_for`. False if there was none to wait for.
        """
        waited = False
        while not self._stopped:
            now = guard.monotonic()
            ends = {
                (machine, caller_id): self._since(machine, caller_id) + patience
                for machine, caller_id in self._owed
                if caller_id != but_for
            }
            self._behind = {client for client, end in ends.items() if end > now}
            if not self._behind:
                return waited
            waited = True
            self._woken.clear()
            try:
                async with asyncio.timeout(max(ends.values()) - now):
                    await self._woken.wait()
            except TimeoutError:
                continue
        raise Stopped("the service is stopping")

    def is_polling(self, machine: str) -> bool:
        """Has a guest polled as this machine lately?"""
        last = self._last.get(machine, {}).get(GUEST)
        return last is not None and last > guard.monotonic() - POLL_PATIENCE

    def expect(self, machine: str) -> None:
        """Wait for the next polls of a machine that was forgotten and is back."""
        self._returned[machine] = guard.monotonic()
        self._owed[machine, GUEST] = POLLS_TO_CATCH_UP
        self._woken.set()

    def _since(self, machine: str, caller_id: str) -> float:
        """Return when a client last polled, or when its machine came back."""
        last = self._last.get(machine, {}).get(caller_id, 0.0)
        return max(last, self._returned.get(machine, 0.0))

    def forget(self, machine: str) -> None:
        """Stop waiting for the clients of a machine until they poll again."""
        if self._returned.pop(machine, None) is not None:
            self._caught_up((machine, GUEST))
        for caller_id in self._last.pop(machine, {}):
            self._caught_up((machine, caller_id))

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

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        for entry in commit.entries:
            for item in entry.items:
                match item:
                    case MachineRemoved(name=name):
                        self.forget(name)
                    case MachinePut(machine=machine) if machine.gone:
                        self.forget(machine.name)
        for group in changed.values():
            shown = group.enabled, group.incarnation
            if self._shown.get(group.name) != shown:
                self._shown[group.name] = shown
                for machine in group.machines:
                    if machine.name in self._last:
                        self._expect(machine.name, POLLS_TO_CATCH_UP if group.enabled else 0)

    def _expect(self, machine: str, answers: int) -> None:
        now, waits = guard.monotonic(), self.waiting(machine)
        callers = self._last[machine]
        for caller_id, last in list(callers.items()):
            if waits:
                callers[caller_id] = now
            elif caller_id != GUEST and last < now - POLL_PATIENCE:
                del callers[caller_id]  # a thread or a task that does something else by now
                self._caught_up((machine, caller_id))
                continue
            if answers:
                self._owed[machine, caller_id] = answers
                self._woken.set()
            else:
                self._caught_up((machine, caller_id))

    def _caught_up(self, client: Client) -> None:
        self._owed.pop(client, None)
        self._behind.discard(client)
        if not self._behind:
            self._woken.set()
