"""This process inside a machine: clients that know only 169.254.169.254, and what they reach."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import httpx
import pytest
import requests

from forewarn.testing import Group, Machine, RefusedError, Service

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
URL = "http://169.254.169.254"
HEADERS = {"Metadata": "true"}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture
def web(service: Service) -> Group:
    return service.scale_set("web", 3)


def place_of(machine: Machine) -> tuple[str, int]:
    """Where its endpoint listens."""
    parts = urlsplit(machine.url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


def by_urllib() -> Any:
    with urlopen(Request(URL + TARGET, headers=HEADERS)) as answer:
        return json.load(answer)


def by_http_client() -> Any:
    connection = http.client.HTTPConnection("169.254.169.254")
    connection.request("GET", TARGET, headers=HEADERS)
    found = json.load(connection.getresponse())
    connection.close()
    return found


def by_requests() -> Any:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(URL + TARGET, headers=HEADERS).json()


def by_httpx() -> Any:
    with httpx.Client(trust_env=False) as client:
        return client.get(URL + TARGET, headers=HEADERS).json()


def by_async_httpx() -> Any:
    async def ask() -> Any:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(URL + TARGET, headers=HEADERS)).json()

    return asyncio.run(ask())


def by_streams() -> Any:
    async def ask() -> Any:
        reader, writer = await asyncio.open_connection("169.254.169.254", 80)
        writer.write(f"GET {TARGET} HTTP/1.0\r\nMetadata: true\r\n\r\n".encode())
        output = await reader.read()
        writer.close()
        await writer.wait_closed()
        return json.loads(output.partition(b"\r\n\r\n")[2])

    return asyncio.run(ask())


def by_ipv6() -> Any:
    with socket.socket(socket.AF_INET6) as line:
        line.connect(("::ffff:169.254.169.254", 80, 0, 0))
        return _over(line)


def by_connect_ex() -> Any:
    with socket.socket() as line:
        assert line.connect_ex(("169.254.169.254", 80)) == 0
        return _over(line)


def _over(line: socket.socket) -> Any:
    line.sendall(f"GET {TARGET} HTTP/1.0\r\nMetadata: true\r\n\r\n".encode())
    with line.makefile("rb") as file:
        return json.loads(file.read().partition(b"\r\n\r\n")[2])


CLIENTS = (
    *(by_urllib, by_http_client, by_requests, by_httpx, by_async_httpx),
    *(by_streams, by_ipv6, by_connect_ex),
)


def name() -> str:
    """As whom one asks."""
    with urlopen(Request(URL + NAME, headers=HEADERS)) as answer:
        found: bytes = answer.read()
    return found.decode()


@pytest.mark.parametrize("ask", CLIENTS)
def test_a_client_with_the_real_address_reaches_the_machine(
    web: Group, ask: Callable[[], Any]
) -> None:
    event = web[0].restart()
    with web[1].inside() as machine:
        assert ask()["Events"][0]["EventId"] == event.id
    assert list(event.seen_by) == [machine.name] == ["web_1"]


def test_sockets_outside_the_block_are_not_redirected(web: Group) -> None:
    before = socket.socket.connect, socket.socket.connect_ex
    with web[0].inside():
        assert socket.socket.connect is not before[0]
    with pytest.raises(ZeroDivisionError), web[0].inside():
        1 / 0  # noqa: B018
    assert (socket.socket.connect, socket.socket.connect_ex) == before
    assert not {"connect", "connect_ex"} & set(vars(socket.socket))


def test_a_patch_of_another_library_is_restored(
    web: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    plain = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        asked.append(address)
        plain(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    with web[0].inside():
        by_urllib()
    assert vars(socket.socket)["connect"] is connect
    assert asked == [place_of(web[0])], "and it was asked for the machine, not for the real address"


def test_the_proactor_event_loop_is_redirected(web: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    class Proactor:
        def connect(self, connection: socket.socket, address: Any) -> Any:
            return address

    windows = SimpleNamespace(IocpProactor=Proactor)
    monkeypatch.setitem(sys.modules, "asyncio.windows_events", cast(Any, windows))
    before = Proactor.connect
    real, elsewhere = ("169.254.169.254", 80), ("127.0.0.1", 1)
    with socket.socket() as line:
        with web[1].inside():
            assert Proactor().connect(line, real) == place_of(web[1])
            assert Proactor().connect(line, elsewhere) == elsewhere
        assert Proactor.connect is before
        assert Proactor().connect(line, real) == real


def test_connections_to_elsewhere_go_there(web: Group) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        web[0].inside(),
        socket.create_connection(listener.getsockname()) as line,
    ):
        assert line.getpeername() == listener.getsockname()
        left, right = socket.socketpair()
        left.close()
        right.close()


def test_connections_to_other_ports_of_the_real_address_are_refused(web: Group) -> None:
    with web[0].inside(), socket.socket() as line:
        with pytest.raises(ConnectionRefusedError, match="on port 80 only, not 8080"):
            line.connect(("169.254.169.254", 8080))
        assert line.connect_ex(("169.254.169.254", 8080)) != 0


@pytest.mark.parametrize(
    "host", [b"169.254.169.254", "2852039166", "0xa9.254.43518", "0251.0376.0251.0376"]
)
def test_the_real_address_is_recognized_in_any_notation(web: Group, host: Any) -> None:
    with web[0].inside(), socket.socket() as connection:
        connection.connect((host, 80))
        assert connection.getpeername() == place_of(web[0])


def test_nested_blocks_use_the_innermost_machine(web: Group) -> None:
    with web[0].inside():
        with web[1].inside():
            assert name() == "web_1"
        assert name() == "web_0"


def test_threads_started_inside_a_block_are_redirected(web: Group) -> None:
    output: list[str] = []
    with web[2].inside():
        thread = threading.Thread(target=lambda: output.append(name()))
        thread.start()
        thread.join()
    assert output == ["web_2"]


def test_threads_can_be_inside_different_machines(web: Group) -> None:
    together = threading.Barrier(3, timeout=30)
    output: dict[str, str] = {}

    def live(machine: Machine) -> None:
        with machine.inside():
            together.wait()
            output[machine.name] = name()
            together.wait()

    threads = [threading.Thread(target=live, args=(machine,)) for machine in web]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert output == {"web_0": "web_0", "web_1": "web_1", "web_2": "web_2"}


def test_tasks_of_one_loop_can_be_inside_different_machines(web: Group) -> None:
    async def live(machine: Machine, all_are_in: asyncio.Barrier) -> str:
        with machine.inside():
            await all_are_in.wait()
            async with httpx.AsyncClient(trust_env=False) as client:
                output = (await client.get(URL + NAME, headers=HEADERS)).text
            await all_are_in.wait()
            return output

    async def together() -> list[str]:
        all_are_in = asyncio.Barrier(3)
        return await asyncio.gather(*(live(machine, all_are_in) for machine in web))

    assert asyncio.run(together()) == ["web_0", "web_1", "web_2"]


def test_a_thread_with_several_possible_machines_is_refused(web: Group) -> None:
    refusals: list[str] = []

    def ask() -> None:
        try:
            socket.create_connection(("169.254.169.254", 80))
        except ConnectionRefusedError as refused:
            refusals.append(str(refused))

    with web[0].inside(), web[1].inside():
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert "web_0, web_1" in refusals[0]


def test_a_block_cannot_be_entered_twice(web: Group) -> None:
    inside = web[0].inside()
    with inside, pytest.raises(RefusedError, match=r"call inside\(\) for another one"):
        inside.__enter__()


def test_a_polling_client_in_a_thread_sees_the_whole_life_while_the_clock_plays(
    service: Service, web: Group
) -> None:
    """An application as it is: it knows one address, and polls until it is told to stop."""
    seen: list[list[str]] = []
    stop, once = threading.Event(), threading.Event()

    def poll() -> None:
        while not stop.wait(0.005):
            statuses = [event["EventStatus"] for event in by_urllib()["Events"]]
            if seen[-1:] != [statuses]:
                seen.append(statuses)
            once.set()

    with web[0].inside():
        application = threading.Thread(target=poll)
        application.start()
        assert once.wait(30)
        with service.during(web[0].restart(), play=True):
            pass
        stop.set()
        application.join()
    assert seen == [[], ["Scheduled"], ["Started"], []]
