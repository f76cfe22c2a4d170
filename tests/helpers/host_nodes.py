"""Control with nodes on hosts, over TLS on loopback, in one process; and lines that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from forewarn.core import Durations
from forewarn.metadata.publishing.journal import Journal
from forewarn.metadata.publishing.messages import ToNode
from forewarn.metadata.publishing.node_upstream import NodeUpstream
from forewarn.metadata.upstream import GroupNews
from forewarn.node import Config, Node
from forewarn.node.config import Address, NodeConnections, Tls
from forewarn.node.listening.node_connections import make_tls_dial
from forewarn.node.listening.tls import Certificates
from forewarn.service.engine.clock import FollowedClock
from forewarn.service.fleet.read import parse
from forewarn.support import guard
from forewarn.support.message_stream import MessageStream
from helpers.certificates import Authority
from helpers.waiting import LIMIT

PATIENCE = LIMIT
FLEET = """
hosts: [h1, h2, h3]
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, address: 10.0.0.1, host: h1}
      - {name: web_1, address: 10.0.0.2, host: h2}
  - name: db
    kind: standalone
    machines: [{name: db_0, address: 10.0.0.3, host: h2}]
"""


class Control:
    """A service with lines for nodes, which can be started again on what it has stored."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.node: Node | None = None
        self.cut = False  # no line can be opened
        self._certificates: dict[str, Certificates] = {}  # by host
        address = Address("127.0.0.1", 0)
        self.config = Config(
            fleet=parse(FLEET),
            state=directory / "state.db",
            rules=Durations(silence=None),
            nodes=NodeConnections(address, self.authority.issue("127.0.0.1"), self.authority.path),
        )

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Node]:
        async with Node(self.config) as node:
            self.node = node
            try:
                yield node
            finally:
                self.node = None

    async def dial(self, host: str) -> MessageStream[ToNode]:
        """Connect with the certificate of a host's node."""
        return await make_tls_dial(self._address(), self._certificates_of(host))()

    async def open(self, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The same, for bytes."""
        address, certificates = self._address(), self._certificates_of(host)
        return await asyncio.open_connection(address.host, address.port, ssl=certificates.context)

    def _address(self) -> Address:
        if self.cut or self.node is None or self.node.nodes_address is None:
            raise OSError("control cannot be reached")
        return self.node.nodes_address

    def _certificates_of(self, host: str) -> Certificates:
        pair = Tls(self.directory / f"{host}.pem", self.directory / f"{host}.key")
        if not pair.key.exists():
            self.authority.issue(f"forewarn:node:{host}", into=pair)
        certificates = self._certificates.get(host)
        if certificates is None:
            certificates = Certificates(pair, self.authority.path, of_client=True)
            self._certificates[host] = certificates
        return certificates


class HostNode:
    """What a node shows, without an endpoint."""

    def __init__(self, host: str, upstream: NodeUpstream) -> None:
        self.host = host
        self.upstream = upstream
        self.of: dict[str, GroupNews] = {}
        self.disconnected: list[bool] = []
        upstream.attach(lambda news: self.of.update({news.view.name: news}))
        upstream.on_disconnected = self.disconnected.append

    def machines(self, group: str) -> list[str]:
        return [machine.name for machine in self.of[group].machines]

    def events(self, group: str) -> list[tuple[str, str]] | None:
        """Return the events of a group and their statuses; None while nothing of it is shown."""
        view = self.of[group].view
        return [(e.id, e.status.value) for e in view.events] if view.enabled else None

    def cut(self) -> None:
        """Break its line."""
        if self.upstream._followed is not None:
            self.upstream._followed.cut()


@asynccontextmanager
async def host_node(
    control: Control, host: str, journal: Path | None = None
) -> AsyncIterator[HostNode]:
    directory = journal or control.directory / f"journal-{host}"
    directory.mkdir(exist_ok=True)
    kept = Journal(directory, host)
    upstream = NodeUpstream([lambda: control.dial(host)], host, FollowedClock(), kept)
    node = HostNode(host, upstream)
    tasks = guard.Tasks()
    try:
        await upstream.restore()
        tasks.start(upstream.run(), "line")
        tasks.start(upstream.report(), "reports")
        tasks.start(upstream.watch(), "promise")
        yield node
    finally:
        await tasks.end()
        kept.close()


async def until(says: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not says():
            await guard.pause(0.005)
