"""The node of a host: its guests, its journal, its pages and its recording, in one process."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.node.config import Address, Config, HostNodeConfig, Tls
from forewarn.node.listening.tls import CertificateUnusable
from forewarn.node.processes.host_node import HostNode, NodeUnusable
from forewarn.service.fleet.read import parse
from helpers.host_nodes import PATIENCE, Control, until

HERE = Address("127.0.0.1", 0)
FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, address: 127.0.0.1, host: h1}
      - {name: web_1, address: 10.0.0.2, host: h2}
"""


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


def run(play: Callable[[Nodes], Any], directory: Path) -> None:
    asyncio.run(play(Nodes(directory)))


def test_guests_are_answered_also_while_control_is_away_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async def play(nodes: Nodes) -> None:
        trace = tmp_path / "node.jsonl"
        async with nodes.control() as control, nodes.node(record=trace) as node:
            await until(node.serving.is_set)
            await until(lambda: not node.upstream.apart)
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
            assert "control could not be reached since" in json.loads(body)["warnings"]["control"]
            _, metrics = await get(f"{node.status_url}/metrics")
            assert b"forewarn_apart_seconds" in metrics
            assert b"forewarn_control_silence_seconds" in metrics
            assert b"forewarn_journal_bytes" in metrics
            assert (await get(f"{node.status_url}/other"))[0] == 404
            assert (await get(f"{node.status_url}/healthz"))[0] == 200
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        kinds = [(line["kind"], line.get("machines")) for line in lines]
        assert kinds == [
            ("up", None),
            ("exchange", None),
            ("down", None),
            ("end", None),
            ("up", None),
            ("apart", ["web_0"]),
            ("exchange", None),
            ("down", None),
            ("end", None),
        ]
        assert {line["host"] for line in lines} == {"h1"}
        assert lines[0]["clock_error"] > 0

    run(play, tmp_path)


def test_what_is_recorded_of_a_node_that_was_apart_is_within_its_promise(tmp_path: Path) -> None:
    async def play(nodes: Nodes) -> None:
        trace = tmp_path / "node.jsonl"
        async with nodes.control(), nodes.node(record=trace) as node:
            await until(lambda: not node.upstream.apart)
            node._on_apart(True)
            node._on_apart(False)
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        apart, joined = (next(x for x in lines if x["kind"] == k) for k in ("apart", "joined"))
        assert apart["machines"] == joined["machines"] == ["web_0"]
        assert apart["t"] <= joined["t"]

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


def test_without_a_journal_guests_wait_for_control(tmp_path: Path) -> None:
    async def play(nodes: Nodes) -> None:
        async with nodes.node() as node:
            assert not node.serving.is_set()
            status, body = await get(f"{node.status_url}/readyz")
            assert status == 503
            assert b"control has not told this node everything yet" in body
            assert node.metadata_urls == []

    run(play, tmp_path)


def test_what_cannot_be_used_is_an_error_at_the_start(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    with pytest.raises(CertificateUnusable, match=r"is not for the node of host 'h1'"):
        HostNode(nodes.config(named="h2"))
    config = nodes.config()
    gone = msgspec.structs.replace(config, journal=tmp_path / "no" / "such")
    with pytest.raises(NodeUnusable, match=r"journal: .*: No such file or directory"):
        HostNode(gone)
    first = HostNode(config)
    with pytest.raises(NodeUnusable, match="is in use by another node"):
        HostNode(config)
    first._journal.close()
