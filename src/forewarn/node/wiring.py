"""What a node is made of where there is a choice: the store, the driver, the trace, the sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from forewarn.core import Now
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.port import Driver
from forewarn.drivers.simulated import FileImpactJournal, ImpactJournal, SimulatedDriver
from forewarn.node.config import Config
from forewarn.node.listening.handed_over import adopted
from forewarn.node.listening.serve import url
from forewarn.node.listening.sockets import all_or_none, open_loopback, open_one
from forewarn.service.engine.clock import Clock
from forewarn.service.telemetry.event_trace import EventTrace, FileEventTrace, TracedImpactJournal
from forewarn.store import MemoryStore, Store
from forewarn.verdict.observer import Observer


def make_store(config: Config) -> Store:
    if config.state is None:
        return MemoryStore()
    from forewarn.store.sqlite.engine import SqliteStore

    return SqliteStore(Path(config.state), migrate=config.migrate)


def make_driver(config: Config, trace: EventTrace | None, stack: AsyncExitStack) -> Driver:
    state = config.state
    if config.program is not None:
        papers = state.with_name(state.name + ".programs") if state else None
        return CommandDriver(config.program, papers)
    world = (
        FileImpactJournal(state.with_name(state.name + ".impacts")) if state else ImpactJournal()
    )
    if trace:
        world = TracedImpactJournal(world, trace)
    stack.callback(world.close)
    return SimulatedDriver(world, config.rules.paced)


def make_trace(
    config: Config,
    store: Store,
    clock: Clock,
    now: Callable[[], Now],
    observer: Observer | None,
    stack: AsyncExitStack,
) -> EventTrace | None:
    """For a file, for whoever observes, or for nobody."""
    trace: EventTrace
    if config.record is not None:
        trace = FileEventTrace(config.record, config.rules)
        stack.callback(trace.close)
        if observer is not None:
            trace.tell(observer.hear)
    elif observer is not None:
        trace = EventTrace(observer.hear, config.rules)
    else:
        return None
    trace.follow(store, clock)
    trace.write("up", now().at)

    def end() -> None:
        at = now().at
        trace.write("down", at)
        trace.write("end", at)

    stack.callback(end)
    return trace


def guest_urls(config: Config, sockets: Sequence[socket.socket]) -> list[str]:
    """Return the URL of each address where guests ask, with the real port in place of port 0. If
    one address needs several sockets (loopback without its device), they share a port."""
    each = len(sockets) // len(config.guest_addresses)
    hosts = [address.host for address in config.guest_addresses]
    return [url(host, listener) for host, listener in zip(hosts, sockets[::each], strict=True)]


def guests_sockets(config: Config, loopback: Sequence[str]) -> list[socket.socket]:
    """Those that were handed over, or else opened here. `loopback` are the machines' addresses,
    where each has one of its own."""
    if config.metadata_fds:
        return [adopted(fd) for fd in config.metadata_fds]
    with all_or_none() as opened:
        for address in config.guest_addresses:
            if config.whole_loopback:
                opened += open_loopback(address.port, loopback)
            else:
                opened.append(open_one(address))
    return opened


def operators_socket(config: Config) -> socket.socket:
    assert config.control is not None
    return adopted(config.control_fd) if config.control_fd is not None else open_one(config.control)
