"""`forewarn node join`: whom the token is sent to, and what is written."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forewarn.metadata.publishing.messages import (
    AskAuthority,
    AuthorityAnswer,
    FromNewHost,
    Join,
)
from forewarn.node import Config, Node
from forewarn.node import join as joining
from forewarn.node.config import Address, NodeConnections, Tls
from forewarn.node.join import CannotJoin, Files, Joined, Token, ask, check, with_settings
from forewarn.service.access.authority import CERTIFICATE, Authority, create_authority
from forewarn.service.fleet.read import parse
from forewarn.service.platform.enrollment import CreatedEnrollment, NewEnrollment
from forewarn.support.message_stream import BrokenConnection, decoder, frame
from helpers.certificates import Authority as OtherAuthority

FLEET = "hosts: [h1]\ngroups: [{name: web, kind: standalone, machines: [{name: web_0, host: h1}]}]"
HERE = Address("127.0.0.1", 0)


@asynccontextmanager
async def control(directory: Path) -> AsyncIterator[Node]:
    """A service that keeps an authority."""
    keeps = directory / "authority"
    create_authority(keeps)
    lines = NodeConnections(HERE, None, keeps / CERTIFICATE, keeps)
    async with Node(Config(fleet=parse(FLEET), nodes=lines)) as node:
        yield node


async def new_token(node: Node) -> Token:
    created = await node.enrollments.create(NewEnrollment(host="h1"), "alice")
    assert isinstance(created, CreatedEnrollment)
    return Token.parse(created.token)


class Impostor:
    """Listens in the place of control, with a certificate of another authority."""

    def __init__(self, directory: Path, shows: str) -> None:
        self.received: list[FromNewHost] = []
        self._shows = shows
        pair: Tls = OtherAuthority(directory, "impostor").issue("127.0.0.1")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.certificate, pair.key)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Address]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        async with server:
            yield Address(*server.sockets[0].getsockname()[:2])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            length = int.from_bytes(await reader.readexactly(4), "big")
            self.received.append(decoder(FromNewHost)(await reader.readexactly(length)))
            writer.write(frame(AuthorityAnswer(self._shows)))
            await writer.drain()
        writer.close()


@pytest.mark.parametrize("relayed", [True, False], ids=["genuine authority", "its own"])
def test_the_token_is_not_sent_to_whom_its_authority_does_not_vouch_for(
    tmp_path: Path, relayed: bool
) -> None:
    async def play() -> None:
        authority = create_authority(tmp_path / "authority")
        other = (create_authority(tmp_path / "other")).pem
        impostor = Impostor(tmp_path, authority.pem if relayed else other)
        token = Token.parse(f"fw_00000000_{'A' * 43}.{authority.fingerprint}")
        async with impostor.listening() as address:
            with pytest.raises(CannotJoin, match="The token was not sent"):
                await ask([address], token, "")
        assert impostor.received == [AskAuthority()]

    asyncio.run(play())


def test_control_that_does_not_enroll_hosts_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "TRY_FOR", 0.0)  # one round

    async def play() -> None:
        authority = OtherAuthority(tmp_path)
        lines = NodeConnections(HERE, authority.issue("127.0.0.1"), authority.path)
        async with Node(Config(fleet=parse(FLEET), nodes=lines)) as node:
            assert node.nodes_address is not None
            with pytest.raises(CannotJoin, match="no control node enrolls this host"):
                await ask([node.nodes_address], Token("fw_", "0" * 64), "")

    asyncio.run(play())


def test_an_answer_that_was_lost_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, lost = joining._exchange, [True]

    async def losing(
        address: Address, context: ssl.SSLContext, message: AskAuthority | Join
    ) -> Any:
        answer = await exchange(address, context, message)
        if isinstance(message, Join) and lost.pop():
            lost.append(False)
            raise BrokenConnection("the other process has closed the connection")
        return answer

    monkeypatch.setattr(joining, "_exchange", losing)

    async def play() -> None:
        async with control(tmp_path) as node:
            assert node.nodes_address is not None
            joined = await ask([node.nodes_address], await new_token(node), "")
            assert joined.issued.host == "h1"
            check(joined, Files(tmp_path / "node.toml", tmp_path))

    asyncio.run(play())


def test_what_is_written_can_be_read_by_the_node_alone(tmp_path: Path) -> None:
    async def play() -> Joined:
        async with control(tmp_path) as node:
            assert node.nodes_address is not None
            return await ask([node.nodes_address], await new_token(node), "h1")

    joined = asyncio.run(play())
    (tmp_path / "etc").mkdir()
    (tmp_path / "node").mkdir()
    files = Files(tmp_path / "etc/node.toml", tmp_path / "node")
    assert files.problem() == ""
    files.write(joined)
    assert files.tls.key.stat().st_mode & 0o777 == 0o600
    written = tomllib.loads(files.config.read_text())
    assert written["host"] == "h1"
    assert written["key"] == str(files.tls.key)
    assert files.authority.read_text() == Authority(tmp_path / "authority").trusted
    assert sorted(path.name for path in files.directory.iterdir()) == [
        *("node.key", "node.pem", "nodes-authority.pem")
    ]


def test_nothing_is_asked_for_that_could_not_be_written(tmp_path: Path) -> None:
    assert "does not exist" in Files(tmp_path / "node.toml", tmp_path / "none").problem()
    assert "does not exist" in Files(tmp_path / "none/node.toml", tmp_path).problem()


@pytest.mark.parametrize(
    "text", ["", "garbage", f"fw_00000000_{'A' * 43}", f"fw_00000000_{'A' * 43}.abc", ".", "fw_."]
)
def test_half_a_token_is_refused(text: str) -> None:
    with pytest.raises(CannotJoin):
        Token.parse(text)


SETTINGS: dict[str, str | list[str]] = {"host": "h1", "control": ["192.0.2.1:8171"]}


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# only a comment\n",
        'log = "json"\n',
        'control = "old"\nlog = "json"\n',
        'log = "json"\ncontrol = [\n  "a", # first\n  "b",\n]\nthrottle = 3\n',
        'host = "old"\n\ncontrol = ["a"]\n',
        "#host = ''\nmetadata = ['127.0.0.1:1']\n",
    ],
)
def test_settings_are_replaced_where_they_are_and_all_else_stays(before: str) -> None:
    after = with_settings(before, SETTINGS)
    assert tomllib.loads(after) == {**tomllib.loads(before), **SETTINGS}
    kept: Callable[[str], list[str]] = lambda text: [  # noqa: E731
        line for line in text.splitlines() if line.startswith("#")
    ]
    assert kept(after) == kept(before)
    assert with_settings(after, SETTINGS) == after
