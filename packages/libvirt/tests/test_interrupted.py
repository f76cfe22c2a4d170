"""Migrations of real domains that are interrupted at a point that is known: whatever fails there,
each machine runs on its target afterwards, nothing is left where it was, and `moved` is right.

The domains have nothing to boot. A migration is held where memory is about to be copied, by a rule
of the target's packet filter.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import libvirt
import pytest

from helpers.guest_firewall import within
from helpers.libvirt_hosts import HOSTS, Hosts
from helpers.waiting import until

SETTINGS = 'start_grace = "1s"'
LIBVIRT = 16514  # its port for TLS

_numbers = count()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("interrupted"), SETTINGS) as hosts:
        yield hosts


@pytest.fixture
def name(hosts: Hosts) -> Iterator[str]:
    """The only machine on h1."""
    until(hosts.connected, "the nodes and driver processes of both hosts")
    hosts.start_idle(name := f"idle-{next(_numbers)}", "h1")
    yield name
    hosts.remove(name)


def begin(hosts: Hosts, name: str, is_held: Callable[[], bool]) -> str:
    """Have h1 emptied, and wait until the migration is held. Return the event."""
    body = {"mode": "live-migration", "notice": 0, "short_notice": True}
    hosts.post("/v1/hosts/h1/maintain", body)
    [event] = hosts.events(name)
    until(is_held, f"the migration of {name}")
    return event


def check(hosts: Hosts, name: str, event: str) -> Any:
    over = hosts.until_over(event)
    assert over["status"] == "Finished"
    assert (hosts.where(name), hosts.running(name)) == (["h2"], ["h2"])
    assert hosts.starts(name) == 1
    assert hosts.machine(name)["host"] == "h2"
    assert hosts.hosts["h1"].domain(name) is None
    return over


def test_a_network_that_is_cut_in_mid_migration_delays_it(hosts: Hosts, name: str) -> None:
    """Of all connections of the host: to control, to the other libvirt, and to the other QEMU."""
    h1 = hosts.hosts["h1"]

    def switch(state: str) -> None:
        within(h1.namespace, lambda ip: ip.link("set", ifname="up0", state=state))

    def is_disconnected() -> bool:
        return bool(hosts.api("GET", "/v1/hosts/h1").json()["driver"]["state"] != "joined")

    with hosts.hosts["h2"].held() as is_held:
        event = begin(hosts, name, is_held)
        switch("down")
    try:
        until(is_disconnected, "a lost driver process")
        assert hosts.event(event)["status"] == "Started"
    finally:
        switch("up")
    check(hosts, name, event)


def test_a_machine_that_was_not_taken_over_goes_on_and_is_migrated_again(
    hosts: Hosts, name: str
) -> None:
    """libvirt leaves it stopped where it was, since it might run on the target."""
    h1, h2 = hosts.hosts["h1"], hosts.hosts["h2"]
    event = copy_all(hosts, name)
    hosts.kill(h1.libvirtd)
    hosts.kill(h2.libvirtd)
    h2.start_libvirtd()
    until(lambda: h2.domain(name) is None, f"the end of {name} on h2")
    h1.start_libvirtd()
    check(hosts, name, event)


def test_a_machine_that_was_taken_over_is_removed_where_it_was(hosts: Hosts, name: str) -> None:
    """Where libvirt leaves it stopped as well: nobody has told it."""
    h1, h2 = hosts.hosts["h1"], hosts.hosts["h2"]
    event = copy_all(hosts, name)
    with h1.rule("deaf", f"ip saddr {HOSTS['h2']} tcp sport {LIBVIRT} drop"):
        h2.libvirtd.process.send_signal(signal.SIGCONT)
        until(lambda: h2.domain(name).state()[0] == libvirt.VIR_DOMAIN_RUNNING, f"{name} on h2")
        hosts.kill(h1.libvirtd)
    h1.start_libvirtd()
    check(hosts, name, event)


def copy_all(hosts: Hosts, name: str) -> str:
    """Bring a migration to where everything is copied, and the libvirt of the target, which is
    stopped, has not let the machine run there. Return the event."""
    h1, h2 = hosts.hosts["h1"], hosts.hosts["h2"]
    with h2.held() as is_held:
        event = begin(hosts, name, is_held)
        h2.libvirtd.process.send_signal(signal.SIGSTOP)
    until(lambda: h1.phase(name) == "perform3_done", f"the copy of {name}")
    return event
