"""The worker as an asyncio program: the job is a task of its own beside the one that polls.

It uses nothing of forewarn, and keeps one connection open.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
TIMEOUT = 2.0  # seconds for one request
LONGEST_PAUSE = 8  # intervals between two polls while the endpoint does not answer


class NoAnswer(Exception):
    """The endpoint did not answer the request with 200."""


class Connection:
    """One persistent connection, opened again when it is needed and lost."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, target: str, body: bytes = b"") -> bytes:
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._exchange(method, target, body)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            self.close()
            raise NoAnswer(str(error)) from error

    async def _exchange(self, method: str, target: str, body: bytes) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._host}\r\nMetadata: true\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = [line.partition(":") for line in lines[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in fields}
        answer = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        if lines[0].split()[1] != "200":
            raise NoAnswer(lines[0])
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class AsyncWorker:
    def __init__(self, endpoint: str, log: Callable[[str], None], every: float = 1.0) -> None:
        self._connection = Connection(endpoint)
        self._log = log
        self._every = every
        self._jobs = itertools.count(1)
        self._working: asyncio.Task[None] | None = None
        self._approved: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set by another thread or a signal handler."""
        asyncio.run(self._run(stop))

    async def _run(self, stop: threading.Event) -> None:
        name, pause = "", self._every
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            while not stop.is_set():
                try:
                    name = name or (await self._connection.ask("GET", NAME)).decode()
                    document = json.loads(await self._connection.ask("GET", TARGET))
                    await self._handle(document["Events"], name)
                    pause = self._every
                except (NoAnswer, ValueError, KeyError):
                    pause = min(2 * pause, LONGEST_PAUSE * self._every)
                await asyncio.to_thread(stop.wait, pause)
            await self._drain()
        self._connection.close()

    async def _handle(self, events: list[dict[str, Any]], name: str) -> None:
        disturbing = [
            event
            for event in events
            if name in event["Resources"] and event["EventType"] != "Freeze"
        ]
        if disturbing:
            await self._drain()
        elif self._working is None:
            self._working = self._tasks.create_task(self._work())
        for event in disturbing:
            if event["EventStatus"] == "Scheduled" and event["EventId"] not in self._approved:
                await self._approve(event["EventId"])

    async def _approve(self, id: str) -> None:
        self._log(f"approved {id}")
        body = json.dumps({"StartRequests": [{"EventId": id}]}).encode()
        await self._connection.ask("POST", TARGET, body)
        self._approved.add(id)

    async def _work(self) -> None:
        """Do one job after the other, until cancelled; then hand the job in hand back."""
        for job in self._jobs:
            self._log(f"taken {job}")
            try:
                async with asyncio.timeout(self._every):
                    await asyncio.Event().wait()
            except TimeoutError:
                self._log(f"done {job}")
            except asyncio.CancelledError:
                self._log(f"returned {job}")
                raise

    async def _drain(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])
            self._working = None
