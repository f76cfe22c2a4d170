"""The keeper: the process that is an enclosure, for as long as whoever started it lives.

`python -m forewarn.testing.enclosure.keeper FD`, never started by people. Makes the namespaces,
surrounds them with the rest of the network, relays, and ends everything inside when its starter
lets go of the line between them, by closing it or by being killed.
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
    drop,
    opened_inside,
)
from forewarn.testing.enclosure.messages import Network, Order, Ready
from forewarn.testing.enclosure.relay import Relay

END_WITHIN = 2.0  # seconds after which those inside that were asked to end are killed
ENDPOINT = (METADATA_ADDRESS, METADATA_PORT)
BROUGHT_BY_PASTA = ("127.0.0.1", "::1")
ONLY_LOOPBACK = (
    "the program reaches 169.254.169.254 and what listens on this machine's loopback now,"
    " and nothing else"
)
INSTALL = "(for the rest of the network install passt or slirp4netns)"

Wanted = tuple[int, loopback.Place, loopback.Place]  # which kind of socket, where, and to where


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two for each connection
    with contextlib.suppress(ConnectionError):  # whoever wanted it is gone already
        _keep(line, msgspec.json.decode(line.recv(65536), type=Order))


def _keep(line: socket.socket, order: Order) -> None:
    try:
        anchor = drop()
    except NoNamespace as error:
        line.send(msgspec.json.encode(Ready(refused=diagnose.why(error.error))))
        return
    with contextlib.ExitStack() as ending:
        relay = Relay()
        _relay(relay, anchor, [(socket.SOCK_STREAM, ENDPOINT, order.target)])
        around, notes = _surround(order.network, anchor)
        if around is not None:
            ending.callback(around.end)
        elif order.network is Network.FULL:
            line.send(msgspec.json.encode(Ready(refused="; ".join(notes))))
            return
        if order.network is not Network.NONE:
            _relay_loopback(relay, anchor, by_pasta=around is not None and around.name == "pasta")
        _say_ready(line, anchor, _name(order.network, around), notes)
        relay.watch(line.fileno(), relay.stop)
        relay.run()
        relay.forget(line.fileno())
        _end_everything(relay, anchor)


def _say_ready(line: socket.socket, anchor: Anchor, network: str, notes: tuple[str, ...]) -> None:
    fds = [anchor.net]
    if anchor.user is not None and anchor.joins_user:
        fds.append(anchor.user)
    socket.send_fds(line, [msgspec.json.encode(Ready(network=network, notes=notes))], fds)


def _name(network: Network, around: uplink.Uplink | None) -> str:
    if around is not None:
        return around.name
    return "none" if network is Network.NONE else "loopback"


def _surround(network: Network, anchor: Anchor) -> tuple[uplink.Uplink | None, tuple[str, ...]]:
    """The rest of the network, or why there is none."""
    if network not in (Network.AUTO, Network.FULL):
        return None, ()
    notes = []
    for name in uplink.available():
        try:
            return uplink.surround(name, anchor), ()
        except (uplink.NoNetwork, OSError) as error:
            notes.append(f"{name} does not work here: {error}")
    if network is Network.FULL:
        return None, tuple(notes or [f"there is no network to be had {INSTALL}"])
    return None, (*notes, ONLY_LOOPBACK if notes else f"{ONLY_LOOPBACK} {INSTALL}")


def _relay(relay: Relay, anchor: Anchor, wanted: Sequence[Wanted]) -> None:
    kinds = [(kind, place) for kind, place, _ in wanted]
    for (kind, _, to), opened in zip(wanted, opened_inside(anchor, kinds), strict=True):
        if opened is not None:  # else something inside has it already
            (relay.tcp if kind == socket.SOCK_STREAM else relay.udp)(opened, to)


def _relay_loopback(relay: Relay, anchor: Anchor, *, by_pasta: bool) -> None:
    """What a program would miss on a loopback of its own: name servers, and whatever listens.
    pasta brings along what it can: of all loopback addresses, one of each family."""
    servers = loopback.name_servers()
    wanted: list[Wanted] = [(socket.SOCK_DGRAM, place, place) for place in servers]
    brought = BROUGHT_BY_PASTA if by_pasta else ()
    places = {*servers, *(place for place in loopback.listening() if place[0] not in brought)}
    wanted += [(socket.SOCK_STREAM, place, place) for place in sorted(places)]
    _relay(relay, anchor, wanted)


def _end_everything(relay: Relay, anchor: Anchor) -> None:
    """Whoever is still inside is asked to end, and then made to. Relaying goes on meanwhile, and
    may for ever; so it is the clock that says when asking was not enough."""
    if not _processes_in(anchor):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = _countdown(guard.monotonic, END_WITHIN)
        while (inside := _processes_in(anchor)) and _ended(relay, inside, number, left):
            pass  # there may be new ones


def _countdown(now: Callable[[], float], seconds: float) -> Callable[[], float]:
    until = now() + seconds
    return lambda: until - now()


def _ended(
    relay: Relay, pidfds: list[int], number: signal.Signals, left: Callable[[], float]
) -> bool:
    """Send a signal, and wait until all have ended or the time is up."""
    alive = set(pidfds)

    def one_less(fd: int) -> None:
        relay.forget(fd)
        os.close(fd)
        alive.discard(fd)
        if not alive:
            relay.stop()

    for fd in pidfds:
        relay.watch(fd, lambda fd=fd: one_less(fd))  # type: ignore[misc]
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
    done = relay.run(left)
    for fd in alive:
        relay.forget(fd)
        os.close(fd)
    return done


def _processes_in(anchor: Anchor) -> list[int]:
    """A pidfd for each process inside the network namespace, but for the anchor."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != anchor.pid:
            with contextlib.suppress(OSError):  # it may end while we look
                if (entry / "ns/net").stat().st_ino == anchor.inode:
                    found.append(os.pidfd_open(int(entry.name)))
    return found


if __name__ == "__main__":
    main()
