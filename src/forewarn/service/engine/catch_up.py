"""Attention: who has lately been answered a document, and who has yet to hear what has changed.

For a service whose time is virtual and may be played: it then waits for those who listen. Real
time waits for nobody, so there polls do not come by here.
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

ATTENTIVE = 5.0  # seconds of guard time: whoever was answered within them is waited for
TURNS = 2  # answers: the first shows what has changed, the next says that its reader is done

Tell: TypeAlias = Callable[[str, str, str, int, Collection[str], Now], None]
Caller: TypeAlias = tuple[str, str]  # a machine, and whose voice it is asked with
GUEST = ""  # the voice of whoever comes by the wire


class Stopped(Hung):
    """The service stops, and time with it."""


class CatchUp:
    """`on_poll` is called for every document that is answered, before it is counted here."""

    def __init__(self, store: Store, on_poll: Tell) -> None:
        self._on_poll = on_poll
        self.waiting: Callable[[str], bool] = lambda _: False  # in a request that is held?
        self._shown: dict[str, tuple[bool, int]] = {}  # by group: has it a document, and which
        self._last: dict[str, dict[str, float]] = {}  # by machine and voice: answered when
        self._owed: dict[Caller, int] = {}  # how many answers, since something has changed
        self._behind: set[Caller] = set()  # of those: who is being waited for
        self._voices: dict[str, list[str]] = {}  # by machine: who asks as it, beside guests
        self._voices_lock = threading.Lock()
        self._woken = asyncio.Event()
        self._stopped = False
        store.attach(self._on_commit)
        for group in store.groups.values():
            self._shown[group.name] = group.enabled, group.incarnation

    @contextmanager
    def speaking(self, machine: str, voice: str) -> Iterator[None]:
        """What is asked as the machine meanwhile is asked with this voice. In any thread."""
        with self._voices_lock:
            self._voices.setdefault(machine, []).append(voice)
        try:
            yield
        finally:
            with self._voices_lock:
                voices = self._voices[machine]
                voices.remove(voice)
                if not voices:
                    del self._voices[machine]

    def polled(
        self,
        machine: str,
        group: str,
        version: str,
        incarnation: int,
        ids: Collection[str],
        now: Now,
    ) -> None:
        """A document was answered; 304 says the same."""
        self._on_poll(machine, group, version, incarnation, ids, now)
        voice = self._voice(machine)
        self._last.setdefault(machine, {})[voice] = guard.monotonic()
        caller = machine, voice
        if caller in self._owed:
            self._owed[caller] -= 1
            # Whoever asks to be told of the next change has no more to do about this one.
            if self._owed[caller] == 0 or self.waiting(machine):
                self._paid(caller)

    def heard(self, machine: str) -> bool:
        """Has anybody who comes by the wire been answered as this machine?"""
        return GUEST in self._last.get(machine, {})

    async def caught_up(self, patience: float = ATTENTIVE, but_for: str | None = None) -> bool:
        """Until all who listen have heard what is visible now: those who were answered anything
        in the last `patience` seconds, but for one voice. False if nobody had to be waited for.
        """
        waited = False
        while not self._stopped:
            now = guard.monotonic()
            ends = {
                (machine, voice): self._last[machine][voice] + patience
                for machine, voice in self._owed
                if voice != but_for
            }
            self._behind = {caller for caller, end in ends.items() if end > now}
            if not self._behind:
                return waited
            waited = True
            self._woken.clear()
            try:
                async with asyncio.timeout(max(ends.values()) - now):
                    await self._woken.wait()
            except TimeoutError:
                continue
        raise Stopped("the service stops")

    def forget(self, machine: str) -> None:
        """It is gone, or whoever asked as it is: nobody is waited for until somebody asks again."""
        for voice in self._last.pop(machine, {}):
            self._paid((machine, voice))

    def stop(self) -> None:
        """Nobody is waited for any longer."""
        self._stopped = True
        self._woken.set()

    def _voice(self, machine: str) -> str:
        if not self._voices:
            return GUEST
        with self._voices_lock:
            voices = self._voices.get(machine)
            return voices[-1] if voices else GUEST

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
                        self._owe(machine.name, TURNS if group.enabled else 0)

    def _owe(self, machine: str, answers: int) -> None:
        now, waits = guard.monotonic(), self.waiting(machine)
        voices = self._last[machine]
        for voice, last in list(voices.items()):
            if waits:
                voices[voice] = now
            elif voice != GUEST and last < now - ATTENTIVE:
                del voices[voice]  # a thread or a task that has long done something else
                self._paid((machine, voice))
                continue
            if answers:
                self._owed[machine, voice] = answers
                self._woken.set()
            else:
                self._paid((machine, voice))

    def _paid(self, caller: Caller) -> None:
        self._owed.pop(caller, None)
        self._behind.discard(caller)
        if not self._behind:
            self._woken.set()
