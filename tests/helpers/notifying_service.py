"""A service in this process whose notifications go to receivers on loopback."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from standardwebhooks import Webhook

from forewarn.core import EventType
from forewarn.core.time import MINUTE
from forewarn.node import Config, Node
from forewarn.notify.config import Notify
from forewarn.notify.notifications import Notifications
from forewarn.service.fleet import read
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from helpers.hook_receivers import Received, Web
from helpers.waiting import until_async

FLEET = """
hosts: [{name: h1, labels: {owner: ops}}, h2]
groups:
  - name: web
    kind: availability-set
    labels: {owner: team-web}
    machines:
      - {name: web-0, update_domain: 0, host: h1}
      - {name: web-1, update_domain: 1, host: h2}
  - name: db
    kind: availability-set
    machines:
      - {name: db-0, update_domain: 0, host: h1, labels: {owner: team-db}}
      - {name: db-1, update_domain: 1, host: h2}
"""
START = 1_800_000_000_000_000
KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def secret_file(directory: Path, text: str = SECRET, name: str = "secret") -> str:
    path = directory / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


def webhook(directory: Path, port: int, **fields: Any) -> Notify:
    options = {"url": f"http://127.0.0.1:{port}/hook/s3cr3t", "secret_file": secret_file(directory)}
    return table(webhook=options | fields.pop("webhook", {}), **fields)


def table(**fields: Any) -> Notify:
    return msgspec.convert({"name": "ops", **fields}, Notify)


class World:
    """A running node, with what tests do to it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def notifications(self) -> Notifications:
        assert self.node.notifications is not None
        return self.node.notifications

    async def reboot(self, *machines: str, notice: int = 15 * MINUTE, **more: Any) -> str:
        outcome = await self.node.platform.schedule(
            type=EventType.REBOOT, machines=machines, by="ann", notice=notice, **more
        )
        return outcome.event.id  # type: ignore[union-attr]

    async def advance(self, duration: int) -> None:
        await self.node.advance(self.node.writer.now().at + duration)

    async def configure(self, *tables: Notify) -> None:
        await self.node.configure_notifications(tables)

    def state(self) -> Any:
        return self.notifications.states()[0]


@asynccontextmanager
async def world(*tables: Notify, disk: Disk | None = None) -> AsyncIterator[World]:
    config = Config(virtual=START, fleet=read.parse(FLEET), notify=tables)
    async with Node(config, store=MemoryStore(disk)) as node:
        yield World(node)


async def received(web: Web, count: int) -> list[Received]:
    await until_async(lambda: len(web.received) >= count)
    return web.received


def verified(request: Received) -> dict[str, Any]:
    """The body of a request, whose signature an independent library has checked."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    Webhook(SECRET).verify(request.body, headers)
    body: dict[str, Any] = json.loads(request.body)
    return body
