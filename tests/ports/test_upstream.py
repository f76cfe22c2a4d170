"""What the guests' face is promised by the service: in the same process, or on another host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import pytest

from forewarn.core import Durations, Event, EventType, Refused
from forewarn.core.events import MAX_READY_CHANGES
from forewarn.core.time import HOUR, MINUTE
from forewarn.metadata.publishing.journal import Journal
from forewarn.metadata.publishing.messages import ToNode
from forewarn.metadata.publishing.node_upstream import NodeUpstream
from forewarn.metadata.upstream import (
    GroupNews,
    LocalUpstream,
    NotDurable,
    NotPostponed,
    TooOften,
    Upstream,
)
from forewarn.node import Config, Node
from forewarn.node.config import Address, LocalConnection, NodeConnections, Tls
from forewarn.node.listening.node_connections import make_tls_dial, make_unix_dial
from forewarn.node.listening.tls import Certificates
from forewarn.service.access.machine_tokens import MachineToken, MachineTokens
from forewarn.service.fleet.read import parse
from forewarn.store import MemoryStore
from forewarn.store.port import StoreFailed
from forewarn.support import guard
from forewarn.support.message_stream import MessageStream
from helpers.certificates import Authority
from helpers.node_beside_control import socket_path

FLEET = """
hosts: [h1]
groups:
  - name: web
    kind: scale-set
    policy: {may_postpone: "1h, twice"}
    machines:
      - {name: web_0, address: 127.1.0.1, host: h1}
      - {name: web_1, address: 127.1.0.2, host: h1}
  - name: db
    kind: standalone
    machines: [{name: db_0, address: 127.1.0.3, host: h1}]
"""
SECRET = b"s" * 32
ARM = "https://management.azure.com/"
START = 1_800_000_000 * 1_000_000


class Fragile(MemoryStore):
    """An engine whose disk can be taken away."""

    broken = False

    async def _persist(self, *args: object) -> None:
        if self.broken:
            raise StoreFailed("the disk is gone")
        await super()._persist(*args)  # type: ignore[arg-type]


class Scene:
    """A service, a face's port to it, and all that the face was told."""

    def __init__(self, node: Node, upstream: Upstream, store: Fragile) -> None:
        self.node = node
        self.upstream = upstream
        self.store = store
        self.reported: list[GroupNews] = []
        upstream.attach(self.reported.append)

    def last(self, group: str) -> GroupNews:
        return next(news for news in reversed(self.reported) if news.view.name == group)

    async def reboot(self, machine: str = "web_0") -> Event:
        done = await self.node.platform.schedule(
            type=EventType.REBOOT, machines=(machine,), by="test"
        )
        assert not isinstance(done, Refused)
        return done.event


Stage: TypeAlias = Callable[[Callable[[Scene], Awaitable[None]]], None]


@asynccontextmanager
async def served(tmp_path: Path, kind: str, socket: Path) -> AsyncIterator[Scene]:
    store = Fragile()
    authority = Authority(tmp_path)
    lines = NodeConnections(Address("127.0.0.1", 0), authority.issue("127.0.0.1"), authority.path)
    own = authority.issue("forewarn:node:h1", into=Tls(tmp_path / "h1.pem", tmp_path / "h1.key"))
    config = Config(
        fleet=parse(FLEET),
        rules=Durations(silence=None),
        virtual=START,
        identities=SECRET,
        nodes=lines if kind == "node" else None,
        local_node=LocalConnection(socket, "h1") if kind == "node on the same host" else None,
    )
    node = Node(config, store=store)
    if kind == "local":
        async with node:
            local = LocalUpstream(node.guests, store)
            local.machine_tokens = MachineTokens(SECRET, node.machine_index)
            yield Scene(node, local, store)
        return
    tasks = guard.Tasks()

    async def dial() -> MessageStream[ToNode]:
        if node.nodes_address is None:
            raise OSError("control does not listen yet")
        return await make_tls_dial(
            node.nodes_address, Certificates(own, authority.path, of_client=True)
        )()

    dials = [dial if kind == "node" else make_unix_dial(socket)]
    upstream = NodeUpstream(dials, "h1", node.clock, Journal(tmp_path, "h1"))
    await upstream.restore()
    tasks.start(upstream.watch(), "promise")
    tasks.start(upstream.run(), "line")
    tasks.start(upstream.report(), "reports")
    try:
        async with node:
            await upstream.synchronized.wait()
            yield Scene(node, upstream, store)
    finally:
        await tasks.end()


@pytest.fixture(params=["local", "node", "node on the same host"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    def play(body: Callable[[Scene], Awaitable[None]]) -> None:
        async def all_of_it() -> None:
            with socket_path() as socket:
                async with asyncio.timeout(30), served(tmp_path, request.param, socket) as scene:
                    await body(scene)

        asyncio.run(all_of_it())

    return play


async def until(says: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not says():
            await guard.pause(0.01)


def test_an_endpoint_receives_every_group_as_it_is(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        assert {news.view.name for news in scene.reported} == {"web", "db"}
        assert [m.name for m in scene.last("web").machines] == ["web_0", "web_1"]
        assert not scene.last("web").view.enabled

    stage(body)


def test_an_endpoint_has_the_document_before_enabling_is_answered(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        await scene.upstream.enable("web")
        view = scene.last("web").view
        assert (view.enabled, view.incarnation) == (True, 1)
        assert not scene.last("db").view.enabled

    stage(body)


def test_an_endpoint_has_the_result_before_an_approval_is_answered(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        await scene.upstream.enable("web")
        event = await scene.reboot()
        assert await scene.upstream.approve("web_1", "web", [event.id])
        (shown,) = scene.last("web").view.events
        assert (shown.id, shown.status.value) == (event.id, "Started")

    stage(body)


def test_an_endpoint_has_an_operators_change_before_the_operator_is_answered(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        await scene.upstream.enable("web")
        event = await scene.reboot()
        await until(lambda: bool(scene.last("web").view.events))
        assert scene.last("web").view.events[0].id == event.id

    stage(body)


def test_an_id_that_was_never_listed_is_refused_and_nothing_takes_effect(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        await scene.upstream.enable("web")
        event = await scene.reboot()
        elsewhere = "00000000-0000-0000-0000-000000000000"
        assert not await scene.upstream.approve("web_1", "web", [event.id, elsewhere])
        found = scene.store.groups["web"].event(event.id)
        assert found is not None
        assert found.approved is None

    stage(body)


def test_an_approval_that_cannot_be_made_durable_is_not_accepted(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        await scene.upstream.enable("web")
        event = await scene.reboot()
        scene.store.broken = True
        with pytest.raises(NotDurable):
            await scene.upstream.approve("web_1", "web", [event.id])
        with pytest.raises(NotDurable):
            await scene.upstream.enable("db")
        with pytest.raises(NotDurable):
            await scene.upstream.prepare("web_1", "web", event.id, True, "")
        with pytest.raises(NotDurable):
            await scene.upstream.postpone("web_1", "web", event.id, event.not_before + MINUTE)
        scene.store.broken = False
        assert await scene.upstream.approve("web_1", "web", [event.id])

    stage(body)


def test_readiness_is_remembered_and_can_be_asked_for(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        await scene.upstream.enable("web")
        event = await scene.reboot()
        output = await scene.upstream.prepare("web_1", "web", event.id, True, "drained")
        assert output is not None
        assert [(r.machine, r.note) for r in output.event.ready] == [("web_1", "drained")]
        asked = await scene.upstream.prepared("web", event.id)
        assert asked is not None
        assert asked == output
        assert asked.alive == {"web_0", "web_1"}
        assert await scene.upstream.prepared("db", event.id) is None
        assert await scene.upstream.prepare("db_0", "db", event.id, True, "") is None

    stage(body)


def test_readiness_changes_of_a_machine_are_limited(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        await scene.upstream.enable("web")
        event = await scene.reboot()
        for n in range(MAX_READY_CHANGES):
            assert await scene.upstream.prepare("web_1", "web", event.id, n % 2 == 0, "")
        with pytest.raises(TooOften):
            await scene.upstream.prepare("web_1", "web", event.id, True, "")
        assert await scene.upstream.prepare("web_1", "web", event.id, False, "")  # as it was
        assert await scene.upstream.prepare("web_0", "web", event.id, True, "")

    stage(body)


def test_an_event_is_postponed_as_far_as_the_policy_allows(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        upstream, platform = scene.upstream, scene.node.platform
        await upstream.enable("web")
        event = await scene.reboot()
        later = event.not_before + 30 * MINUTE
        assert await upstream.postpone("db_0", "db", event.id, later) is None
        assert await upstream.postpone("web_1", "web", "X", later) is None
        with pytest.raises(NotPostponed, match="1 h more"):
            await upstream.postpone("web_1", "web", event.id, event.not_before + 2 * HOUR)
        for _ in range(3):  # the same request again changes nothing
            assert await upstream.postpone("web_1", "web", event.id, later) == later
            assert scene.last("web").view.events[0].not_before == later
        postponed = await platform.event(event.id)
        assert not isinstance(postponed, Refused)
        assert [(p.by, p.after) for p in postponed.postponed] == [("web_1", later)]
        assert await upstream.approve("web_0", "web", [event.id])
        with pytest.raises(NotPostponed, match="has started"):
            await upstream.postpone("web_1", "web", event.id, later + MINUTE)

    stage(body)


def test_answers_of_an_endpoint_are_recorded_as_seen(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        await scene.upstream.enable("web")
        event = await scene.reboot()
        for machine in ("web_0", "web_0", "web_0", "web_1"):
            now = scene.upstream.now()
            scene.upstream.record_poll(machine, "web", "2020-07-01", 2, (event.id,), now)
        scene.upstream.sign_of_life("db")
        poll_index = scene.node.poll_index
        await until(lambda: poll_index.polls("web_1") is not None)
        polls = poll_index.polls("web_0")
        assert polls is not None
        assert (polls.count, polls.version, polls.incarnation) == (3, "2020-07-01", 2)
        assert set(poll_index.first_sights(event.id, ["web_0", "web_1"])) == {"web_0", "web_1"}
        await until(lambda: poll_index.seen("db") > 0)

    stage(body)


def test_callers_that_are_no_machine_are_named_until_they_are_one(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        for address in ("127.1.0.9", "127.1.0.9", "127.9.9.9"):
            scene.upstream.unknown_caller(address)
        callers = scene.node.poll_index.unknown_callers
        await until(lambda: len(callers.all()) == 2)
        counts = {caller.address: caller.requests for caller in callers.all()}
        assert counts == {"127.1.0.9": 2, "127.9.9.9": 1}
        assert all(caller.first == scene.node.writer.now().at for caller in callers.all())
        grown = FLEET.replace(
            "  - name: db", "      - {name: web_2, address: 127.1.0.9, host: h1}\n  - name: db"
        )
        await scene.node.fleet_apply.fleet(parse(grown), by="test")
        assert [caller.address for caller in callers.all()] == ["127.9.9.9"]

    stage(body)


def test_an_endpoint_receives_added_and_removed_machines(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        grown = FLEET.replace(
            "  - name: db", "      - {name: web_2, address: 127.1.0.9, host: h1}\n  - name: db"
        )
        await scene.node.fleet_apply.fleet(parse(grown), by="test")
        await until(lambda: len(scene.last("web").machines) == 3)
        assert scene.last("web").machines[2].addresses == ("127.1.0.9",)
        await scene.node.fleet_apply.fleet(parse(FLEET), by="test")
        await until(lambda: len(scene.last("web").machines) == 2)

    stage(body)


def test_an_endpoint_has_the_time_of_the_service(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        assert scene.upstream.now().at == scene.node.writer.now().at
        assert scene.upstream.now().rules == scene.node.writer.rules

    stage(body)


def test_a_machine_gets_a_token_of_its_own_alone(stage: Stage) -> None:
    async def body(scene: Scene) -> None:
        assert scene.upstream.issues_tokens
        tokens = MachineTokens(SECRET, scene.node.machine_index)
        for machine, group in (("web_0", "web"), ("web_1", "web"), ("db_0", "db")):
            token = await scene.upstream.token(machine, group, ARM)
            assert token is not None
            found = tokens.find(token.text, (ARM,))
            assert found is not None
            assert (found.machine, found.limit.groups) == (machine, (group,))
        other: MachineToken | None = None
        with suppress(NotDurable):  # a node asks for machines of its own host and group only
            other = await scene.upstream.token("db_0", "web", ARM)
        assert other is None

    stage(body)
