"""Several control nodes of one service on a PostgreSQL server of the tests' own: as processes, or
in the test's own process, with an event loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from forewarn.core import Refused
from forewarn.core.time import SECOND
from forewarn.node import Config, Node
from forewarn.node.config import Address
from forewarn.service.fleet.read import parse
from forewarn.store.postgres.engine import PostgresStore
from helpers import postgres
from helpers.process import Running
from helpers.serve_process import FLEET, running_service
from helpers.waiting import LIMIT, until

LEASE = "6s"  # the default: on a busy machine, a process may stand still for longer than the least

T = TypeVar("T")


def new_state() -> str:
    postgres.needed()
    return postgres.shared_server().new_state()


class Response:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Send a request to a control API; bytes are sent as they are."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=LIMIT)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    with contextlib.closing(connection):
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, data, all_headers)
        response = connection.getresponse()
        return Response(response.status, dict(response.getheaders()), response.read())


class ControlProcess:
    """`forewarn serve`, which follows or decides."""

    def __init__(self, running: Running, control: str) -> None:
        self.running = running
        self.control = control

    def leads(self) -> bool:
        return ask(self.control, "GET", "/leaderz").status == 200

    def guests(self) -> tuple[str, int]:
        """Return where guests are answered, once they are."""
        until(lambda: bool(ask(self.control, "GET", "/v1/status").json()["metadata"]))
        place = urlsplit(ask(self.control, "GET", "/v1/status").json()["metadata"])
        return place.hostname or "", place.port or 0


@contextlib.contextmanager
def control_process(
    directory: Path, name: str, url: str, more: str = "", before: Sequence[str] = ()
) -> Iterator[ControlProcess]:
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "forewarn.toml"
    settings.write_text(
        f'name = "{name}"\nstate = "{url}"\nlease = "{LEASE}"\nlog = "json"\n'
        f'metadata = "127.0.0.1:0"\ncontrol = "127.0.0.1:0"\nlocal_directory = "{directory}"\n'
        + more
    )
    with running_service(directory, settings, before=before) as service:
        yield ControlProcess(service.running, service.control)


class ControlNodes:
    """Control nodes of one service in this process."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = contextlib.AsyncExitStack()

    def __enter__(self) -> ControlNodes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)

    def start(self, name: str, *, lease: float = 900.0, **config: Any) -> Node:
        """Start a node. The first one decides."""
        loopback = Address("127.0.0.1", 0)
        given: dict[str, Any] = {"metadata": loopback, "control": loopback, **config}
        node = Node(
            Config(state=self.url, name=name, lease=round(lease * SECOND), **given),
        )
        return self.run(self._stack.enter_async_context(node))

    def start_leader(self, name: str = "c1", **config: Any) -> Node:
        """Start a node, and wait until it decides and has a fleet."""
        node = self.start(name, **config)
        until(lambda: bool(node.metadata_urls))
        assert not isinstance(self.run(node.fleet_apply.fleet(parse(FLEET), by="test")), Refused)
        return node

    def start_follower(self, name: str = "c2", **config: Any) -> Node:
        """Start a node, and wait until it knows what was committed, and who decides."""
        node = self.start(name, **config)
        assert node.store.leadership is not None
        until(lambda: node.store.leadership.leader() is not None)  # type: ignore[union-attr]
        return node

    @contextlib.contextmanager
    def without_lease(self, node: Node) -> Iterator[None]:
        """Let the lease of a node run out, as its clock shows it, without another taking over."""
        store = node.store
        assert isinstance(store, PostgresStore)
        store.leadership.check_lease = lambda: None  # type: ignore[method-assign]  # would end it
        before, store._lease._until = store._lease._until, 0.0
        try:
            yield
        finally:
            store._lease._until = before
            del store.leadership.check_lease
