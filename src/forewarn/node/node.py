"""The node: every part made, joined and started in order, and stopped in reverse.

The same for `dev`, for `serve` and for a test. Wiring only: if something here wants to decide,
it belongs on another floor.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import structlog

from forewarn.core import Machine, Refused, Time
from forewarn.drivers.command import Command
from forewarn.drivers.port import Driver
from forewarn.drivers.simulated import FileWorld, Simulated, World
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.counts import Counts
from forewarn.metadata.recorder import Recorder
from forewarn.metadata.seats import Identity, Seats
from forewarn.metadata.upstream import LocalUpstream
from forewarn.node.config import Address, Config
from forewarn.node.dev import on_loopback
from forewarn.node.servers import InnerServer, server
from forewarn.node.sockets import open_loopback, open_one
from forewarn.service import guard
from forewarn.service.active import Active
from forewarn.service.applying import Applying
from forewarn.service.carrier import Carrier
from forewarn.service.clock import Clock, Interruption, RealClock, VirtualClock
from forewarn.service.conductor import Conductor
from forewarn.service.feed import Feed
from forewarn.service.gates import Gates
from forewarn.service.history import PRUNE_EVERY, History
from forewarn.service.hosts import Hosts
from forewarn.service.inventory import Inventory
from forewarn.service.leaving import Leaving
from forewarn.service.ledger import Ledger
from forewarn.service.places import Places
from forewarn.service.platform import Platform, new_id
from forewarn.service.rollouts import Rollouts
from forewarn.service.scheduler import Scheduler, advance
from forewarn.service.trace import FileTrace, Trace, TracedWorld
from forewarn.service.witness import SAVE_EVERY, Witness
from forewarn.service.writer import Writer
from forewarn.store import MemoryStore, Store

if TYPE_CHECKING:
    from forewarn.metadata.front import Front

SWEEP_SLICE = 64  # connections that are looked at before the loop gets its turn
SWEEP_EVERY = 1.0  # seconds of guard time between two looks for callers that are too slow

log = structlog.get_logger("forewarn")


class Node:
    """Parts that a test wants to hold in its own hands may be handed in."""

    def __init__(
        self,
        config: Config,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        driver: Driver | None = None,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        self.config = config
        self.clock = clock or (
            RealClock() if config.virtual is None else VirtualClock(config.virtual)
        )
        self.store = store or _store(config)
        self._driver = driver
        self._new_id = new_id
        self._stack = AsyncExitStack()
        self._winding = asyncio.Lock()
        self.front: Front | None = None
        self.metadata_url = ""
        self.control_url = ""

    async def __aenter__(self) -> Node:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def advance(self, to: Time) -> None:
        """Wind a virtual clock forward; returns when all that became due is done and visible."""
        if not isinstance(self.clock, VirtualClock):
            raise TypeError("the clock is real")
        async with self._winding:
            await advance(self.clock, self.scheduler, self.ledger, to)

    def url_of(self, machine: Machine) -> str:
        """Where to ask as this machine."""
        if (
            self.config.identity is Identity.SOURCE
            or not machine.addresses
            or not self.metadata_url
        ):
            return self.metadata_url
        port = self.metadata_url.rpartition(":")[2]
        return f"http://{Address(machine.addresses[0], int(port))}"

    async def _start(self) -> None:
        config, store = self.config, self.store
        await store.open()
        self._stack.push_async_callback(store.close)
        self.ledger = Ledger()
        self.witness = Witness(store)
        self.inventory = Inventory(store)
        self.active = Active(store)
        self.feed = Feed(store)
        await self._take_up()
        self.clock.on_interruption(_tell)
        self.writer = Writer(store, self.clock, config.rules, self.ledger)
        trace = self._trace()
        driver = self._make_driver(trace)
        tasks = guard.Tasks(_surprise)
        self._stack.push_async_callback(tasks.end)
        self.places = Places(store)
        self.carrier = Carrier(store, self.writer, driver, self.places, self.ledger, tasks)
        self.scheduler = Scheduler(store, self.writer, self.clock, self.ledger, self.witness.seen)
        self.platform = Platform(
            store,
            self.writer,
            self.carrier,
            self.feed,
            self.witness,
            self.inventory,
            self.active,
            self._new_id,
        )
        self.leaving = Leaving(self.platform)
        self.hosts = Hosts(store, self.platform, self.places)
        gates = Gates(config.gates)
        self.conductor = Conductor(
            store,
            self.writer,
            self.scheduler,
            self.platform,
            self.hosts,
            gates,
            self.ledger,
            tasks,
        )
        self.rollouts = Rollouts(store, self.platform, self.conductor, gates)
        self.history = History(store, self.inventory, self.writer, config.history)
        self.inventory.load()
        self.places.load()
        self.active.load()
        upstream = LocalUpstream(self.platform, store)
        seats = Seats(config.identity, config.speak_as)
        self.endpoint = MetadataApp(upstream, seats, config.limits)
        self.app: Any = Recorder(self.endpoint, seats, upstream, trace) if trace else self.endpoint
        self.carrier.resume()  # before anything new is started, so that nothing is taken up twice
        prepare = on_loopback if config.identity is Identity.ASKED else None
        self.applying = Applying(store, self.writer, prepare)
        await self._define()
        self._stack.push_async_callback(self._save_or_say)
        if trace:
            trace.fleet(store, self.writer.now().at)
        self.scheduler.reread()
        await self.conductor.resume()
        tasks.start(self.scheduler.run(), "scheduler")
        tasks.start(self._keep_saving(), "saver")
        tasks.start(self._keep_pruning(), "pruner")
        await self._listen(tasks)

    async def _take_up(self) -> None:
        """Where did an earlier run end, and how long has nobody been serving since?"""
        sightings = await self.witness.load()
        served_until, lost = sightings.served_until or 0, sightings.lost
        async for commit in self.store.commits(max(self.store.seq - 1, 0)):
            if commit.at >= served_until:
                served_until, lost = commit.at, max(lost, commit.lost)
        self.clock.resume(served_until or None, lost, floor=served_until)

    async def _define(self) -> None:
        """Make the inventory what the fleet says; what it no longer names is removed."""
        config = self.config
        if config.fleet is None:
            if not any(self.inventory.groups()):
                log.info("there are no machines yet; say which: forewarn apply FLEET.yaml")
            return
        done = await self.applying.fleet(
            config.fleet, by="start", force=config.insist, serving=False
        )
        if isinstance(done, Refused):
            log.warning(
                "the fleet file is not applied, the inventory stays as it was",
                why=done.says,
                run=f"forewarn apply {config.fleet_file or 'FLEET.yaml'} --plan",
            )
        elif removed := done.machines.removed + done.hosts.removed:
            log.warning("what the fleet file no longer names is removed", removed=removed)

    def _make_driver(self, trace: Trace | None) -> Driver:
        if self._driver is not None:
            return self._driver
        state = self.config.state
        if self.config.program is not None:
            papers = state.with_name(state.name + ".programs") if state else None
            return Command(self.config.program, papers)
        world = FileWorld(state.with_name(state.name + ".impacts")) if state else World()
        if trace:
            world = TracedWorld(world, trace)
        self._stack.callback(world.close)
        return Simulated(world, self.config.rules.paced)

    def _trace(self) -> Trace | None:
        if self.config.record is None:
            return None
        trace = FileTrace(self.config.record, self.config.rules)
        trace.follow(self.store, self.clock)
        trace.write("up", self.writer.now().at)

        def end() -> None:
            now = self.writer.now().at
            trace.write("down", now)
            trace.write("end", now)
            trace.close()

        self._stack.callback(end)
        return trace

    async def _listen(self, tasks: guard.Tasks) -> None:
        config = self.config
        if config.metadata is not None:
            from forewarn.metadata import front
            from forewarn.metadata.protocol import protocol

            sockets = (
                open_loopback(config.metadata.port, self._loopback_hosts())
                if config.whole_loopback
                else [open_one(config.metadata)]
            )
            self.metadata_url = _url(config.metadata.host, sockets[0])
            fronted = config.front and front.possible(config.limits) and config.record is None
            inner = await self._serve(
                self.app, [] if fronted else sockets, tasks, protocol(self.endpoint)
            )
            connections: set[Any] = inner.server_state.connections
            if fronted:
                self.front = front.Front(
                    self.endpoint, sockets, inner.make_protocol, connections, tasks
                )
            tasks.start(_sweeping(connections, self.endpoint.counts), "sweeper")
        if config.control is not None:
            # Which takes longer than all before it; polls are answered meanwhile.
            await asyncio.to_thread(import_module, "forewarn.control.app")
            from forewarn.control.app import create
            from forewarn.control.desk import Desk
            from forewarn.metadata.numbers import readings

            desk = Desk(
                platform=self.platform,
                hosts=self.hosts,
                rollouts=self.rollouts,
                history=self.history,
                leaving=self.leaving,
                applying=self.applying,
                metadata=self.metadata_url,
                url_of=self.url_of,
                next_due=self.scheduler.next_due,
                advance=self.advance if isinstance(self.clock, VirtualClock) else None,
                readings=lambda: readings(self.endpoint, self.front),
            )
            app = create(desk)
            listener = open_one(config.control)
            self.control_url = _url(config.control.host, listener)
            await self._serve(app, [listener], tasks, "httptools")

    async def _serve(
        self, app: Any, sockets: list[socket.socket], tasks: guard.Tasks, http: Any
    ) -> InnerServer:
        inner = server(app, http=http)
        running = tasks.start(inner.serve(sockets), "server")

        async def stop() -> None:
            inner.should_exit = True
            await asyncio.wait([running])

        self._stack.push_async_callback(stop)
        await inner.ready.wait()
        return inner

    def _loopback_hosts(self) -> list[str]:
        groups = self.inventory.groups()
        return ["127.0.0.1", *(a for g in groups for m in g.machines for a in m.addresses)]

    async def _keep_saving(self) -> None:
        while True:
            await guard.pause(SAVE_EVERY)
            await self._save_or_say()

    async def _keep_pruning(self) -> None:
        while True:
            await guard.pause(PRUNE_EVERY)
            try:
                await self.history.prune()
            except Exception as error:
                log.warning("the history could not be pruned", why=str(error))

    async def _save_or_say(self) -> None:
        try:
            await self.witness.save(self.writer.now())
        except Exception as error:
            log.warning("last-seen times could not be saved", why=str(error))


async def _sweeping(connections: Collection[Any], counts: Counts) -> None:
    """All who are late may be late at once: nobody else is kept waiting for their sake."""
    while True:
        await guard.pause(SWEEP_EVERY)
        now, looked = guard.monotonic(), 0
        for connection in list(connections):
            try:
                for _ in connection.sweep(now):
                    looked += 1
                    if looked % SWEEP_SLICE == 0:
                        await guard.pause(0)
            except Exception as error:  # the others are to be looked after all the same
                log.error("a connection could not be looked after", exc_info=error)
        counts.tell(now)


def _store(config: Config) -> Store:
    if config.state is None:
        return MemoryStore()
    from forewarn.store.sqlite import SqliteStore

    return SqliteStore(Path(config.state), migrate=config.migrate)


def _url(host: str, listener: socket.socket) -> str:
    return f"http://{Address(host, listener.getsockname()[1])}"


def _tell(interruption: Interruption) -> None:
    log.warning("time was interrupted", what=interruption.what, lost=interruption.lost / 1e6)


def _surprise(name: str, error: BaseException) -> None:
    log.error("a task died", task=name, exc_info=error)
