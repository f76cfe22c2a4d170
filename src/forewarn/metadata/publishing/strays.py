"""Machines that poll the node of another host than the one that they are known to be on.

Such a machine was moved without a report, or somebody else uses its address: it may be on either
host, and cannot be informed. What would disturb it waits (`SuspectMove`), until an operator
records where it is, or until it has polled only where it is known to be for a while. The move is
recorded without an operator, if that is wanted, as soon as all of this is true:

- No other machine has its address.
- The node of the host that it is known to be on is connected, and has not heard it since it first
  polled elsewhere, which is longer than several of its polls take. The node is asked.
- It has polled where it was within the last hour, and goes on polling elsewhere.
- It was not recorded elsewhere like that within the last hour.

A host that was taken over can claim polls of any machine. It cannot get a machine like that which
polls where it is, nor one that does not poll; and it can have only a few machines suspected.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from forewarn.core import Machine, Time
from forewarn.core.time import HOUR, MINUTE, SECOND, Duration
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.platform.platform import Platform
from forewarn.store.port import StoreFailed
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

SETTLE: Duration = 5 * SECOND  # for which a machine is not heard where it was, at least
MISSED = 3  # polls that it would have sent there in that time
ASK_EVERY: Duration = SECOND  # between two questions whether it was heard there
RECENT: Duration = HOUR  # since it has polled where it was, or was recorded elsewhere
# In which it polls only where it is known to be: less if it has polled elsewhere only for a moment,
# as a machine may that has just been moved.
CALM: Duration = 10 * MINUTE
BRIEF: Duration = 30 * SECOND
LONGER = 20  # than it has polled elsewhere
MAX_PER_HOST = 64  # machines that one host has, or has had lately, like that

log = logger("forewarn")


class _Stray:
    def __init__(self, host: str, at: Time) -> None:
        self.host = host  # whose node it polls
        self.since = at  # its very first poll there
        self.first = self.last = at  # polls there, the first since it was heard where it was
        self.asked: Time = 0  # when the node of the host that it is known to be on was asked
        self.unheard: Time = 0  # until when that node has not heard it since `first`

    @property
    def calm(self) -> Duration:
        return min(CALM, max(BRIEF, LONGER * (self.last - self.since)))


class Strays:
    def __init__(
        self,
        platform: Platform,
        host_index: HostIndex,
        tasks: guard.Tasks,
        ask: Callable[[str, str], bool],
    ) -> None:
        """`ask` asks the node of a host when it has last heard a machine, and returns whether that
        node is connected. Its answer is passed to `heard`."""
        self._platform = platform
        self._host_index = host_index
        self._tasks = tasks
        self._ask = ask
        self._strays: dict[str, _Stray] = {}  # by machine
        self._recorded: dict[str, tuple[str, Time]] = {}  # by machine: where, and when, lately
        self._too_many = LogThrottle()
        self.record = True  # whether moves are recorded without an operator

    async def polled(self, address: str, host: str) -> None:
        """Note a poll on a host from an address that no machine there has."""
        having = [
            machine for machine in self._host_index.placement.having(address) if machine.alive
        ]
        if len(having) != 1 or not having[0].host:
            return  # it is not known which machine it is, or none is known to be anywhere
        if self._suspect(having[0], host):
            await self._platform.suspect_move(having[0].name, host, _by(host))

    def polled_again(self, machine: Machine, host: str) -> None:
        """Note a poll on the host that a machine has left, where it is still answered."""
        if self._suspect(machine, host):
            self._start(self._platform.suspect_move(machine.name, host, _by(host)))

    def _suspect(self, machine: Machine, host: str) -> bool:
        """Note a poll. Returns whether it has to be recorded that the machine is suspected."""
        now = self._now()
        stray = self._strays.get(machine.name)
        if stray is not None and stray.host != host and now - stray.last < CALM:
            stray.first, stray.unheard = now, 0  # it polls on several other hosts
            return False
        if stray is None or stray.host != host:
            if self._count(host) >= MAX_PER_HOST:
                if self._too_many.record():
                    log.error(
                        "more machines poll on a host than can have been moved there",
                        host=host,
                        limit=MAX_PER_HOST,
                    )
                return False
            stray = self._strays[machine.name] = _Stray(host, now)
        stray.last = now
        if machine.disputed_by_poll and machine.disputed == host:
            return False
        log.warning(
            "a machine polls on another host than the one that it is known to be on",
            machine=machine.name,
            known=machine.host,
            host=host,
        )
        return True

    def heard(self, machine: str, at: Time) -> None:
        """Note when the node of the host that a machine is known to be on has last heard it."""
        if stray := self._strays.get(machine):
            if at < stray.first:
                stray.unheard = self._now()
            else:
                stray.first, stray.unheard = self._now(), 0

    def check(self) -> None:
        """Look where machines are by now."""
        now = self._now()
        self._recorded = {n: r for n, r in self._recorded.items() if now - r[1] < RECENT}
        for name in self._host_index.strayed:
            if name not in self._strays and (found := self._platform.machine_index.machine(name)):
                self._strays[name] = _Stray(found[1].disputed, now)  # found by a process before
        for name, stray in list(self._strays.items()):
            found = self._platform.machine_index.machine(name)
            if found is None or not found[1].alive or found[1].host == stray.host:
                del self._strays[name]
                continue
            host, polls = found[1].host, self._platform.poll_index.polls(name)
            if polls is not None and polls.last - stray.last >= stray.calm:
                del self._strays[name]
                self._start(self._platform.record_move(name, host, _by(host)))
            elif self.record and now - stray.asked >= ASK_EVERY:
                stray.asked = now
                if not self._ask(host, name):
                    stray.first, stray.unheard = now, 0
                elif self._believed(name, stray):
                    del self._strays[name]
                    self._recorded[name] = stray.host, now
                    self._start(self._platform.record_move(name, stray.host, _by(stray.host)))

    def _believed(self, machine: str, stray: _Stray) -> bool:
        polls = self._platform.poll_index.polls(machine)
        if polls is None or not polls.interval or machine in self._recorded:
            return False
        enough = max(SETTLE, MISSED * polls.interval)
        return (
            stray.first - polls.last < RECENT
            and stray.unheard - stray.first >= enough
            and stray.unheard - stray.last < enough
        )

    def _count(self, host: str) -> int:
        suspected = sum(stray.host == host for stray in self._strays.values())
        return suspected + sum(where == host for where, _ in self._recorded.values())

    def _now(self) -> Time:
        return self._platform.writer.now().at

    def _start(self, recording: Coroutine[Any, Any, object]) -> None:
        async def record() -> None:
            try:
                await recording
            except StoreFailed as failure:  # it is found out again
                log.warning("where a machine is could not be recorded", why=str(failure))

        self._tasks.start(record(), "recording where a machine is")


def _by(host: str) -> str:
    """Return who has found a machine on a host, for the history."""
    return f"node of {host}"
