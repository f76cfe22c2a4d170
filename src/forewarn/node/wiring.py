"""The steps of a node's start where its configuration leaves a choice: which store, driver, trace
and sockets it has, where an earlier run ended, and which fleet it starts with.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from forewarn.core import Refused, World
from forewarn.core.registry import stored_windows
from forewarn.core.time import SECOND, Time
from forewarn.drivers import registry
from forewarn.drivers.port import Driver, DriverContext
from forewarn.metadata.endpoint.recorder import Recorder
from forewarn.node.config import Address, Addresses, Config
from forewarn.node.listening.serve import url
from forewarn.node.listening.socket_activation import adopt
from forewarn.node.listening.sockets import (
    all_or_none,
    has_many_loopback_addresses,
    open_loopback,
    open_socket,
)
from forewarn.service.engine.catch_up import CatchUp
from forewarn.service.engine.open_attempts import OpenAttempts
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.faults.registry import Faults
from forewarn.service.fleet.apply import FleetApply
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.indexes.unreachable_hosts import UnreachableHosts
from forewarn.service.telemetry.event_trace import EventTrace, FileEventTrace
from forewarn.store import Store, StoreUnusable
from forewarn.store.engines import local_path, shared_impacts, store_for, stored_state
from forewarn.store.port import Member
from forewarn.support.logs import logger
from forewarn.support.system import boot_id, machine_id
from forewarn.verdict.observer import Observer

log = logger("forewarn")


def make_store(config: Config) -> Store:
    return store_for(
        config.state,
        migrate=config.migrate,
        member=control_node(config),
        lease=config.lease / SECOND,
        managed=config.replicated == "managed",
    )


def control_node(config: Config) -> Member:
    """Return this process as a control node among others."""
    name = config.name or socket.gethostname()
    scheme = "http" if config.tls is None else "https"
    address = config.control or Address("127.0.0.1", 0)
    host = next(iter(config.control_names), address.host)
    return Member(
        name=name,
        # Not of a clone, which may have the same id and host name.
        machine=f"{machine_id()}/{boot_id()}/{socket.gethostname()}",
        address=f"{scheme}://{Address(host, address.port)}",
    )


def make_driver(config: Config, store: Store, open_attempts: OpenAttempts) -> Driver:
    leadership = store.leadership

    def file(suffix: str) -> Path | None:
        return (
            None
            if config.state is None
            else local_path(config.state, f".{suffix}", config.local_directory)
        )

    context = DriverContext(
        file,
        config.rules.paced,
        on_progress=open_attempts.report,
        may_act=leadership.held if leadership else lambda: True,
        service_pid=os.getpid(),
        watch_lease=leadership.watch if leadership else None,
        shared_impacts=lambda: shared_impacts(config.state),
        term=lambda: leadership.term if leadership else 0,
        wake=open_attempts.wake,
    )
    return registry.make(config.driver, context)


def record_reach(trace: EventTrace, hosts: UnreachableHosts, now: Callable[[], World]) -> None:
    """Record which hosts control cannot reach, now and from now on."""

    def changed(host: str) -> None:
        trace.reach(now().at, [host], reached=not hosts.is_unreachable(host))

    disconnected = [host for host in hosts.hosts if hosts.is_unreachable(host)]
    trace.reach(now().at, disconnected, reached=False)
    hosts.on_change(changed)


def record_silence(
    trace: EventTrace, recorder: Recorder, catch_up: CatchUp, now: Callable[[], Time]
) -> None:
    """Record which clients were waited for in vain."""

    def unresponsive(machine: str, caller_id: str, seconds: float, by_itself: bool) -> None:
        unanswered = recorder.has_unanswered(machine)
        fault = recorder.fault_of_unanswered(machine, seconds / 2)  # a request may be late
        trace.unresponsive(now(), machine, caller_id, seconds, by_itself, unanswered, fault)

    def responsive(machine: str, caller_id: str) -> None:
        trace.responsive(now(), machine, caller_id)

    def failed(line: Mapping[str, Any]) -> None:
        if line["kind"] == "exchange" and (line["status"] not in (200, 304) or "fault" in line):
            catch_up.failed(line["machine"] or "")

    catch_up.on_unresponsive, catch_up.on_responsive = unresponsive, responsive
    catch_up.unanswered = recorder.has_unanswered
    trace.add_sink(failed)


def follow_faults(faults: Faults, scheduler: Scheduler, catch_up: CatchUp) -> None:
    """Let a virtual clock stop where the period of a fault ends, and wait again for clients that
    have got errors until then."""

    async def ended() -> None:
        changed()

    def changed() -> None:
        scheduler.alarm("faults/period", faults.next_end, ended)
        catch_up.try_again()

    faults.on_change(changed)


def make_trace(
    config: Config, observer: Observer | None, stack: AsyncExitStack
) -> EventTrace | None:
    """Return a trace for the recording, the observer or both; None if there is neither."""
    if config.record is not None:
        trace = FileEventTrace(config.record, config.rules)
        stack.callback(trace.close)
        if observer is not None:
            trace.add_sink(observer.add)
        return trace
    return None if observer is None else EventTrace(observer.add, config.rules)


def guest_urls(config: Config, sockets: Sequence[socket.socket]) -> list[str]:
    """Return the URL of each address where guests ask, with the real port in place of port 0. If
    one address needs several sockets (loopback without its device), they share a port."""
    per_address = len(sockets) // len(config.guest_addresses)
    hosts = [address.host for address in config.guest_addresses]
    first_sockets = sockets[::per_address]
    return [url(host, listener) for host, listener in zip(hosts, first_sockets, strict=True)]


def has_machine_ports(config: Config) -> bool:
    """Return whether each machine has a port of its own, in place of a loopback address."""
    if not config.whole_loopback or config.addresses is Addresses.LOOPBACK:
        return False
    return config.addresses is Addresses.PORTS or not has_many_loopback_addresses()


def metadata_sockets(config: Config, loopback: Sequence[str]) -> list[socket.socket]:
    """Return the sockets that were handed over or, if there are none, open them. With
    `whole_loopback` they cover all of loopback or, if the system cannot do that with one socket,
    the addresses in `loopback`."""
    if config.metadata_fds:
        return [adopt(fd) for fd in config.metadata_fds]
    with all_or_none() as opened:
        for address in config.guest_addresses:
            if config.whole_loopback and not has_machine_ports(config):
                opened += open_loopback(address.port, loopback)
            else:
                opened.append(open_socket(address))
    return opened


def control_socket(config: Config) -> socket.socket:
    assert config.control is not None
    return (
        adopt(config.control_fd) if config.control_fd is not None else open_socket(config.control)
    )


async def warn_of_database(config: Config) -> None:
    """Log what an operator should know about the database. Its replication, which may change, is a
    matter of the leadership."""
    if not isinstance(config.state, str):
        return
    try:
        warnings = await asyncio.to_thread(stored_state(config.state).warnings, managed=True)
    except StoreUnusable:
        return  # which the leadership reports
    for text in warnings:
        log.warning("the database of the state is not as it should be", why=text)


def warn_of_closed_windows(store: Store) -> None:
    """Log which stored windows never open, because this computer does not know their time zone."""
    rollouts, configurations = store.registry.rollouts, store.registry.configurations
    for owner, window in stored_windows(
        store.groups.values(), rollouts.values(), configurations.values()
    ):
        if not window.zone_known:
            log.warning(
                "a window stays closed, because this computer does not know its time zone; install"
                " current time zone data and restart the service, or change the window",
                window=window.text,
                of=owner,
            )


async def apply_fleet(config: Config, fleet_apply: FleetApply, machines: MachineIndex) -> None:
    """Make the inventory what the fleet file says. Machines it no longer names are removed."""
    if config.fleet is None:
        if not any(machines.groups()):
            log.info("there are no machines yet; add some with forewarn apply FLEET.yaml")
        return
    outcome = await fleet_apply.fleet(
        config.fleet, by="start", force=config.force_fleet, serving=False
    )
    if isinstance(outcome, Refused):
        log.warning(
            "the fleet file is not applied, the inventory stays as it was",
            why=outcome.message,
            run=f"forewarn apply {config.fleet_file or 'FLEET.yaml'} --plan",
        )
    elif removed := outcome.machines.removed + outcome.hosts.removed:
        log.warning(
            "machines or hosts that the fleet file no longer names were removed", removed=removed
        )
