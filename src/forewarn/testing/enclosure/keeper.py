"""The keeper: the process that runs an enclosure, as long as its parent process lives.

`python -m forewarn.testing.enclosure.keeper FD`, started by `Enclosure` only. It creates the
namespaces, connects them to the rest of the network, relays, and terminates everything inside when
the parent closes the socket between them, or is killed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from forewarn.support import guard
from forewarn.testing.enclosure import diagnose, loopback, uplink
from forewarn.testing.enclosure.anchor import (
    METADATA_ADDRESS,
    METADATA_PORT,
    Anchor,
    NoNamespace,
    create_anchor,
    open_inside,
)
from forewarn.testing.enclosure.messages import Network, Ready, Request
from forewarn.testing.enclosure.relay import Relay

TERMINATE_TIMEOUT = 2.0  # seconds between SIGTERM and SIGKILL
ENDPOINT = (METADATA_ADDRESS, METADATA_PORT)
RELAYED_BY_PASTA = ("127.0.0.1", "::1")
ONLY_LOOPBACK = (
    "the program only reaches 169.254.169.254 and what listens on this machine's loopback now"
)
INSTALL = "(install passt or slirp4netns for the rest of the network)"

RelaySpec = tuple[int, loopback.Address, loopback.Address]  # kind of socket, address inside, target


def main() -> None:
    parent = socket.socket(fileno=int(sys.argv[1]))
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # every connection needs two
    with contextlib.suppress(ConnectionError):  # the parent has ended already
        _run(parent, msgspec.json.decode(parent.recv(65536), type=Request))


def _run(parent: socket.socket, request: Request) -> None:
    try:
        anchor = create_anchor()
    except NoNamespace as error:
        parent.send(msgspec.json.encode(Ready(refused=diagnose.explain(error.error))))
        return
    with contextlib.ExitStack() as cleanup:
        relay = Relay()
        targets = ((ENDPOINT, request.target), *request.relays)
        _relay(relay, anchor, [(socket.SOCK_STREAM, *target) for target in targets])
        network, notes = _connect_uplink(request.network, anchor)
        if network is not None:
            cleanup.callback(network.end)
        elif request.network is Network.FULL:
            parent.send(msgspec.json.encode(Ready(refused="; ".join(notes))))
            return
        if request.network is not Network.NONE:
            _relay_loopback(relay, anchor, by_pasta=network is not None and network.name == "pasta")
        _send_ready(parent, anchor, _network_name(request.network, network), notes)
        relay.watch(parent.fileno(), relay.stop)
        relay.run()
        relay.forget(parent.fileno())
        _terminate_all(relay, anchor)


def _send_ready(
    parent: socket.socket, anchor: Anchor, network: str, notes: tuple[str, ...]
) -> None:
    fds = [anchor.net]
    if anchor.user is not None and anchor.joins_user:
        fds.append(anchor.user)
    socket.send_fds(parent, [msgspec.json.encode(Ready(network=network, notes=notes))], fds)


def _network_name(network: Network, connected: uplink.Uplink | None) -> str:
    if connected is not None:
        return connected.name
    return "none" if network is Network.NONE else "loopback"


def _connect_uplink(
    network: Network, anchor: Anchor
) -> tuple[uplink.Uplink | None, tuple[str, ...]]:
    """Connect the namespace to the rest of the network; return notes if that is not possible."""
    if network not in (Network.AUTO, Network.FULL):
        return None, ()
    notes = []
    for name in uplink.available():
        try:
            return uplink.connect(name, anchor), ()
        except (uplink.NoNetwork, OSError) as error:
            notes.append(f"{name} does not work here: {error}")
    if network is Network.FULL:
        return None, tuple(notes or [f"no program for that is installed {INSTALL}"])
    return None, (*notes, ONLY_LOOPBACK if notes else f"{ONLY_LOOPBACK} {INSTALL}")


def _relay(relay: Relay, anchor: Anchor, specs: Sequence[RelaySpec]) -> None:
    kinds = [(kind, address) for kind, address, _ in specs]
    for (kind, _, target), opened in zip(specs, open_inside(anchor, kinds), strict=True):
        if opened is not None:  # else it is in use inside
            (relay.tcp if kind == socket.SOCK_STREAM else relay.udp)(opened, target)


def _relay_loopback(relay: Relay, anchor: Anchor, *, by_pasta: bool) -> None:
    """Relay what a program would miss on a loopback of its own: name servers and listening ports.

    pasta relays one loopback address of each family itself.
    """
    name_servers = loopback.name_servers()
    specs: list[RelaySpec] = [(socket.SOCK_DGRAM, address, address) for address in name_servers]
    relayed_by_pasta = RELAYED_BY_PASTA if by_pasta else ()
    addresses = {
        *name_servers,
        *(address for address in loopback.listening() if address[0] not in relayed_by_pasta),
    }
    specs += [(socket.SOCK_STREAM, address, address) for address in sorted(addresses)]
    _relay(relay, anchor, specs)


def _terminate_all(relay: Relay, anchor: Anchor) -> None:
    """Send SIGTERM to all processes inside, and SIGKILL to those that have not ended in time.

    Relaying continues meanwhile, so that they can finish their requests.
    """
    if not _processes_in(anchor):
        return
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        time_left = _countdown(guard.monotonic, TERMINATE_TIMEOUT)
        while (pidfds := _processes_in(anchor)) and _signal_and_wait(
            relay, pidfds, signal_number, time_left
        ):
            pass  # repeat: there may be new processes


def _countdown(now: Callable[[], float], seconds: float) -> Callable[[], float]:
    until = now() + seconds
    return lambda: until - now()


def _signal_and_wait(
    relay: Relay, pidfds: list[int], signal_number: signal.Signals, time_left: Callable[[], float]
) -> bool:
    """Send a signal; return whether all have ended before the time was up."""
    alive = set(pidfds)

    def on_exit(fd: int) -> None:
        relay.forget(fd)
        os.close(fd)
        alive.discard(fd)
        if not alive:
            relay.stop()

    for fd in pidfds:
        relay.watch(fd, lambda fd=fd: on_exit(fd))  # type: ignore[misc]
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal_number)
    done = relay.run(time_left)
    for fd in alive:
        relay.forget(fd)
        os.close(fd)
    return done


def _processes_in(anchor: Anchor) -> list[int]:
    """Return a pidfd for each process in the network namespace except the anchor."""
    pidfds = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != anchor.pid:
            with contextlib.suppress(OSError):  # it may end meanwhile
                if (entry / "ns/net").stat().st_ino == anchor.inode:
                    pidfds.append(os.pidfd_open(int(entry.name)))
    return pidfds


if __name__ == "__main__":
    main()
