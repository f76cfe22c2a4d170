"""Two nodes that differ in one thing: one has a Front, the other has not.

The same fleet, the same instant on a virtual clock, the same ids, the same history. Both are said
the same bytes over real sockets, and must answer the same bytes; only the ids of requests may
differ, and those must. If two answers differ the case is put again at leisure, so that a busy
machine accuses nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from differential.case import Case
from differential.connections import REQUEST_ID, Lines, Received, connected, same, settle, shown
from differential.histories import FLEET, START, busy, ids
from forewarn.core import Durations
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits, RateLimits
from forewarn.node import Address, Config, Node
from forewarn.node.dev import on_loopback
from forewarn.service.fleet import read

AT_ONCE = 16  # cases that are put together; the loop accepts one caller in a turn
ENOUGH = 4  # differences, after which no more are looked for
LIMITS = Limits(  # no test of timeouts: a busy machine may take long between two segments
    max_connections_per_machine=10_000,
    head_timeout=3600,
    body_timeout=3600,
    answer_timeout=3600,
    keep_alive=3600,
)
T = TypeVar("T")
Prepare = Callable[[Node], Awaitable[None]]


@dataclass(frozen=True)
class Difference:
    case: Case
    front: Received
    plain: Received

    def __str__(self) -> str:
        lines = [str(self.case), "with a front:", *shown(self.front)]
        return "\n".join([*lines, "without:", *shown(self.plain)])


class Differs(AssertionError):
    def __init__(self, differences: Sequence[Difference]) -> None:
        first = min(differences, key=lambda found: len(found.case.whole))
        super().__init__(f"{len(differences)} differ, the shortest is\n{first}")
        self.differences = differences


class Pair:
    """`prepare` makes a node's history; it is done to both."""

    def __init__(
        self,
        prepare: Prepare | None = None,
        *,
        fleet: str = FLEET,
        limits: Limits | None = None,
        identity: Identity = Identity.TARGET,
    ) -> None:
        made = on_loopback(read.parse(fleet))
        self.addresses = {machine.name: machine.addresses[0] for machine in made.machines}
        self._prepare = prepare
        self._identity = identity
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pair", daemon=True)
        self._running: list[Node] = []
        self._ids: set[bytes] = set()
        self.received: list[tuple[Received, Received]] = []  # of the cases that were put last
        self.broken: list[str] = []  # what went wrong inside, of which no answer tells
        self._log = _Listener(self.broken)
        self.front, self.plain = (
            Node(
                Config(
                    fleet=made,
                    rules=Durations(silence=None),
                    virtual=START,
                    identity=identity,
                    limits=limits or LIMITS,
                    metadata=Address("127.0.0.1", 0),
                    whole_loopback=identity is Identity.TARGET,
                    front=front,
                ),
                new_id=ids(),
            )
            for front in (True, False)
        )

    @property
    def nodes(self) -> tuple[Node, Node]:
        return self.front, self.plain

    def __enter__(self) -> Pair:
        self._loop.set_exception_handler(lambda _loop, what: self.broken.append(str(what)))
        logging.getLogger("uvicorn.error").addHandler(self._log)
        self._thread.start()
        try:
            for node in self.nodes:
                self.run(node.__aenter__())
                self._running.append(node)
                if node.front is not None:  # which is to answer as much as it can
                    node.front._learned = RateLimits(0)
            if self._prepare is not None:
                self.both(self._prepare)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self._end()

    def stop(self) -> None:
        """Both nodes; once."""

        async def stopped() -> None:
            running, self._running = self._running, []
            await asyncio.gather(*(node.__aexit__(None, None, None) for node in running))

        self.run(stopped())

    def _end(self) -> None:
        logging.getLogger("uvicorn.error").removeHandler(self._log)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop of the nodes and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, work: Callable[[], T]) -> T:
        """The same for something that does not wait."""

        async def called() -> T:
            return work()

        return self.run(called())

    def both(self, change: Prepare) -> None:
        """Let the same happen to both nodes, until all of it has happened."""
        self.run(self.happen(change))

    async def happen(self, change: Prepare) -> None:
        for node in self.nodes:
            await change(node)
            await node.ledger.idle()

    def line(self, machine: str, room: int = 0) -> Lines:
        """A connection to each node; `room` for what has not been read, if not as usual."""
        at = self.addresses.get(machine, machine)
        asked, source = ("127.0.0.1", at) if self._identity is Identity.SOURCE else (at, None)
        ports = [int(node.metadata_url.rpartition(":")[2]) for node in self.nodes]
        return Lines([connected(asked, port, source, room) for port in ports])

    @contextlib.contextmanager
    def lines(self, machine: str, count: int) -> Iterator[list[Lines]]:
        """Several of them, until the end of the block."""
        with contextlib.ExitStack() as opened:
            yield [opened.enter_context(self.line(machine)) for _ in range(count)]

    async def exchange(self, case: Case, *, leisurely: bool = False) -> tuple[Received, Received]:
        (received,) = await self.exchanges([case], leisurely=leisurely)
        return received

    async def exchanges(
        self, cases: Sequence[Case], *, leisurely: bool = False
    ) -> list[tuple[Received, Received]]:
        """What each node answers to each of these. They are said side by side, step by step."""
        with contextlib.ExitStack() as open_lines:
            talks = [
                (list(_steps(case)), open_lines.enter_context(self.line(case.machine)))
                for case in cases
            ]
            for at in range(max(len(steps) for steps, _ in talks)):
                talking = [(steps[at], lines) for steps, lines in talks if at < len(steps)]
                for (data, last), lines in talking:
                    lines.send(data)
                    if last:
                        lines.finish()
                await settle([lines for _, lines in talking], leisurely=leisurely)
            for _, lines in talks:
                await lines.over()
            return [lines.received() for _, lines in talks]

    async def difference(self, case: Case) -> Difference | None:
        found = await self._differing([case])
        return found[0] if found else None

    async def differences(self, cases: Iterable[Case], at_once: int = AT_ONCE) -> list[Difference]:
        left = iter(cases)
        found: list[Difference] = []
        while len(found) < ENOUGH and (batch := list(itertools.islice(left, at_once))):
            found += await self._differing(batch)
        return found

    async def _differing(self, cases: Sequence[Case]) -> list[Difference]:
        """Those that are answered differently, also when they are put again."""
        for leisurely in (False, True):
            self.received = await self.exchanges(cases, leisurely=leisurely)
            found = [
                Difference(case, front, plain)
                for case, (front, plain) in zip(cases, self.received, strict=True)
                if not (self._fresh(front, plain) and front.ended and same(front) == same(plain))
            ]
            if not found:
                break
        return found

    def agree(self, *cases: Case) -> None:
        """Both answer each of these alike, or Differs is raised."""
        self.agree_on(cases)

    def agree_on(self, cases: Iterable[Case]) -> None:
        found = self.run(self.differences(cases))
        if found:
            raise Differs(found)
        assert self.broken == []
        assert self.unspoilt

    @property
    def unspoilt(self) -> bool:
        """Has neither node learned anything that the other has not, nor come to harm?"""
        return not self.broken and self.learned(self.front) == self.learned(self.plain)

    def learned(self, node: Node, *, in_order: bool = False) -> tuple[Any, ...]:
        """What the service behind the endpoint knows: its groups, and who saw what. What was seen
        last depends on the order, which is not the same if cases were put side by side."""
        groups = dict(node.store.groups)
        polls = [
            (name, polls.count, polls.last)
            + ((polls.version, polls.incarnation) if in_order else ())
            for name in self.addresses
            if (polls := node.poll_index.polls(name))
        ]
        sights = {
            event.id: node.poll_index.first_sights(event.id, self.addresses)
            for group in groups.values()
            for event in group.events
        }
        return groups, polls, sights, {name: node.poll_index.seen(name) for name in groups}

    def _fresh(self, *received: Received) -> bool:
        """No request id was given before."""
        ids = [id for one in received for id in REQUEST_ID.findall(one.whole)]
        fresh = len(set(ids)) == len(ids) and self._ids.isdisjoint(ids)
        self._ids.update(ids)
        return fresh


class Shared:
    """One pair for many tests. After one in which the nodes fell out there is another."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._pair: Pair | None = None

    def __enter__(self) -> Shared:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._open.close()

    def pair(self) -> Pair:
        if self._pair is None or not self._pair.unspoilt:
            self._open.close()
            self._pair = self._open.enter_context(Pair(busy))
        return self._pair


def _steps(case: Case) -> Iterator[tuple[bytes, bool]]:
    """What is said at a time, and whether that is all."""
    for at, segment in enumerate(case.segments, 1):
        yield segment, case.hurried and at == len(case.segments)
    if not (case.hurried and case.segments):
        yield b"", True


class _Listener(logging.Handler):
    def __init__(self, received: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._received = received

    def emit(self, record: logging.LogRecord) -> None:
        self._received.append(self.format(record))
