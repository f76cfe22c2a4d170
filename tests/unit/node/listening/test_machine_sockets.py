"""A port of 127.0.0.1 for each machine: opened when it is asked for, closed with the machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from forewarn.metadata.endpoint.callers import Identity
from forewarn.node import Address, Config, Node
from forewarn.node.config import Addresses
from forewarn.node.dev import on_loopback
from forewarn.node.listening import sockets
from forewarn.node.listening.machine_sockets import FIRST_PORT
from forewarn.service.fleet import read
from forewarn.service.fleet.read import Fleet
from forewarn.testing import RefusedError, Service
from helpers.free_ports import free_port
from helpers.waiting import LIMIT

NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"


@pytest.fixture(params=[False, True], ids=["without-front", "with-front"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with Service(addresses="ports", front=request.param) as service:
        yield service


def name_at(url: str) -> str:
    """The machine as which a request to this URL is answered."""
    with urlopen(Request(url + NAME, headers={"Metadata": "true"}), timeout=LIMIT) as answer:
        return answer.read().decode()  # type: ignore[no-any-return]


def fleet(*machines: str) -> Fleet:
    lines = (f"  - {{kind: standalone, name: {n}, machines: [{{name: {n}}}]}}" for n in machines)
    return read.parse("\n".join(["groups:", *lines]))


def apply(service: Service, *machines: str) -> None:
    session = service._session
    work = session.node.fleet_apply.fleet(fleet(*machines), by="test", force=True)
    session.run(work)


def port(url: str) -> int:
    return urlsplit(url).port or 0


def test_a_request_to_a_machines_port_is_its_own(service: Service) -> None:
    web = service.scale_set("web", 3)
    assert [name_at(machine.url) for machine in web] == ["web_0", "web_1", "web_2"]
    assert {urlsplit(machine.url).hostname for machine in web} == {"127.0.0.1"}
    assert [machine.url for machine in web] == [machine.url for machine in web]


def test_another_port_is_answered_as_the_default_machine() -> None:
    with Service(fleet("a", "b"), addresses="ports", default_machine="b") as service:
        assert name_at(service.url()) == "b"
        assert name_at(service["a"].url) == "a"


def test_only_ports_that_were_asked_for_are_open(service: Service) -> None:
    web = service.scale_set("web", 300)
    assert name_at(web[7].url) == "web_7"
    assert len(service._session.node.endpoint.callers.by_port) == 1


def test_hundreds_of_machines_have_a_port_each(service: Service) -> None:
    web = service.scale_set("web", 300)
    urls = {machine.name: machine.url for machine in web}
    assert len(set(urls.values())) == 300
    assert [name_at(urls[name]) for name in ("web_0", "web_150", "web_299")] == [
        *("web_0", "web_150", "web_299")
    ]


def test_machines_that_come_later_have_a_port_and_those_removed_lose_theirs(
    service: Service,
) -> None:
    apply(service, "a", "b")
    kept, lost = service["a"].url, service["b"].url
    assert name_at(lost) == "b"
    apply(service, "a", "c")  # which gets the loopback address that b had
    with pytest.raises(OSError, match="refused"):
        name_at(lost)
    assert (service["a"].url, name_at(kept)) == (kept, "a")
    assert name_at(service["c"].url) == "c"
    with pytest.raises(RefusedError, match="b"):
        service["b"]


def test_the_listing_of_the_control_api_has_the_ports(service: Service) -> None:
    service.scale_set("web", 2)
    with urlopen(f"{service.control_url}/v1/machines") as answer:
        assert b'"metadata_url":""' in answer.read()  # nobody has asked for a URL yet
    urls = [machine.url for machine in service.machines]
    with urlopen(f"{service.control_url}/v1/machines") as answer:
        listing = answer.read().decode()
    assert all(f'"metadata_url":"{url}"' in listing for url in urls)


def test_a_kept_connection_is_that_of_the_machine(service: Service) -> None:
    web = service.scale_set("web", 2)
    target = "/metadata/scheduledevents?api-version=2020-07-01"
    event = web[1].restart()
    connection = HTTPConnection("127.0.0.1", port(web[1].url), timeout=LIMIT)
    for _ in range(3):
        connection.request("GET", target, headers={"Metadata": "true"})
        assert event.id.encode() in connection.getresponse().read()
    connection.close()
    assert service._session.node.poll_index.polls("web_1") is not None
    assert service._session.node.poll_index.polls("web_0") is None


def config(first_port: int) -> Config:
    return Config(
        fleet=on_loopback(fleet("a", "b", "c")),
        identity=Identity.TARGET,
        metadata=Address("127.0.0.1", first_port),
        whole_loopback=True,
        addresses=Addresses.PORTS,
    )


async def opened_ports(first_port: int) -> dict[str, int]:
    """The ports of machines that are open before anybody has asked for them, by machine."""
    async with Node(config(first_port)) as node:
        opened = set(node.endpoint.callers.by_port)
        groups = node.store.groups.values()
        ports = {m.name: port(node.url_of(m)) for group in groups for m in group.machines}
        assert set(ports.values()) == opened
        return ports


def test_ports_follow_one_that_was_chosen_and_skip_what_is_in_use() -> None:
    first_port = free_port(FIRST_PORT, FIRST_PORT + 1, FIRST_PORT + 2)
    taken = first_port + FIRST_PORT + 1  # the second machine's
    with socket.create_server(("127.0.0.1", taken)):
        ports = asyncio.run(opened_ports(first_port))
    assert (ports["a"], ports["c"]) == (taken - 1, taken + 1)
    assert ports["b"] not in (0, taken)


def test_where_there_is_one_loopback_address_ports_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "SECOND_LOOPBACK", "192.0.2.1")  # which no machine has
    sockets.has_many_loopback_addresses.cache_clear()
    try:
        with Service() as service:
            assert urlsplit(service.machine("a").url).hostname == "127.0.0.1"
    finally:
        sockets.has_many_loopback_addresses.cache_clear()


def test_an_unknown_kind_of_addresses_is_refused() -> None:
    with pytest.raises(ValueError, match=r"addresses='port'.*auto, loopback, ports"):
        Service(addresses="port")  # type: ignore[arg-type]
