"""Two control nodes on PostgreSQL, under load, whose leader is killed or stopped 16 times.

Guests and an operator go on all the while, and ask the other node now and then. What they saw, and
what was done to the machines, is put before the judge.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg

from forewarn.core.lifecycle import Move
from forewarn.judge import judge
from helpers import postgres
from helpers.engines import leading
from helpers.free_ports import free_port
from helpers.load import SPEED, LoadGenerator
from helpers.paths import HELPERS, ROOT
from helpers.recorded_state import Record, read_store
from helpers.waiting import LIMIT, until_async

ROUNDS = 16
STOPPED = 4  # every fourth time the leader is stopped, and goes on when another one decides
POLLS, APPROVALS, IMPACTS = 500, 50, 15  # that a run must have seen
DEPOSED = 74  # exit status
HELD_UP = 6.0  # seconds for another node to take over, and to answer
SAMPLE_FLEET = ROOT / "src/forewarn/node/sample-fleet.yaml"


class Crowd(LoadGenerator):
    """Guests and an operator who mostly know whom to ask."""

    def __init__(self, seed: int, ports: dict[str, tuple[int, int]]) -> None:
        self.ports = ports
        self.leader = next(iter(ports))
        super().__init__(seed, *ports[self.leader])

    async def _exchange(
        self, host: str, port: int, method: str, target: str, body: str, **options: Any
    ) -> tuple[int | None, list[list[str]], str]:
        name = self.leader
        if self.chance.random() < 0.1:
            name = self.chance.choice(list(self.ports))
        metadata, control = self.ports[name]
        port = control if port == self._control else metadata
        return await super()._exchange(host, port, method, target, body, **options)


class Nodes:
    """Control nodes in processes of their own, and the hand that kills them."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.log = directory / "log"
        self.ports = {name: (free_port(), free_port()) for name in ("c1", "c2")}
        self.pids: dict[str, int] = {}

    async def __aenter__(self) -> Nodes:
        with self.log.open("ab") as log:
            self._forker = await asyncio.create_subprocess_exec(
                sys.executable,
                str(HELPERS / "control_forker.py"),
                *(self.url, str(SPEED)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._forker.terminate()
        await self._forker.wait()

    async def start(self, name: str) -> None:
        assert self._forker.stdin is not None
        metadata, control = self.ports[name]
        self._forker.stdin.write(f"{name} {metadata} {control}\n".encode())
        self.pids[name] = int(await self._line("child", name))

    async def gone(self, name: str) -> int:
        status = int(await self._line("gone", name))
        del self.pids[name]
        return status

    async def _line(self, *wanted: str) -> str:
        assert self._forker.stdout is not None
        async with asyncio.timeout(LIMIT):
            *words, last = (await self._forker.stdout.readline()).decode().split()
        assert tuple(words) == wanted, f"{words} {last}: {self.log.read_text()[-3000:]}"
        return last

    async def leader(self, *but: str) -> str:
        """Wait for a node that decides, other than these, and return its name."""
        async with asyncio.timeout(LIMIT):
            while True:
                for name in self.pids.keys() - set(but):
                    if await self._leads(self.ports[name][1]):
                        return name

    async def _leads(self, port: int) -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with contextlib.closing(writer):
                    writer.write(
                        b"GET /leaderz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                    )
                    return (await reader.read(32)).startswith(b"HTTP/1.1 200")
        return False


@contextlib.asynccontextmanager
async def under_load(nodes: Nodes) -> AsyncIterator[Crowd]:
    crowd = Crowd(20_26, nodes.ports)
    crowd.leader = await nodes.leader()
    status, answer = await crowd.control("PUT", "/v1/fleet", json.loads(fleet()))
    assert status == 200, answer
    _, machines = await crowd.control("GET", "/v1/machines")
    crowd.know(json.loads(machines))
    crowd.note("up")
    for machine in ("jumpbox", "sql-0", "FrontEnd_IN_0", "web_0"):
        await crowd.ask(machine, "GET", "2020-07-01")
    going = asyncio.get_running_loop().create_task(crowd.go_on())
    yield crowd
    await until_async(
        lambda: crowd.answered["GET", 200] > POLLS and crowd.answered["POST", 200] > APPROVALS
    )
    async with asyncio.timeout(LIMIT):
        while len(await asyncio.to_thread(impacts_of, nodes.url)) <= IMPACTS:
            assert not going.done(), going
    crowd.stop.set()
    await going
    crowd.note("end")


def fleet() -> str:
    import yaml

    return json.dumps(yaml.safe_load(SAMPLE_FLEET.read_text()))


async def taken_over(nodes: Nodes) -> Crowd:
    async with nodes:
        for name in nodes.ports:
            await nodes.start(name)
        async with under_load(nodes) as crowd:
            for number in range(ROUNDS):
                await asyncio.wait([pause(crowd.chance.uniform(0.0, 0.8))])
                old = await nodes.leader()
                crowd.killing()
                if number % STOPPED:
                    os.kill(nodes.pids[old], signal.SIGKILL)
                    assert await nodes.gone(old) == -signal.SIGKILL
                    crowd.leader = await nodes.leader()
                else:
                    os.kill(nodes.pids[old], signal.SIGSTOP)
                    crowd.leader = await nodes.leader(old)
                    await asyncio.wait([pause(crowd.chance.uniform(0.0, 0.2))])
                    os.kill(nodes.pids[old], signal.SIGCONT)
                    assert await nodes.gone(old) == DEPOSED
                crowd.note("up")
                await nodes.start(old)
    return crowd


def pause(seconds: float) -> asyncio.Task[None]:
    from forewarn.support import guard

    return asyncio.get_running_loop().create_task(guard.pause(seconds))


def test_no_promise_is_broken_by_sixteen_take_overs(tmp_path: Path) -> None:
    postgres.needed()
    url = postgres.shared_server().new_state()
    crowd = asyncio.run(taken_over(Nodes(url, tmp_path)))
    impacts = impacts_of(url)
    record = asyncio.run(read_store(leading(url)))
    judgement = judge([*crowd.trace, *impacts, *record.unseen])
    findings = [
        finding
        for finding in judgement.findings
        if not crowd.held_up(finding, record.raised, HELD_UP)
    ]
    assert findings == [], judgement.render()

    exchanges = [line for line in crowd.trace if line["kind"] == "exchange"]
    assert record.replayed == record.stored
    assert acknowledged(exchanges) <= approved(record)


def impacts_of(url: str) -> list[dict[str, Any]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT impact FROM impacts WHERE impact IS NOT NULL")
        return [json.loads(row[0]) for row in rows]


def acknowledged(exchanges: list[dict[str, Any]]) -> set[str]:
    """Return the events whose approval was answered with 200."""
    answered = [line for line in exchanges if line["method"] == "POST" and line["status"] == 200]
    requests = [json.loads(line["body"])["StartRequests"] for line in answered]
    return {request["EventId"] for approval in requests for request in approval}


def approved(record: Record) -> set[str]:
    """Return the events that are more than announced, as the log says."""
    return {item.event.id for item in record.moves if item.what is not Move.RAISE}
