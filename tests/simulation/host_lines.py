"""Time and lines of simulated hosts.

The loop never waits: when nothing is left to do, its time jumps to the next timer. Guard time is
the time of the loop, on every computer with an offset and a speed of its own.

A line is two directions. What is written arrives in order, after a delay. A direction that is
stalled keeps what is written until it is healed; that a line has ended, too, is news that travels.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any

from simulation.cluster import NODE, NodeLoop

MAX_DELAY = 0.02  # seconds that a message takes
MAX_DRIFT = 0.083  # by which a clock is too fast or too slow, while it is being corrected
DISK = 0.01  # seconds that a disk takes
CANNOT_CONNECT = 1.0  # seconds after which an attempt to connect fails


class _Jumping(selectors.BaseSelector):
    """Waits for nothing but time, which it lets pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that will not happen")
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Any:
        return self._keys


class HostLoop(NodeLoop):
    def __init__(self) -> None:
        jumping = _Jumping()
        asyncio.SelectorEventLoop.__init__(self, jumping)
        self._jumping = jumping
        self._paused, self._held, self.tasks = set(), [], {}
        self.disk: Callable[[], float] = lambda: DISK

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """Do what a thread is to do, after a while, and unless its process has ended by then."""
        future = self.create_future()

        def work() -> None:
            if not future.cancelled():
                try:
                    future.set_result(func(*args))
                except Exception as error:
                    future.set_exception(error)

        self.call_later(self.disk(), work)
        return future


class Clocks:
    """The monotonic clock of each computer, by the name of what runs there."""

    def __init__(self, loop: HostLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._clocks: dict[str, tuple[float, float]] = {}

    def read(self) -> float:
        computer = NODE.get().partition(" ")[0]
        if computer not in self._clocks:
            speed = 1 + self._chance.uniform(-MAX_DRIFT, MAX_DRIFT)
            self._clocks[computer] = self._chance.uniform(1_000, 100_000), speed
        offset, speed = self._clocks[computer]
        return offset + speed * self._loop.time()

    def read_us(self) -> int:
        return round(self.read() * 1_000_000)


class Link:
    """The network between control and a host."""

    def __init__(self, host: str, chance: random.Random) -> None:
        self.host = host
        self.chance = chance
        self.stalled = {"up": False, "down": False}  # to control, and from it
        self.delay = 0.0  # seconds that every message takes in addition
        self.trouble = 0.0  # how likely something happens to a message
        self.lines: list[Line] = []

    @property
    def works(self) -> bool:
        return not any(self.stalled.values())

    def stall(self, *directions: str) -> None:
        self.stalled |= dict.fromkeys(directions, True)

    def heal(self) -> None:
        self.stalled = dict.fromkeys(self.stalled, False)
        for line in self.lines:
            for end in (line.node, line.control):
                end.flush()

    def connect(self, serve: Callable[[End], None]) -> End:
        line = Line(self)
        self.lines = [*(line for line in self.lines if not line.over), line]
        serve(line.control)
        return line.node


class Line:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.node = End(link, "up")
        self.control = End(link, "down")
        self.node.other, self.control.other = self.control, self.node

    @property
    def over(self) -> bool:
        return self.node.closed and self.control.closed


class End:
    """One end of a line: what a transport is."""

    other: End

    def __init__(self, link: Link, direction: str) -> None:
        self._link = link
        self._direction = direction  # in which it sends
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.Protocol
        self._context: contextvars.Context
        self.closed = False
        self.writes = 0
        self._under_way: deque[tuple[float, bytes | None]] = deque()  # None: the end
        self._last = 0.0

    def attach(self, protocol: asyncio.Protocol) -> None:
        """Give what arrives to a protocol, in the context of whoever attaches it."""
        self._protocol, self._context = protocol, contextvars.copy_context()
        transport: Any = self
        protocol.connection_made(transport)

    def write(self, data: bytes) -> None:
        self.writes += 1
        link, chance = self._link, self._link.chance
        delay = link.delay + chance.uniform(0, MAX_DELAY)
        if link.trouble and chance.random() < link.trouble:
            match chance.randrange(3):
                case 0:  # the line breaks, and this does not arrive
                    self.abort()
                    return
                case 1:  # it breaks, and this is the last that arrives
                    self._send(data, delay)
                    self._send(None, delay)
                    self._loop.call_later(delay, self._end)
                    return
                case 2:
                    delay = chance.choice([0.2, 1.0, 3.0])
        self._send(data, delay)

    def _send(self, data: bytes | None, delay: float) -> None:
        self._last = max(self._last, self._loop.time() + delay)
        self._under_way.append((self._last, data))
        # Not in the context of who writes: it may be gone by then.
        self._loop.call_at(self._last, self.flush, context=contextvars.Context())

    def flush(self) -> None:
        while self._under_way and self._under_way[0][0] <= self._loop.time() + 1e-9:
            if self._link.stalled[self._direction]:
                return
            _, data = self._under_way.popleft()
            if self.other.closed:
                continue
            if data is None:
                self.other._end()
            else:
                self.other._call(self.other._protocol.data_received, data)

    def _end(self) -> None:
        if not self.closed:
            self.closed = True
            # Later, as transports do: whoever ends it may be in the middle of something.
            self._loop.call_soon(self._protocol.connection_lost, None, context=self._context)

    def _call(self, call: Callable[..., None], *arguments: object) -> None:
        self._context.copy().run(call, *arguments)

    def abort(self) -> None:
        """End it; what is under way is lost."""
        if not self.closed:
            self._under_way.clear()
            self.close()

    def close(self) -> None:
        if not self.closed:
            self._end()
            self._send(None, MAX_DELAY)

    def break_off(self, since: float) -> None:
        """End without a word, and lose what was sent since then: the rest is still under way."""
        late = self._loop.time() - since
        kept = [entry for entry in self._under_way if entry[0] <= self._last - late]
        self._under_way = deque(kept)
        self._end()

    def vanish(self) -> None:
        """End without a word: the computer has no power any more."""
        self._under_way.clear()
        self._end()

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return sum(len(data or b"") for _, data in self._under_way)
