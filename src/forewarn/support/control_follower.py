"""Following control from a host, as a node and a driver process do: all control nodes are dialled,
the first that accepts is followed, and another one as soon as that is silent."""

from __future__ import annotations

import asyncio
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.message_stream import BrokenConnection, MessageStream

MIN_DIAL_PAUSE, MAX_DIAL_PAUSE = 0.05, 1.0  # seconds between two attempts to reach control
# Seconds by which another address of control is dialled later: both may lead to the same process,
# which serves only one connection of a host.
TURN = 0.2
GREETED_WITHIN = 10.0  # seconds in which control has to answer a hello
AT_ONCE = 1.0  # seconds between two connections, after which the next one is waited for
# Seconds without a message, after which other control nodes are dialled: signs of life are answered
# every 3 s.
SILENT = 4.0
QUIET = 10.0  # seconds without a message, after which a connection is given up
LOG_AFTER, LOG_EVERY = 5.0, 30.0  # seconds without control before it is logged, and between records
REPLACED = "it is silent, and another control node is not"

Dial: TypeAlias = Callable[[], Awaitable[MessageStream[Any]]]
Welcome = TypeVar("Welcome")  # the message with which control accepts


class ControlFollower(ABC, Generic[Welcome]):
    def __init__(self, dials: Sequence[Dial], name: str) -> None:
        self._dials = dials
        self._chance = random.Random(name)
        self._streams: set[MessageStream[Any]] = set()  # that are open
        self._present: MessageStream[Any] | None = None  # of the control node that is followed
        self._following = asyncio.Lock()
        self._wanted = asyncio.Event()  # set while control nodes are dialled
        self._wanted.set()
        self._opened = float("-inf")  # when the last connection was opened
        self._unreachable = LogThrottle(LOG_EVERY, first_after=LOG_AFTER)
        self._instance = uuid.uuid4().hex
        self._term = 0  # the highest of a control node that has accepted this process
        self.problem = ""  # why there is no connection, or why the last one was lost
        self.wants_renewal: Callable[[], bool] = lambda: False  # of the certificate
        self.on_renewed: Callable[[Any], None] = lambda _: None

    @abstractmethod
    def _hello(self) -> msgspec.Struct:
        """Return the first message to a control node."""

    @abstractmethod
    def _welcomed(self, greeting: Any) -> Welcome:
        """Return what control has answered to a hello. Raises BrokenConnection if it does not
        accept this process, or must not be followed."""

    def _note_term(self, term: int) -> None:
        """Raises BrokenConnection if there was a control node of a higher term."""
        if term < self._term:
            raise BrokenConnection(f"it is of term {term}; there was {self._term} before")
        self._term = term

    @abstractmethod
    async def _follow(self, stream: MessageStream[Any], welcome: Welcome) -> None:
        """Follow a control node until its connection is broken. Raises BrokenConnection."""

    @abstractmethod
    def _note_failure(self, error: Exception) -> None:
        """Note why there is no connection."""

    def _disconnected(self, why: str) -> None:
        """Note that the connection to a control node that was followed is lost."""

    async def _until_ready(self) -> None:
        """Wait until control can be followed, before it is asked."""

    def _note_silence(self, silent: bool) -> None:
        """Have other control nodes dialled as long as the present one is silent."""
        if silent:
            self._wanted.set()
        elif self._present is not None:
            self._wanted.clear()

    async def run(self) -> None:
        """Connect to control and follow it, again and again."""
        await self._until_ready()
        tasks = guard.Tasks()
        try:
            loops = [
                tasks.start(self._keep_dialling(dial, turn * TURN), "connection to control")
                for turn, dial in enumerate(self._dials)
            ]
            ended, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            for loop in ended:
                await loop  # raises why it has ended
        finally:
            await tasks.end()

    async def _keep_dialling(self, dial: Dial, turn: float) -> None:
        await guard.pause(turn)
        pause = MIN_DIAL_PAUSE
        while True:
            if not self._wanted.is_set():
                await self._wanted.wait()
                await guard.pause(turn)
                pause = MIN_DIAL_PAUSE
                continue
            try:
                await self._follow_accepting(dial)
                pause = MIN_DIAL_PAUSE
            except (BrokenConnection, OSError, TimeoutError) as error:
                if self._present is None:
                    self._note_failure(error)
            # Not at the same times as all others.
            await guard.pause(pause * self._chance.uniform(0.5, 1.0))
            pause = min(2 * pause, MAX_DIAL_PAUSE)

    async def _follow_accepting(self, dial: Dial) -> None:
        """Follow a control node, if it accepts this process before another one does."""
        stream = await dial()
        before = self._present
        self._streams.add(stream)
        try:
            stream.send(self._hello())
            async with asyncio.timeout(GREETED_WITHIN):
                welcome = self._welcomed(await stream.receive())
            if self._present in (before, None):
                await self._replace_present(stream, welcome)
        finally:
            self._streams.discard(stream)
            stream.cut()

    async def _replace_present(self, stream: MessageStream[Any], welcome: Welcome) -> None:
        self._present = stream
        self._wanted.clear()
        for other in self._streams - {stream}:
            other.cut()
        pause = self._pause_afterwards()
        async with self._following:  # the former one may be writing
            try:
                await self._follow(stream, welcome)
            except (BrokenConnection, OSError) as error:
                if self._present is stream:
                    self._note_failure(error)
                self._disconnected(str(error) if self._present is stream else REPLACED)
            finally:
                stream.cut()
            await self._until_ready()
        await guard.pause(pause)
        if self._present is stream:
            self._present = None
            self._wanted.set()

    def _pause_afterwards(self) -> float:
        """Return for how many seconds to wait if the connection that was just opened is lost."""
        before, self._opened = self._opened, guard.monotonic()
        # Another process with the same certificate may be taking its place, and it that of the
        # other.
        return MAX_DIAL_PAUSE if self._opened - before < AT_ONCE else MIN_DIAL_PAUSE


def problem_of(error: Exception) -> str:
    """Return why control could not be reached, for people."""
    if isinstance(error, TimeoutError) and not str(error):
        return "it does not answer"
    return getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error)
