"""Lines between control and nodes: whose certificates are accepted, and how they are replaced."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from forewarn.core import Refused
from forewarn.metadata.publishing.messages import (
    NODE_PROTOCOLS,
    NodeHello,
    Unwelcome,
    Welcome,
)
from forewarn.node import Node
from forewarn.node.config import Address, Tls
from forewarn.node.listening import node_connections, tls
from forewarn.node.listening.certificates import examine
from forewarn.node.listening.node_connections import NodeListener, host_of, make_tls_dial
from forewarn.node.listening.tls import Certificates, CertificateUnusable
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.message_stream import BrokenConnection, frame
from helpers.certificates import Authority
from helpers.host_nodes import PATIENCE, Control
from helpers.waiting import until_async

HELLO = NodeHello(
    protocols=NODE_PROTOCOLS, version="1", host="h1", instance="by hand", serving=False
)


def test_a_certificate_of_another_authority_or_a_wrong_file_is_an_error_at_the_start(
    tmp_path: Path,
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair = authority.issue("127.0.0.1")
    assert Certificates(pair, authority.path).expires > 0
    with pytest.raises(CertificateUnusable, match=r"not issued by .*other.pem"):
        Certificates(pair, other.path)
    with pytest.raises(CertificateUnusable, match=f"gone.pem: {os.strerror(errno.ENOENT)}"):
        Certificates(pair, tmp_path / "gone.pem")
    with pytest.raises(CertificateUnusable, match="no certificate"):
        Certificates(pair, pair.key)
    node = authority.issue("forewarn:node:h1")
    assert examine(node.certificate, node.key, authority.path, of_client=True).names == (
        "forewarn:node:h1",
    )


def test_the_host_of_a_certificate_is_the_only_one_that_it_names() -> None:
    def names(*uris: str) -> str:
        return host_of({"subjectAltName": [("DNS", "x"), *(("URI", uri) for uri in uris)]})

    assert names("forewarn:node:h1", "https://example.net") == "h1"
    assert names("forewarn:node:h1", "forewarn:node:h2") == names() == ""


def test_new_connections_use_the_certificate_that_has_replaced_the_old_one(tmp_path: Path) -> None:
    control = Control(tmp_path)
    assert control.config.nodes is not None
    replaced = control.config.nodes.tls
    assert replaced is not None
    pair = control.authority.issue("forewarn:node:h1")

    async def play() -> None:
        async with control() as node:
            before = await _serial(node, pair, control.authority)
            assert node.node_certificates is not None
            control.authority.issue("127.0.0.1", into=replaced)
            node.node_certificates.refresh()
            async with asyncio.timeout(PATIENCE):
                while (after := await _serial(node, pair, control.authority)) == before:
                    pass
            replaced.certificate.write_text("nonsense")
            node.node_certificates.refresh()
            assert await _serial(node, pair, control.authority) == after  # the last that works

    asyncio.run(play())


def test_a_node_waits_while_others_are_accepted_unless_it_has_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_connections, "MAX_HANDSHAKES", 1)
    monkeypatch.setattr(node_connections, "HANDSHAKE_TIMEOUT", 0.2)
    monkeypatch.setattr(LogThrottle, "record", lambda _: 1)  # log every refusal
    control = Control(tmp_path)
    pair = control.authority.issue("forewarn:node:h1")
    own = Certificates(pair, control.authority.path, of_client=True)

    async def play() -> None:
        async with control() as node, asyncio.timeout(PATIENCE):
            assert node.nodes_address is not None
            address = node.nodes_address.host, node.nodes_address.port
            _, silent = await asyncio.open_connection(*address)
            await until_async(lambda: "a connection to a node" in map(_name, asyncio.all_tasks()))
            await guard.pause(0)  # which has begun the handshake
            monkeypatch.setattr(node_connections, "HANDSHAKE_TIMEOUT", PATIENCE)  # of the others
            _, gone = await asyncio.open_connection(*address)
            gone.close()
            _, line = await asyncio.open_connection(*address, ssl=own.context)
            for writer in (silent, line):
                writer.close()

    with capture_logs() as logs:
        asyncio.run(play())
    refused = [entry["why"] for entry in logs if entry["event"] == "a node was refused"]
    assert len(refused) == 1  # the silent one
    assert "handshake" in refused[0]


def _name(task: asyncio.Task[Any]) -> str:
    return task.get_name()


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_comes_while_the_server_stops_is_closed(
    tmp_path: Path, turns: int
) -> None:
    nodes: Any = SimpleNamespace(enrollments=None)
    own = Certificates(Authority(tmp_path).issue("127.0.0.1"))

    async def play() -> None:
        listener = NodeListener(socket.create_server(("127.0.0.1", 0)), nodes, own)
        address, tasks = listener.address, guard.Tasks()
        assert address is not None
        listener.accept(tasks)
        with socket.create_connection((address.host, address.port)):
            for _ in range(turns):
                await guard.pause(0)
            listener.close()
            await tasks.end()

    asyncio.run(play())  # an accepted connection that nobody has closed is a warning


@pytest.mark.parametrize("names", [("forewarn:node:h2",), ("forewarn:node:h2", "c2.example.net")])
def test_the_certificate_of_another_node_is_not_that_of_control(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    authority = Authority(tmp_path)
    stolen = authority.issue(*names, common_name="localhost")
    own = Certificates(authority.issue("forewarn:node:h1"), authority.path, of_client=True)

    async def play() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(stolen.certificate, stolen.key)
        impostor = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
        async with impostor:
            port = impostor.sockets[0].getsockname()[1]
            with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
                await make_tls_dial(Address("localhost", port), own)()

    asyncio.run(play())


def test_unknown_callers_at_the_address_for_nodes_get_no_answer(tmp_path: Path) -> None:
    control, other = Control(tmp_path), Authority(tmp_path, "other")
    foreign = other.issue("forewarn:node:h1")
    nameless = control.authority.issue("h1.example.net")
    expired = control.authority.issue("forewarn:node:h1", until=datetime(2025, 1, 1, tzinfo=UTC))

    async def says(address: Address, pair: Tls | None) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(control.authority.path)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        try:
            writer.write(frame(HELLO))
            return await reader.read(1)
        except OSError:
            return b""  # that it is refused may be noticed only now
        finally:
            writer.transport.abort()

    async def play() -> None:
        async with control() as node:
            assert node.nodes_address is not None
            for pair in (None, foreign, nameless, expired):
                assert await says(node.nodes_address, pair) == b""
            assert not any(host.node for host in node.store.registry.hosts.values())

    asyncio.run(play())


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_a_resumed_session_needs_a_certificate_that_is_still_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loops: str
) -> None:
    control = Control(tmp_path)
    pair = control.authority.issue("forewarn:node:h1", until=datetime(2099, 1, 1, tzinfo=UTC))
    own = Certificates(pair, control.authority.path, of_client=True)

    async def greeted(node: Node) -> tuple[bool, type | None]:
        """Return whether a new line resumes the session, and what its hello is answered with."""
        assert node.nodes_address is not None
        stream = await make_tls_dial(node.nodes_address, own)()
        stream.send(HELLO)
        try:
            answer = type(await stream.receive())
        except BrokenConnection:
            answer = None
        reused = stream.transport.get_extra_info("ssl_object").session_reused
        stream.cut()
        return reused, answer

    async def play() -> None:
        async with control() as node, asyncio.timeout(PATIENCE):
            assert await greeted(node) == (False, Welcome)
            assert await greeted(node) == (True, Welcome)
            control.authority.issue("forewarn:node:h1", into=pair)
            assert own.reload() == ""
            assert await greeted(node) == (False, Welcome)  # with the new certificate
            assert await greeted(node) == (True, Welcome)
            with monkeypatch.context() as later:
                later.setattr(node_connections, "has_expired", lambda _: True)
                assert await greeted(node) == (True, None)
            assert not isinstance(await node.hosts.revoke("h1", "test"), Refused)
            assert await greeted(node) == (True, Unwelcome)
        async with control() as node:
            assert await greeted(node) == (False, Unwelcome)  # another process, and revoked

    pytest.importorskip(loops).run(play())


def test_no_session_is_resumed_with_a_server_whose_certificate_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(tmp_path)
    own = Certificates(
        control.authority.issue("forewarn:node:h1"), control.authority.path, of_client=True
    )

    async def reused(node: Node) -> bool:
        assert node.nodes_address is not None
        stream = await make_tls_dial(node.nodes_address, own)()
        stream.send(HELLO)
        await stream.receive()
        stream.cut()
        return bool(stream.transport.get_extra_info("ssl_object").session_reused)

    async def play() -> None:
        async with control() as node, asyncio.timeout(PATIENCE):
            assert [await reused(node), await reused(node)] == [False, True]
            monkeypatch.setattr(tls, "has_expired", lambda _: True)
            assert not await reused(node)

    asyncio.run(play())


def test_a_certificate_has_expired_when_its_time_is_over() -> None:
    assert tls.has_expired({"notAfter": "Jan  1 00:00:00 2025 GMT"})
    assert not tls.has_expired({"notAfter": "Jan  1 00:00:00 2120 GMT"})


async def _serial(node: Node, pair: Tls, authority: Authority) -> object:
    assert node.nodes_address is not None
    dial = make_tls_dial(node.nodes_address, Certificates(pair, authority.path, of_client=True))
    stream = await dial()
    certificate = stream.transport.get_extra_info("peercert")
    stream.close()
    return certificate["serialNumber"]
