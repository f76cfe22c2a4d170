"""The connections between control and the nodes on hosts: TLS, with certificates of both sides that
one private authority has signed, of which that of a node names its host; or, on control's own host,
a UNIX socket that only the user of the node can open."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forewarn.drivers.hosts.connections import DriverConnections
from forewarn.drivers.hosts.messages import DRIVER_URI, DriverRefused, FromDriver
from forewarn.metadata.publishing.host_nodes import HostNodes
from forewarn.metadata.publishing.messages import (
    FromNewHost,
    ToControl,
    ToNode,
)
from forewarn.metadata.publishing.new_hosts import NewHosts
from forewarn.node.config import Address, Config
from forewarn.node.listening.socket_activation import adopt
from forewarn.node.listening.sockets import open_socket
from forewarn.node.listening.tls import Certificates, has_expired
from forewarn.node.listening.tls_transport import TlsTransport, accept_tls
from forewarn.node.listening.unix_socket import open_unix_socket
from forewarn.service.access.authority import NODE_URI
from forewarn.support import guard
from forewarn.support.control_follower import Dial
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.message_stream import MessageStream

HANDSHAKE_TIMEOUT = 5.0  # seconds
MAX_HANDSHAKES = 256  # at a time; connections beyond that wait to be accepted
ACCEPT_AGAIN = 1.0  # seconds after a node could not be accepted

_POLLRDHUP = getattr(select, "POLLRDHUP", 0)  # the other side has closed; only Linux knows

EXPIRED = "its certificate has expired"
NO_HANDSHAKE = f"it has not completed the TLS handshake within {HANDSHAKE_TIMEOUT:g} s"
HUNG_UP = "it has closed the connection; its log says why"

log = logger("forewarn")


class NodeListener:
    """A socket for nodes. Each connection has the certificate that is in use when it is opened;
    without certificates, whoever can open the socket is the node of `host`."""

    def __init__(
        self,
        listener: socket.socket,
        nodes: HostNodes,
        certificates: Certificates | None = None,
        host: str = "",
        drivers: DriverConnections | None = None,
    ) -> None:
        self._drivers = drivers
        self._certificates = certificates
        self._host = host
        self._nodes = nodes
        self._new_hosts = NewHosts(nodes.enrollments)
        self._refused = LogThrottle()
        self._loop = asyncio.get_running_loop()
        self._handshakes = 0  # that have begun and are not over
        self._socket = listener
        self._socket.setblocking(False)

    @property
    def address(self) -> Address | None:
        """The address that nodes on other hosts connect to; None if it is a UNIX socket."""
        if self._certificates is None:
            return None
        host, port = self._socket.getsockname()[:2]
        return Address(host, port)

    def accept(self, tasks: guard.Tasks) -> None:
        """Accept nodes until it is closed. All of them may come at once, and a handshake takes
        milliseconds: whatever else is to be done gets its turn after each."""
        if self._socket.fileno() >= 0 and self._handshakes < MAX_HANDSHAKES:
            self._loop.add_reader(self._socket, self._accept, tasks)

    def _accept(self, tasks: guard.Tasks) -> None:
        try:
            connection, peer = self._socket.accept()  # no peer: a UNIX socket
        except BlockingIOError:
            return
        except OSError as error:  # no file can be opened
            log.error("a node could not be accepted", why=str(error))
            self._loop.remove_reader(self._socket)
            self._loop.call_later(ACCEPT_AGAIN, self.accept, tasks)
            return
        if _has_given_up(connection):
            connection.close()
            return
        connection.setblocking(False)
        self._handshakes += 1
        if self._handshakes >= MAX_HANDSHAKES:
            self._loop.remove_reader(self._socket)
        tasks.start(self._serve(connection, peer, tasks), "a connection to a node")

    async def _serve(
        self, connection: socket.socket, peer: tuple[Any, ...], tasks: guard.Tasks
    ) -> None:
        if self._certificates is None:
            await self._serve_local(connection, tasks)
            return
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                tls = await accept_tls(connection, self._certificates.context)
        except OSError as error:
            if self._refused.record():
                slow = isinstance(error, TimeoutError)
                why = getattr(error, "verify_message", "") or str(error)
                why = NO_HANDSHAKE if slow else why or HUNG_UP
                log.warning("a node was refused", peer=peer[0] if peer else "", why=why)
            return
        finally:
            self._handshakes -= 1
            self.accept(tasks)
        certificate, described = tls.getpeercert(binary_form=True), tls.getpeercert() or {}
        if certificate is None:  # which TLS allows only if hosts can be enrolled
            new_host: MessageStream[FromNewHost] = MessageStream(FromNewHost)
            TlsTransport(self._loop, tls, new_host)
            await self._new_hosts.serve(new_host, peer[0])
            return
        if drivers := names_in(described, DRIVER_URI):
            await self._serve_driver(tls, drivers, described, certificate, peer[0])
            return
        stream: MessageStream[ToControl] = MessageStream(ToControl)
        TlsTransport(self._loop, tls, stream)
        host = host_of(described)
        if has_expired(described):  # and the session was resumed
            log.warning("a node was refused", peer=peer[0], why=f"{host}: {EXPIRED}")
            stream.cut()
            return
        if not host:
            log.warning(
                "a node was refused: its certificate names no host",
                peer=peer[0],
                wanted=f"URI:{NODE_URI}HOST",
            )
            stream.cut()
            return
        del described  # a kilobyte
        await self._nodes.serve(stream, host, certificate)

    async def _serve_driver(
        self,
        tls: ssl.SSLSocket,
        hosts: Sequence[str],
        described: Mapping[str, Any],
        certificate: bytes,
        peer: str,
    ) -> None:
        """Serve the driver process of the hosts that a certificate names."""
        stream: MessageStream[FromDriver] = MessageStream(FromDriver)
        TlsTransport(self._loop, tls, stream)
        problem = EXPIRED if has_expired(described) else ""
        if host_of(described):  # whoever has taken over the one would have the other
            problem = "its certificate is for a node as well"
        if self._drivers is None:
            problem = 'this service has another driver than "hosts"'
        if problem or self._drivers is None:
            log.warning("a driver process was refused", peer=peer, hosts=hosts, why=problem)
            stream.send(DriverRefused(problem))
            stream.close()
            return
        await self._drivers.serve(stream, hosts, certificate)

    async def _serve_local(self, connection: socket.socket, tasks: guard.Tasks) -> None:
        """Serve the node on this host, whose socket nobody else can open."""
        stream: MessageStream[ToControl] = MessageStream(ToControl)
        try:
            await self._loop.connect_accepted_socket(lambda: stream, connection)
        finally:
            self._handshakes -= 1
            self.accept(tasks)
        await self._nodes.serve(stream, self._host)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()


def open_node_listeners(
    config: Config,
    certificates: Certificates | None,
    nodes: HostNodes,
    drivers: DriverConnections | None = None,
) -> Iterator[NodeListener]:
    """Open the socket for nodes on other hosts and that for the node on this host, as far as the
    configuration has them. Raises CannotListen."""
    if config.nodes is not None:
        yield NodeListener(open_socket(config.nodes.address), nodes, certificates, drivers=drivers)
    if (connection := config.local_node) is not None:
        fd = config.nodes_fd
        listener = open_unix_socket(connection.path, "nodes") if fd is None else adopt(fd)
        yield NodeListener(listener, nodes, host=connection.host)


def _has_given_up(connection: socket.socket) -> bool:
    """Return whether a node has not waited until it was accepted."""
    if not _POLLRDHUP:
        return False
    poll = select.poll()
    poll.register(connection, _POLLRDHUP)
    return bool(poll.poll(0))


def make_tls_dial(address: Address, certificates: Certificates, messages: Any = ToNode) -> Dial:
    """Return the function with which a node, or a driver process, connects to control, which sends
    these messages."""

    async def dial() -> MessageStream[Any]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            _, stream = await loop.create_connection(
                lambda: MessageStream[Any](messages),
                address.host,
                address.port,
                ssl=certificates.context,
            )
        return stream

    return dial


def make_unix_dial(path: Path) -> Dial:
    """Return the function with which a node connects to control on its own host."""

    async def dial() -> MessageStream[ToNode]:
        loop = asyncio.get_running_loop()
        try:
            _, stream = await loop.create_unix_connection(
                lambda: MessageStream[ToNode](ToNode), str(path)
            )
        except OSError as error:
            raise OSError(error.errno, f"{path}: {error.strerror or error}") from error
        return stream

    return dial


def host_of(certificate: Mapping[str, Any]) -> str:
    """Return the host that the certificate of a node names; empty if it names none, or several."""
    hosts = names_in(certificate, NODE_URI)
    return hosts[0] if len(hosts) == 1 else ""


def names_in(certificate: Mapping[str, Any], prefix: str) -> list[str]:
    """Return what follows a prefix in the URIs of a certificate."""
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    return [uri.removeprefix(prefix) for uri in uris if uri.startswith(prefix)]
