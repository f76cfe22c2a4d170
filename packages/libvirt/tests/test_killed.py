"""kill -9 of control, of a driver process and of libvirtd, while events of each type are carried
out on real domains: each happens once, and none is lost.

The domains have nothing to boot. In each round there are some for each type, whose events begin one
after the other, and the process is killed when libvirt has reported so much of all of them: so each
event is at another point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import libvirt
import pytest

from helpers.libvirt_hosts import Hosts
from helpers.waiting import until

# For each type: the host on which its machines are afterwards, and how often they were started.
TYPES = {
    "Freeze": ("h1", 0),
    "Reboot": ("h1", 1),
    "Redeploy": ("h2", 1),
    "Preempt": ("", 0),
}
EACH = 4  # machines of each type: with three processes to kill, twelve points of it
STEP = 3  # reports of libvirt between two events
MIGRATED, REPORTS = 4, 16  # machines of a host, and reports of libvirt before the process is killed
SETTINGS = 'start_grace = "1s"'  # after an outage, which each kill of control is
NOW = {"notice": 0, "short_notice": True}
_KINDS = (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("killed"), SETTINGS) as hosts:
        yield hosts


class Counter:
    """Counts what libvirt reports."""

    def __init__(self, hosts: Hosts) -> None:
        self.count = 0
        self._registered = [
            (host.connection, host.connection.domainEventRegisterAny(None, kind, self._note, None))
            for host in hosts.hosts.values()
            for kind in _KINDS
        ]

    def _note(self, *_: Any) -> None:
        self.count += 1

    def close(self) -> None:
        for connection, number in self._registered:
            if connection.isAlive():
                connection.domainEventDeregisterAny(number)


@pytest.fixture
def counter(hosts: Hosts) -> Iterator[Counter]:
    until(hosts.connected, "the nodes and driver processes of both hosts")
    counter = Counter(hosts)
    yield counter
    counter.close()


def kill_control(hosts: Hosts) -> None:
    hosts.kill(hosts.control)
    hosts.start_control()


def kill_driver(hosts: Hosts) -> None:
    hosts.kill(hosts.hosts["h1"].driver)
    hosts.hosts["h1"].start_driver()


def kill_libvirtd(hosts: Hosts) -> None:
    hosts.kill(hosts.hosts["h1"].libvirtd)
    hosts.hosts["h1"].start_libvirtd()


KILLS = pytest.mark.parametrize("kill", [kill_control, kill_driver, kill_libvirtd])


def finish(hosts: Hosts, kill: Callable[[Hosts], None], events: Iterable[str]) -> None:
    kill(hosts)
    assert {hosts.until_over(event)["status"] for event in events} == {"Finished"}


def check(hosts: Hosts, name: str, host: str, starts: int) -> None:
    """Check where a machine is and how often it was started, and remove it."""
    there = [host] if host else []
    assert (name, hosts.where(name), hosts.running(name)) == (name, there, there)
    assert (name, hosts.starts(name)) == (name, 1 + starts), hosts.log(name)
    assert hosts.machine(name)["gone"] or hosts.machine(name)["host"] == host
    hosts.remove(name)


@KILLS
def test_whatever_is_killed_each_event_happens_once(
    hosts: Hosts, counter: Counter, kill: Callable[[Hosts], None]
) -> None:
    machines = {
        f"{type}-{number}-{kill.__name__[5:]}".lower(): type
        for number in range(EACH)
        for type in TYPES
    }
    for name in machines:
        hosts.start_idle(name, "h1")
    stops, counter.count = hosts.commands("stop"), 0
    events = []
    for number, (name, type) in enumerate(machines.items()):
        until(lambda: counter.count >= number * STEP, "reports of libvirt")  # noqa: B023
        events.append(hosts.schedule(type, name, duration=2, **NOW))
    finish(hosts, kill, events)
    assert hosts.commands("stop") - stops == EACH  # by the Freezes
    for name, type in machines.items():
        check(hosts, name, *TYPES[type])


@KILLS
def test_whatever_is_killed_machines_are_migrated_once(
    hosts: Hosts, counter: Counter, kill: Callable[[Hosts], None]
) -> None:
    names = [f"{kill.__name__[5:]}-{number}" for number in range(MIGRATED)]
    for name in names:
        hosts.start_idle(name, "h1")
    counter.count = 0
    hosts.post("/v1/hosts/h1/maintain", {"mode": "live-migration", **NOW})
    events = set.union(*(hosts.events(name) for name in names))
    until(lambda: counter.count >= REPORTS, "reports of libvirt")
    finish(hosts, kill, events)
    for name in names:
        check(hosts, name, "h2", 0)
