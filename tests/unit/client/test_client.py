"""Blocking or not, it is one client: the same answers bring the same requests and the same changes.

Also: what is imported for either, and that both can be ended from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta

import pytest

from forewarn.client import (
    AsyncClient,
    Change,
    Client,
    ClientClosedError,
    EndpointNotFoundError,
    EndpointUnavailableError,
    pace,
)
from helpers.client_connections import Raw, raw, read_head
from helpers.scripted_client import EVENT, body

STARTED = {**EVENT, "EventStatus": "Started", "NotBefore": ""}


def http(status: int, response: bytes = b"", tag: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(response)}\r\n"
    return (head + (f"ETag: {tag}\r\n" if tag else "") + "\r\n").encode() + response


SCRIPT = [
    http(400),  # the newest version
    http(200, body(), '"1"'),
    http(404),  # no long-poll
    http(304),
    http(500),
    http(200, body(EVENT), '"2"'),
    b"",  # hangs up
    http(200, body(EVENT)[:40]),
    http(302),
    http(200),
    http(200, body(STARTED, incarnation=1), '"3"'),
    http(429),
    http(304),
    b"SSH-2.0-OpenSSH_9.6\r\n",
    http(200, body(), '"4"'),
]


class Scripted(Raw):
    """One answer for each request, on however many connections they come."""

    def __init__(self) -> None:
        super().__init__(self._play)
        self._left = list(SCRIPT)

    def _play(self, connection: object) -> None:
        while self._left and (head := read_head(connection)):  # type: ignore[arg-type]
            self.heads.append(head)
            response = self._left.pop(0)
            connection.sendall(response)  # type: ignore[attr-defined]
            if not response.startswith(b"HTTP"):
                return


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "INTERVAL", 0.01)
    monkeypatch.setattr(pace, "LEAST_REST", 0.001)


def blocking(url: str) -> list[Change]:
    with Client(url, interval=0.01) as client, contextlib.closing(client.watch()) as changes:
        return [next(changes) for _ in range(3)]


def looping(url: str) -> list[Change]:
    async def watched() -> list[Change]:
        async with (
            AsyncClient(url, interval=0.01) as client,
            contextlib.aclosing(client.watch()) as changes,
        ):
            return [await anext(changes) for _ in range(3)]

    return asyncio.run(watched())


def test_both_clients_send_the_same_requests_and_report_the_same_changes() -> None:
    asked, reported = [], []
    for watched in (blocking, looping):
        with Scripted() as server:
            changes = watched(str(server.location))
            host = server.location.authority.encode()
            asked.append([head.replace(host, b"") for head in server.heads])
        reported.append([(change.kind, change.event, change.presumed) for change in changes])
    assert asked[0] == asked[1]
    assert reported[0] == reported[1]
    assert [kind for kind, _, _ in reported[0]] == ["appeared", "started", "finished"]
    assert len(asked[0]) >= len(SCRIPT)


def test_importing_the_client_imports_nothing_unneeded() -> None:
    program = (
        "import json, sys, forewarn.client as c; c.Client('http://127.0.0.1')\n"
        "first = sorted(sys.modules); c.AsyncClient('http://127.0.0.1')\n"
        "print(json.dumps([first, sorted(sys.modules)]))"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    blocking, looping = (set(names) for names in json.loads(run.stdout))
    heavy = {"rich", "typer", "click", "structlog", "litestar", "uvicorn", "httptools", "email"}
    heavy |= {"http.client", "urllib.request", "prometheus_client", "sqlite3", "yaml", "logging"}
    assert not blocking & (heavy | {"asyncio", "ssl", "subprocess", "tempfile"})
    assert not looping & (heavy - {"logging"}), "asyncio itself brings logging and ssl"
    ours = {name for name in looping if name.startswith("forewarn.")}
    allowed = ("client", "wire", "support")
    assert {name.split(".")[1] for name in ours} <= set(allowed)


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import forewarn.client

    assert all(getattr(forewarn.client, name) is not None for name in forewarn.client.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        forewarn.client.Nothing  # noqa: B018


@pytest.fixture
def silent() -> Raw:
    server = Raw(lambda connection: server.hangs()(connection))
    return server


@pytest.mark.parametrize("ask", ["events", "watch"])
def test_closing_ends_a_wait_in_another_thread(silent: Raw, ask: str) -> None:
    outcome: list[object] = []

    def use(client: Client) -> None:
        try:
            outcome.append(client.events() if ask == "events" else list(client.watch()))
        except ClientClosedError:
            outcome.append("closed")

    with silent, Client(str(silent.location)) as client:
        using = threading.Thread(target=use, args=(client,))
        using.start()
        while not silent.heads:
            pass  # it has not asked yet
        client.close()
        using.join(10)
        assert not using.is_alive()
    assert outcome == ["closed" if ask == "events" else []]
    with pytest.raises(ClientClosedError, match="is closed"):
        client.events()


@pytest.mark.parametrize("ask", ["events", "watch"])
def test_closing_ends_a_wait_in_another_task(silent: Raw, ask: str) -> None:
    async def use(client: AsyncClient) -> object:
        try:
            if ask == "events":
                return await client.events()
            return [change async for change in client.watch()]
        except ClientClosedError:
            return "closed"

    async def both() -> object:
        client = AsyncClient(str(silent.location))
        async with asyncio.TaskGroup() as tasks:
            using = tasks.create_task(use(client))
            while not silent.heads:
                await asyncio.get_running_loop().run_in_executor(None, int)
            await client.close()
        return using.result()

    with silent:
        assert asyncio.run(both()) == ("closed" if ask == "events" else [])


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")
def test_a_signal_handler_may_close_the_client_during_a_request(silent: Raw) -> None:
    with silent, Client(str(silent.location)) as client:
        before = signal.signal(signal.SIGUSR1, lambda *_: client.close())
        try:
            threading.Thread(target=_once_asked, args=(silent,), daemon=True).start()
            with pytest.raises(ClientClosedError):
                client.events()
        finally:
            signal.signal(signal.SIGUSR1, before)


def _once_asked(server: Raw) -> None:
    while not server.heads:
        pass  # it has not asked yet
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def test_a_request_is_sent_while_another_one_backs_off(monkeypatch: pytest.MonkeyPatch) -> None:
    resting = threading.Event()

    def rest(client: Client, seconds: float) -> None:
        resting.set()
        client._wake.get()
        client._wake.put(None)

    monkeypatch.setattr(Client, "_rest", rest)
    with raw(http(500), http(200, body(EVENT))) as server, Client(str(server.location)) as client:
        troubled = threading.Thread(target=_until_closed, args=(client,))
        troubled.start()
        assert resting.wait(20)
        assert len(client.events(timeout=0.0)) == 1
        client.close()
        troubled.join(20)
        assert not troubled.is_alive()


def _until_closed(client: Client) -> None:
    with pytest.raises(ClientClosedError):
        client.events()


def _events(url: str) -> object:
    with Client(url) as client:
        return client.events(timeout=0.0)


def _async_events(url: str) -> object:
    async def asked() -> object:
        async with AsyncClient(url) as client:
            return await client.events(timeout=0.0)

    return asyncio.run(asked())


@pytest.mark.parametrize("events", [_events, _async_events])
def test_a_refused_connection_is_reported(events: Callable[[str], object]) -> None:
    with pytest.raises(EndpointUnavailableError, match=r"127\.0\.0\.1:1 .*refused"):
        events("http://127.0.0.1:1")


def test_no_endpoint_found_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from forewarn.client.discovery import endpoint

    monkeypatch.delenv("FOREWARN_METADATA", raising=False)
    monkeypatch.setattr(endpoint, "WELL_KNOWN", endpoint.parse_endpoint("http://127.0.0.1:1"))
    with (
        Client() as client,
        pytest.raises(EndpointNotFoundError, match=r"127\.0\.0\.1:1 refuses connections"),
    ):
        client.events(timeout=0.0)


def test_a_single_request_leaves_time_for_an_answer() -> None:
    with raw(http(200, body(EVENT))) as server:
        for events in (_events, _async_events):
            assert len(events(str(server.location))) == 1  # type: ignore[arg-type]


OTHERS = {**EVENT, "EventId": "A", "Resources": ["web_1"]}
PAUSE = {**EVENT, "EventId": "B", "EventType": "Freeze", "DurationInSeconds": 5}
OWN = [
    http(200, body(OTHERS, PAUSE, EVENT), '"1"'),
    http(200, b'{"name":"web_0"}'),
]


def _own_changes(url: str) -> Change:
    with Client(url, interval=timedelta(milliseconds=50)) as client:
        return next(client.watch(mine=True, min_freeze=timedelta(seconds=10)))


def _own_changes_async(url: str) -> Change:
    async def first() -> Change:
        async with AsyncClient(url, interval=timedelta(milliseconds=50)) as client:
            return await anext(client.watch(mine=True, min_freeze=timedelta(seconds=10)))

    return asyncio.run(first())


@pytest.mark.parametrize("first", [_own_changes, _own_changes_async])
def test_both_clients_can_filter_the_events_of_this_machine(first: Callable[[str], Change]) -> None:
    with raw(*OWN) as server:
        change = first(str(server.location))
    assert (change.kind, change.event.id) == ("appeared", EVENT["EventId"])


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_invalid_timeout_is_refused_at_once(
    kind: type[Client] | type[AsyncClient],
) -> None:
    client = kind("http://127.0.0.1:1")
    for duration in (-1, float("nan"), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match=r"^min_freeze must be 0 or more seconds"):
            client.watch(min_freeze=duration)
    with pytest.raises(ValueError, match=r"must be 0\.001 to 15 seconds, not 20"):
        kind("http://127.0.0.1:1", interval=timedelta(seconds=20))


def test_a_timeout_may_be_a_timedelta_and_not_negative() -> None:
    with Client("http://127.0.0.1:1") as client:
        with pytest.raises(EndpointUnavailableError):
            client.events(timeout=timedelta(0))
        with pytest.raises(ValueError, match=r"^timeout must be 0 or more seconds.*, not -1$"):
            client.events(timeout=-1)


def _watched(client: AsyncClient) -> Coroutine[object, object, object]:
    return anext(client.watch())


@pytest.mark.parametrize(
    "use",
    [
        AsyncClient.__aenter__,
        AsyncClient.events,
        AsyncClient.identity,
        lambda client: client.approve("x"),
        _watched,
    ],
)
def test_under_another_library_than_asyncio_the_async_client_is_refused(
    use: Callable[[AsyncClient], Coroutine[object, object, object]],
) -> None:
    coroutine = use(AsyncClient("http://127.0.0.1:1"))
    with pytest.raises(RuntimeError, match=r"needs asyncio.*trio.*Client .*to_thread"):
        coroutine.send(None)  # as any library for coroutines does
