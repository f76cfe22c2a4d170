"""Nodes of hosts that come and go, as the lines to them would report it."""

from __future__ import annotations

from forewarn.testing import Service


def join(service: Service, *hosts: str) -> None:
    """The nodes of these hosts join: for the first time, or again."""
    node = service._session.node

    async def work() -> None:
        for host in hosts:
            assert await node.hosts.node_joined(host) is None
            node.unreachable_hosts.joined(host, node.writer.now().at)

    service._session.run(work())
    service._session.settle()


def cut_off(service: Service, *hosts: str) -> None:
    """The nodes of these hosts, which have joined before, are unreachable."""
    join(service, *hosts)
    node = service._session.node

    async def work() -> None:
        for host in hosts:
            node.unreachable_hosts.cut_off(host, node.writer.now().at)

    service._session.run(work())
    service._session.settle()
