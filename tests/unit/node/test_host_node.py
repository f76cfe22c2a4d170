"""The node of a host: its guests, its journal, its pages and its recording, in one process."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from forewarn.cli.commands.node_rules import machines
from forewarn.core import EventType, Refused
from forewarn.drivers.port import Done, Task
from forewarn.node.config import Address, Config, HostNodeConfig, Tls
from forewarn.node.daemon.run_host_node import NodeReloader
from forewarn.node.host_node import HostNode, NodeUnusable
from forewarn.node.listening.sockets import CannotListen
from forewarn.node.listening.tls import Certificates, CertificateUnusable
from forewarn.node.settings.host_node import LoadedNodeSettings, load_node
from forewarn.service.fleet.read import parse
from forewarn.support import guard
from helpers.host_nodes import PATIENCE, Control, until

HERE = Address("127.0.0.1", 0)
ROUNDED = 0.001  # seconds by which two readings of two clocks may differ
FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, address: 127.0.0.1, host: h1}
      - {name: web_1, address: 10.0.0.2, host: h2}
"""


MACHINES = b'[{"name":"web_0","group":"web","addresses":["127.0.0.1"]}]'


class Nodes:
    """Control, and nodes that connect to it."""

    def __init__(self, directory: Path) -> None:
        self.control = Control(directory)
        self.control.config = msgspec.structs.replace(self.control.config, fleet=parse(FLEET))
        self.directory = directory

    def config(self, host: str = "h1", *, named: str = "", **more: Any) -> HostNodeConfig:
        node = self.control.node
        pair = Tls(self.directory / f"{host}.pem", self.directory / f"{host}.key")
        self.control.authority.issue(f"forewarn:node:{named or host}", into=pair)
        known = node.nodes_address if node is not None else None
        return HostNodeConfig(
            host=host,
            control=(known or Address("127.0.0.1", 9),),
            tls=pair,
            authority=self.control.authority.path,
            journal=self.directory / f"journal-{host}",
            status=HERE,
            endpoint=Config(metadata=HERE, **more),
        )

    def listen_again_at(self, address: Address | None) -> None:
        """Have control, when it is started again, listen where it does now."""
        assert address is not None
        assert self.control.config.nodes is not None
        lines = msgspec.structs.replace(self.control.config.nodes, address=address)
        self.control.config = msgspec.structs.replace(self.control.config, nodes=lines)

    @asynccontextmanager
    async def node(self, **more: Any) -> AsyncIterator[HostNode]:
        async with HostNode(self.config(**more)) as node:
            yield node


async def get(url: str) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        request = urllib.request.Request(url, headers={"Metadata": "true"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()

    return await asyncio.to_thread(ask)


async def poll(node: HostNode) -> tuple[int, Any]:
    return await get(f"{node.metadata_urls[0]}/metadata/scheduledevents?api-version=2020-07-01")


def _address(url: str) -> Address:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return Address(host, int(port))


def run(play: Callable[[Nodes], Any], directory: Path) -> None:
    asyncio.run(play(Nodes(directory)))


def test_guests_are_answered_also_while_control_is_away_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async def play(nodes: Nodes) -> None:
        trace = tmp_path / "node.jsonl"
        async with nodes.control() as control, nodes.node(record=trace) as node:
            await until(node.serving.is_set)
            await until(lambda: not node.upstream.disconnected)
            assert (await get(f"{node.status_url}/readyz"))[1] == (
                b'{"status":"ok","parts":{"guests":"ok"},"warnings":{}}'
            )
            status, document = await poll(node)
            assert (status, json.loads(document)["Events"]) == (200, [])
            line = control.hosts.node_of(control.store.registry.hosts["h1"])
            assert line is not None
            assert (line.lag, bool(line.version)) == (0, True)
            assert line.heard is not None
        async with nodes.node(record=trace) as node:
            await until(node.serving.is_set)
            assert await poll(node) == (200, document)
            status, body = await get(f"{node.status_url}/readyz")
            assert status == 200
            assert "not be reached" in json.loads(body)["warnings"]["control"]
            _, metrics = await get(f"{node.status_url}/metrics")
            assert b"forewarn_disconnected_seconds" in metrics
            assert b"forewarn_control_silence_seconds" in metrics
            assert b"forewarn_journal_bytes" in metrics
            assert b"forewarn_journal_failing 0.0" in metrics
            assert (await get(f"{node.status_url}/other"))[0] == 404
            assert (await get(f"{node.status_url}/machines"))[1] == MACHINES
            running = msgspec.structs.replace(node.config, status=_address(node.status_url))
            assert await asyncio.to_thread(machines, running) == MACHINES
            assert (await get(f"{node.status_url}/healthz"))[0] == 200
        assert await asyncio.to_thread(machines, running) == MACHINES  # from the journal
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        clocks = [line for line in lines if line["kind"] == "clock"]
        kinds = [(line["kind"], line.get("machines")) for line in lines if line not in clocks]
        assert kinds == [
            ("up", None),
            ("exchange", None),
            ("down", None),
            ("end", None),
            ("up", None),
            ("disconnected", ["web_0"]),
            ("exchange", None),
            ("down", None),
            ("end", None),
        ]
        assert {line["host"] for line in lines} == {"h1"}
        assert {line["since"] for line in clocks} == {lines[0]["t"]}
        assert 0 <= clocks[-1]["error"] < lines[0]["clock_error"]

    run(play, tmp_path)


def test_the_time_in_which_it_is_disconnected_is_recorded_from_the_end_of_its_read_lease(
    tmp_path: Path,
) -> None:
    async def play(nodes: Nodes) -> None:
        trace = tmp_path / "node.jsonl"

        def lines(kind: str) -> list[dict[str, Any]]:
            recorded = [json.loads(line) for line in trace.read_text().splitlines()]
            return [line for line in recorded if line["kind"] == kind]

        async with AsyncExitStack() as ending:
            async with nodes.control() as control:
                nodes.listen_again_at(control.nodes_address)
                node = await ending.enter_async_context(nodes.node(record=trace))
                await until(lambda: not node.upstream.disconnected)
            earliest = node.upstream.now().at / 1e6
            node.upstream._leased_until = guard.boottime()  # rather than wait for it
            latest = node.upstream.now().at / 1e6
            await until(lambda: bool(lines("disconnected")))
            (disconnected,) = lines("disconnected")
            assert disconnected["machines"] == ["web_0"]
            assert earliest - ROUNDED <= disconnected["t"] <= latest + ROUNDED
            async with nodes.control():
                await until(lambda: bool(lines("joined")))
                (joined,) = lines("joined")
                assert joined["machines"] == disconnected["machines"]
                assert node.upstream.connected
                assert node.health().warnings == {}

    run(play, tmp_path)


def test_callers_wait_in_sockets_that_were_handed_over_until_the_node_is_synchronized(
    tmp_path: Path,
) -> None:
    async def play(nodes: Nodes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            asked = socket.create_connection(("127.0.0.1", port))
            asked.sendall(b"GET /metadata/versions HTTP/1.0\r\nMetadata: true\r\n\r\n")
            async with nodes.control():
                handed_over = os.dup(listener.fileno())
                async with nodes.node(metadata_fds=(handed_over,)) as node:
                    await until(node.serving.is_set)
                    answer = await asyncio.to_thread(asked.recv, 12)
                    assert answer == b"HTTP/1.1 200"
            asked.close()

    run(play, tmp_path)


def test_a_reload_applies_limits_and_certificate_and_a_wrong_file_changes_nothing(
    tmp_path: Path,
) -> None:
    async def play(nodes: Nodes) -> None:
        config = nodes.config()
        assert config.tls is not None
        file = tmp_path / "node.toml"
        text = (
            f'host = "h1"\ncontrol = "{config.control[0]}"\n'
            f'certificate = "{config.tls.certificate}"\n'
            f'key = "{config.tls.key}"\nauthority = "{config.authority}"\n'
            'metadata = "127.0.0.1:0"\nstatus = ""\njournal = "journal"\n'
        )
        file.write_text(text)

        def load() -> LoadedNodeSettings:
            return load_node(file, {})

        loaded = load()
        async with HostNode(loaded.config) as node:
            reloader = NodeReloader(node, loaded, load)
            assert node.certificates is not None
            before = node.certificates.context
            file.write_text(text.replace('host = "h1"', 'host = "h2"') + "throttle = 7\n")
            reloader.reload()
            assert node.endpoint.limits.throttle == 7
            assert node.certificates.context is not before
            assert node.config.host == "h1"
            file.write_text("nonsense")
            reloader.reload()
            assert node.endpoint.limits.throttle == 7

    run(play, tmp_path)


def test_callers_that_are_unknown_get_404_and_control_hears_of_them_with_the_host(
    tmp_path: Path,
) -> None:
    async def play(nodes: Nodes) -> None:
        async with nodes.control() as control, nodes.node(host="h2") as node:
            await until(node.serving.is_set)
            assert (await poll(node))[0] == 404
            callers = control.poll_index.unknown_callers
            await until(lambda: bool(callers.all()))
            (caller,) = callers.all()
            assert (caller.address, caller.host) == ("127.0.0.1", "h2")  # which is one of h1

    run(play, tmp_path)


def test_a_machine_that_moves_is_answered_on_its_new_host_before_it_has_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(nodes: Nodes) -> None:
        async with (
            nodes.control() as control,
            nodes.node() as old,
            nodes.node(host="h2") as new,
        ):
            await until(lambda: old.serving.is_set() and new.serving.is_set())
            assert (await poll(old))[0] == 200
            arrived = asyncio.Event()

            async def perform(_: Task) -> Done:
                await arrived.wait()
                return Done(moved={"web_0": "h2"})

            monkeypatch.setattr(control.executor.driver, "perform", perform)
            done = await control.platform.schedule(
                type=EventType.REDEPLOY, machines=("web_0",), by="test"
            )
            assert not isinstance(done, Refused)
            assert await old.upstream.approve("web_0", "web", [done.event.id])
            status, document = await poll(new)
            assert status == 200
            assert [e["EventStatus"] for e in json.loads(document)["Events"]] == ["Started"]
            arrived.set()

    run(play, tmp_path)


def test_without_a_journal_guests_wait_for_control(tmp_path: Path) -> None:
    async def play(nodes: Nodes) -> None:
        async with nodes.node() as node:
            assert not node.serving.is_set()
            status, body = await get(f"{node.status_url}/readyz")
            assert status == 503
            assert b"control has not told this node everything yet" in body
            assert (await get(f"{node.status_url}/machines"))[0] == 503
            assert node.metadata_urls == []

    run(play, tmp_path)


def test_a_journal_that_cannot_be_written_is_shown_to_operators(tmp_path: Path) -> None:
    async def play(nodes: Nodes) -> None:
        (tmp_path / "journal-h1" / "journal.new").mkdir(parents=True)
        async with nodes.node() as node:
            problem = "it cannot be written, so control is not followed: "
            problem += f"{tmp_path}/journal-h1/journal: Is a directory"
            assert node.health().warnings == {"journal": problem}
            assert node.status_line().endswith(f"; journal: {problem}")
            _, metrics = await get(f"{node.status_url}/metrics")
            assert b"forewarn_journal_failing 1.0" in metrics

    run(play, tmp_path)


def test_a_node_whose_host_is_not_in_the_fleet_says_that_control_refuses_it(tmp_path: Path) -> None:
    async def play(nodes: Nodes) -> None:
        async with nodes.control(), nodes.node(host="h9") as node:
            await until(lambda: bool(node.upstream.problem))
            _, body = await get(f"{node.status_url}/readyz")
            assert b"everything yet (no host 'h9'" in body

    run(play, tmp_path)


def test_an_expired_certificate_of_control_is_named_also_if_others_cannot_be_reached(
    tmp_path: Path,
) -> None:
    async def play(nodes: Nodes) -> None:
        lines = nodes.control.config.nodes
        assert lines is not None
        nodes.control.authority.issue(
            "127.0.0.1", into=lines.tls, until=datetime(2020, 1, 1, tzinfo=UTC)
        )
        async with nodes.control() as control:
            config = nodes.config()
            nobody = Address("127.0.0.1", 9)
            assert control.nodes_address is not None
            config = msgspec.structs.replace(config, control=(control.nodes_address, nobody))
            with capture_logs() as logs:
                async with HostNode(config) as node:
                    await until(lambda: "Connect" in node.upstream.problem)  # to the other one
                    await until(lambda: "certificate of control" in node.health().warnings)
            named = [line for line in logs if "certificate of control" in line["event"]]
            assert ["expired" in line["why"] for line in named] == [True]

    run(play, tmp_path)


def test_its_own_expired_certificate_is_named(tmp_path: Path) -> None:
    async def play(nodes: Nodes) -> None:
        async with nodes.control():
            config = nodes.config()
            assert config.tls is not None
            name = f"forewarn:node:{config.host}"
            nodes.control.authority.issue(
                name, into=config.tls, until=datetime(2020, 1, 1, tzinfo=UTC)
            )
            async with HostNode(config) as node:
                assert "expired" in node.health().warnings["certificate"]
                nodes.control.authority.issue(name, into=config.tls)
                await until(lambda: "certificate" not in node.health().warnings)

    run(play, tmp_path)


def test_a_certificate_that_expires_is_logged_at_once_although_a_warning_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path)
    config = nodes.config()
    assert config.tls is not None
    soon = datetime(2099, 1, 2, tzinfo=UTC)
    nodes.control.authority.issue("forewarn:node:h1", into=config.tls, until=soon)
    certificates = Certificates(config.tls, config.authority, of_client=True)
    moments = [soon.timestamp() - 3_600, soon.timestamp() - 60, soon.timestamp() + 86_400]
    with capture_logs() as logs:
        for moment in moments:
            monkeypatch.setattr(guard, "wall_us", lambda moment=moment: round(moment * 1e6))
            certificates.refresh()
            certificates.refresh()
    kinds = [line["event"] for line in logs if line["event"].startswith("the certificate")]
    assert kinds == ["the certificate expires soon", "the certificate has expired"]


def test_an_address_for_guests_that_is_taken_ends_the_node_with_the_reason(tmp_path: Path) -> None:
    async def play(nodes: Nodes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            async with nodes.control():
                config = nodes.config()
                there = Address(*taken.getsockname())
                endpoint = msgspec.structs.replace(config.endpoint, metadata=there)
                async with HostNode(msgspec.structs.replace(config, endpoint=endpoint)) as node:
                    with pytest.raises(CannotListen, match=f"{there} is in use"):
                        await node.following

    run(play, tmp_path)


def test_what_cannot_be_used_is_an_error_at_the_start(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    with pytest.raises(CertificateUnusable, match="host 'h1'"):
        HostNode(nodes.config(named="h2"))
    config = nodes.config()
    gone = msgspec.structs.replace(config, journal=tmp_path / "no" / "such")
    with pytest.raises(NodeUnusable, match=f"journal: .*: {os.strerror(errno.ENOENT)}"):
        HostNode(gone)
    first = HostNode(config)
    with pytest.raises(NodeUnusable, match="by another node"):
        HostNode(config)
    first._journal.close()
