"""`Client`: what is about to happen to this machine, for programs that may block.

What is asked and what it means is decided in `rules.py`; here is only who does what that says.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from forewarn.client import pace
from forewarn.client.connection import Connection
from forewarn.client.discovery import endpoint as where
from forewarn.client.errors import Closed
from forewarn.client.events import Change, Event, Look
from forewarn.client.identity import Identity
from forewarn.client.rules import ClientProtocol, Readiness, ids
from forewarn.client.status import EndpointStatus
from forewarn.client.steps import Answer, Ask, Do, Sleep, Steps, Tell
from forewarn.wire.extensions import ReadinessReport

T = TypeVar("T")


class Client:
    """`endpoint` is where to ask; if it is not said, FOREWARN_METADATA is, and else it is found.

    `wait` is whether to be told of changes where the server offers it; `interval` how many seconds
    lie between two polls else. May be used by several threads: each that watches is told every
    change, what else is asked is asked one after the other, and `close` ends it all.
    """

    def __init__(
        self, endpoint: str | None = None, *, wait: bool = True, interval: float = pace.INTERVAL
    ) -> None:
        self._rules = ClientProtocol(
            where.said(endpoint), where.candidates, wait=wait, interval=pace.checked(interval)
        )
        self._side = Connection()  # for whatever is asked beside a watch
        self._side_lock = threading.Lock()
        self._watching: set[Connection] = set()
        self._closed = False
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()  # who rests looks here

    def events(self, *, patience: float = pace.PATIENCE) -> tuple[Event, ...]:
        """What is listed now. What passes is tried again for `patience` seconds."""
        return self._done(self._rules.events(patience))

    def approve(self, *events: Event | str, patience: float = pace.PATIENCE) -> None:
        """Let them start as soon as nothing else holds them; for every machine they list."""
        if events:
            self._done(self._rules.approve(list(ids(events)), patience))

    def watch(self) -> Generator[Change, None, None]:
        """Every change as it comes, until `close`. Whatever the endpoint does meanwhile is
        outlasted; `standing` says how it is."""
        for look in self.looks():
            yield from look.changes

    def looks(self, within: Callable[[], float] | None = None) -> Generator[Look, None, None]:
        """Every answer, also one with nothing new. `within` says for how many seconds at most the
        next one may be waited for."""
        line = Connection()
        self._watching.add(line)
        steps = self._rules.looks(within)
        reply: Any = None
        try:
            while not self._closed:
                step = steps.send(reply)
                reply = None
                if isinstance(step, Ask):
                    reply = line.ask(step)
                elif isinstance(step, Sleep):
                    self._rest(step.seconds)
                elif isinstance(step, Do):
                    reply = step.work()
                elif isinstance(step, Tell):
                    yield step.what
        finally:
            self._watching.discard(line)
            steps.close()
            line.close()

    def identity(self, *, patience: float = pace.PATIENCE) -> Identity:
        """Who this machine is, as events name it; never by its host name."""
        return self._done(self._rules.identity(patience))

    def ready(
        self,
        event: Event | str,
        note: str = "",
        *,
        ready: bool = True,
        patience: float = pace.PATIENCE,
    ) -> Readiness | None:
        """Tell the others of the group that this machine is prepared, or is not. None where that is
        not offered, as on Azure, or the event is not listed."""
        word = ReadinessReport(ready, note)
        return self._done(self._rules.readiness(next(ids([event])), patience, word))

    def readiness(self, event: Event | str, *, patience: float = pace.PATIENCE) -> Readiness | None:
        """Who is ready for it; None as above."""
        return self._done(self._rules.readiness(next(ids([event])), patience))

    def now(self) -> datetime:
        """The service's clock, as its answers show it: what NotBefore is to be compared with. A
        step of this machine's own clock does not matter to it."""
        return self._rules.now()

    @property
    def standing(self) -> EndpointStatus:
        """How it stands with the endpoint: where that is, and what is wrong, if anything is."""
        return self._rules.standing

    def close(self) -> None:
        """End whatever is being watched, and let go of the connections. Also from another thread,
        or from a signal handler in the middle of anything."""
        self._closed = True
        self._ended.put(None)
        for line in (self._side, *self._watching):
            line.interrupt()
        self._let_go()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _done(self, steps: Steps[T]) -> T:
        reply: Any = None
        while not self._closed:
            try:
                step = steps.send(reply)
            except StopIteration as done:
                result: T = done.value
                return result
            reply = None
            if isinstance(step, Ask):
                reply = self._asked(step)
            elif isinstance(step, Sleep):
                self._rest(step.seconds)
            elif isinstance(step, Do):
                reply = step.work()
        raise Closed("this client was closed")

    def _asked(self, ask: Ask) -> Answer:
        try:
            with self._side_lock:
                return self._side.ask(ask)
        finally:
            if self._closed:
                self._let_go()

    def _let_go(self) -> None:
        """Of the connection beside; whoever is asking on it does so himself when he is done."""
        if self._side_lock.acquire(blocking=False):
            try:
                self._side.close()
            finally:
                self._side_lock.release()

    def _rest(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._ended.put(self._ended.get(timeout=seconds))  # for whoever else rests
