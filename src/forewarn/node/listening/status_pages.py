"""The pages of a node for health checks and monitoring, /healthz, /readyz and /metrics, and for
its host's packet filter, /machines; by GET."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from forewarn.core import Machine
from forewarn.node.listening.serve import serve
from forewarn.service.telemetry.health import with_ok
from forewarn.service.telemetry.samples import Sample
from forewarn.support import guard

JSON = "application/json"
NOT_SYNCHRONIZED = "control has not told this node everything yet"


class Health(msgspec.Struct, frozen=True):
    """What is wrong, by part (an empty text: nothing), and what somebody should look at."""

    problems: Mapping[str, str]
    warnings: Mapping[str, str]


class ListedMachine(msgspec.Struct, frozen=True):
    """A machine, in the words of the control API."""

    name: str
    group: str
    addresses: tuple[str, ...]


def list_machines(machines: Iterable[tuple[str, Machine]]) -> list[ListedMachine]:
    """Return machines, each given with its group, in the order of their names."""
    listed = [ListedMachine(m.name, group, tuple(m.addresses)) for group, m in machines]
    return sorted(listed, key=lambda machine: machine.name)


class StatusPages:
    """An ASGI application."""

    def __init__(
        self,
        readings: Callable[[], Iterable[Sample]],
        health: Callable[[], Health],
        machines: Callable[[], list[ListedMachine] | None],
    ) -> None:
        """`machines` returns None if they are not known yet."""
        self._readings = readings
        self._health = health
        self._machines = machines
        self._pages = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/machines": self._list_machines,
        }

    async def serve(
        self, listener: socket.socket, tasks: guard.Tasks, stack: AsyncExitStack
    ) -> None:
        await serve(self, [listener], tasks, stack)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        del receive
        page = self._pages.get(scope["path"])
        if page is None:
            message = f"unknown path; expected one of {', '.join(self._pages)}"
            status, body, kind = 404, _encoded({"error": message}), JSON
        elif scope["method"] not in ("GET", "HEAD"):
            status, body, kind = 405, _encoded({"error": "only GET and HEAD are allowed"}), JSON
        else:
            status, body, kind = page(dict(scope["headers"]).get(b"accept", b"").decode("latin-1"))
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": body})

    def _healthz(self, _accept: str) -> tuple[int, bytes, str]:
        return 200, _encoded({"status": "ok", "parts": {"loop": "ok"}}), JSON  # or no answer

    def _readyz(self, _accept: str) -> tuple[int, bytes, str]:
        health = self._health()
        failing = any(health.problems.values())
        report = {
            "status": "failing" if failing else "ok",
            "parts": with_ok(health.problems),
            "warnings": health.warnings,
        }
        return 503 if failing else 200, _encoded(report), JSON

    def _metrics(self, accept: str) -> tuple[int, bytes, str]:
        from forewarn.service.telemetry.exposition import exposition

        return 200, *exposition(self._readings(), accept)

    def _list_machines(self, _accept: str) -> tuple[int, bytes, str]:
        machines = self._machines()
        if machines is None:
            return 503, _encoded({"error": NOT_SYNCHRONIZED}), JSON
        return 200, _encoded(machines), JSON


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)
