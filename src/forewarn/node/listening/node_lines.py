"""The lines between control and the nodes on hosts: TLS, with certificates of both sides that one
private authority has signed. That of a node names its host."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forewarn.metadata.publishing.host_nodes import HostNodes
from forewarn.metadata.publishing.remote_upstream import Dial
from forewarn.node.config import Address, NodeLines, Tls
from forewarn.node.listening.sockets import open_socket
from forewarn.support.logs import logger

NODE_URI = "forewarn:node:"  # and the host's name, in the certificate of its node
HANDSHAKE_TIMEOUT = 5.0  # seconds

log = logger("forewarn")


class OpenNodeLines:
    def __init__(self, server: asyncio.Server, nodes: HostNodes, address: Address) -> None:
        self._server = server
        self._nodes = nodes
        self.address = address

    async def close(self) -> None:
        self._server.close()
        self._nodes.close()


async def open_node_lines(lines: NodeLines, nodes: HostNodes) -> OpenNodeLines:
    """Accept nodes. Raises CannotListen."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, lines.tls, lines.authority)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = host_of(writer.get_extra_info("peercert") or {})
        if not host:
            log.warning(
                "a node was refused: its certificate names no host",
                peer=str(writer.get_extra_info("peername")),
                wanted=f"URI:{NODE_URI}HOST",
            )
            writer.transport.abort()
            return
        with contextlib.suppress(asyncio.CancelledError):
            await nodes.serve(reader, writer, host)

    listener = open_socket(lines.address)
    server = await asyncio.start_server(
        connected, sock=listener, ssl=context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
    )
    host, port = listener.getsockname()[:2]
    return OpenNodeLines(server, nodes, Address(host, port))


def make_tls_dial(address: Address, tls: Tls, authority: Path) -> Dial:
    """Return the function with which a node connects to control."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, tls, authority)

    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            return await asyncio.open_connection(address.host, address.port, ssl=context)

    return dial


def _context(protocol: Any, tls: Tls, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority)
    context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    return context


def host_of(certificate: Mapping[str, Any]) -> str:
    """Return the host that the certificate of a node names; empty if it names none, or several."""
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    hosts = [uri.removeprefix(NODE_URI) for uri in uris if uri.startswith(NODE_URI)]
    return hosts[0] if len(hosts) == 1 else ""
