"""What somebody does to real domains behind the back of a service whose inventory follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import libvirt
import pytest

from helpers.libvirt_hosts import PAGE, Hosts
from helpers.waiting import LIMIT, until

FOLLOW = """
inventory = "follow"
on_crash = "restart"
max_removals = "20"
"""
MACHINE = """<machine xmlns='urn:forewarn:machine:1' group='web' update_domain='1'
address='10.77.0.{}'/>"""
PEER_TO_PEER = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PEER2PEER
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
)

_numbers = count(11)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("by-hand"), FOLLOW) as hosts:
        hosts.define("first", "h2")
        machine = {"name": "first", "host": "h2", "update_domain": 0}
        group = {"kind": "availability-set", "machines": [machine]}
        answer = hosts.api("PUT", "/v1/groups/web", group)
        assert answer.status in (200, 201), answer.body
        yield hosts


@pytest.fixture
def name(hosts: Hosts) -> str:
    """A machine that the service knows because somebody has defined its domain on h1."""
    number = next(_numbers)
    hosts.define(name := f"web_{number}", "h1", metadata=MACHINE.format(number))
    until_host(hosts, name, "h1")
    return name


def until_host(hosts: Hosts, name: str, host: str) -> Any:
    """Wait until a machine is on a host, in the inventory."""

    def there() -> Any:
        answer = hosts.api("GET", f"/v1/machines/{name}")
        return answer.json() if answer.status == 200 and answer.json()["host"] == host else None

    return until(there, f"{name} on {host}")


def test_a_domain_that_was_defined_is_added(hosts: Hosts, name: str) -> None:
    machine = hosts.machine(name)
    assert (machine["group"], machine["update_domain"]) == ("web", 1)
    assert machine["addresses"] == [f"10.77.0.{name.removeprefix('web_')}"]
    assert machine["vm_id"].lower() == hosts.hosts["h1"].domain(name).UUIDString()


def test_a_domain_that_is_described_as_on_the_page_is_added(hosts: Hosts) -> None:
    """docs/operate/libvirt.md, whose line is run as it is there."""
    [line] = re.findall(r'(?ms)^virsh metadata web-0 .*?/>"$', PAGE.read_text())
    hosts.define("web-0", "h1")
    uri = {"LIBVIRT_DEFAULT_URI": hosts.hosts["h1"].uri}
    hosts.hosts["h1"].namespace.run(["sh", "-c", line], env=uri, timeout=LIMIT)
    machine = until_host(hosts, "web-0", "h1")
    assert (machine["group"], machine["update_domain"]) == ("web", 0)
    assert machine["addresses"] == ["10.0.0.11"]


def test_a_domain_that_was_migrated_is_followed(hosts: Hosts, name: str) -> None:
    """What was planned because of its old host is withdrawn."""
    event = hosts.schedule("Redeploy", name)
    hosts.hosts["h1"].domain(name).migrateToURI3("qemu+tls://h2/system", {}, PEER_TO_PEER)
    until_host(hosts, name, "h2")
    assert hosts.event(event)["status"] == "Withdrawn"
    assert (hosts.running(name), hosts.starts(name)) == (["h2"], 1)


def test_a_domain_that_has_crashed_is_started_again(hosts: Hosts, name: str) -> None:
    hosts.hosts["h1"].crash(name)
    until(lambda: hosts.running(name) == ["h1"], f"{name} on h1")
    until(lambda: not hosts.events(name), "the end of its events")
    assert hosts.starts(name) == 2


def test_a_domain_that_was_shut_down_is_left_alone(hosts: Hosts, name: str) -> None:
    hosts.hosts["h1"].domain(name).destroy()
    until(lambda: hosts.machine(name)["drift"] == "stopped", "how it differs")
    assert hosts.events(name) == set()
    assert hosts.running(name) == []


def test_a_domain_that_was_undefined_is_removed(hosts: Hosts, name: str) -> None:
    hosts.hosts["h1"].domain(name).destroy()
    hosts.hosts["h1"].domain(name).undefine()
    until(lambda: hosts.api("GET", f"/v1/machines/{name}").status == 404, f"the end of {name}")


def test_a_libvirt_that_restarts_in_the_middle_of_a_freeze_changes_nothing(
    hosts: Hosts, name: str
) -> None:
    stops = hosts.commands("stop")
    event = hosts.schedule("Freeze", name, duration=4, notice=0, short_notice=True)
    until(lambda: hosts.where(name) == ["h1"] and hosts.running(name) == [], "the Freeze")
    hosts.kill(hosts.hosts["h1"].libvirtd)
    hosts.hosts["h1"].start_libvirtd()
    assert hosts.until_over(event)["status"] == "Finished"
    assert hosts.running(name) == ["h1"]
    assert (hosts.commands("stop") - stops, hosts.starts(name)) == (1, 1)
    assert hosts.machine(name)["host"] == "h1"
