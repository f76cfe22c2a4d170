"""Two hosts with real guests: what each event does to a guest, as the guest itself sees it."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any

import pytest

from helpers.libvirt_hosts import Guest, Hosts, Poll

FREEZE = 9  # seconds
SECOND = 1  # the resolution of dates

_numbers = count(11)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def bystander(hosts: Hosts) -> Guest:
    """A guest to which nothing is done."""
    return hosts.start_guest("db-0", next(_numbers), "h2")


@pytest.fixture
def guest(hosts: Hosts, bystander: Guest) -> Iterator[Guest]:
    """A guest that polls: that of the test before, if it is there and does, or else another one."""
    before = len(bystander.polls())
    latest = max(hosts.guests, key=lambda guest: guest.number)
    if latest is bystander or not hosts.is_usable(latest):
        number = next(_numbers)
        latest = hosts.start_guest(f"web-{number}", number, "h1")
    yield latest
    assert len(bystander.boots()) == 1
    assert all(poll.document is not None for poll in bystander.polls()[before:])


def stood_still(before: Poll, after: Poll) -> float:
    """Return for how many seconds a guest was not running between two polls: the date went on, and
    its own clock did not."""
    dates = parsedate_to_datetime(after.date) - parsedate_to_datetime(before.date)
    return dates.total_seconds() - (after.uptime - before.uptime)


def carried_out(hosts: Hosts, guest: Guest, event: str) -> Any:
    """Wait until an event that the guest has seen beforehand is over, and the guest polls again."""
    guest.until_seen(event, "Scheduled")
    return ended(hosts, guest, event)


def ended(hosts: Hosts, guest: Guest, event: str) -> Any:
    over = hosts.until_over(event)
    assert over["status"] == "Finished"
    if hosts.where(guest.name) and not over["not_back"]:
        guest.until_polled()
    return over


def other(host: str) -> str:
    return "h2" if host == "h1" else "h1"


def test_a_freeze_stops_the_guest_for_its_duration(hosts: Hosts, guest: Guest) -> None:
    before, [host] = guest.last(), hosts.where(guest.name)
    over = carried_out(hosts, guest, hosts.schedule("Freeze", guest.name, duration=FREEZE))
    after = guest.last()
    assert over["not_back"] == []
    assert after.boot == before.boot
    assert stood_still(before, after) >= FREEZE - SECOND
    assert hosts.where(guest.name) == [host]


def test_a_reboot_starts_the_guest_once(hosts: Hosts, guest: Guest) -> None:
    boots, [host] = guest.boots(), hosts.where(guest.name)
    over = carried_out(hosts, guest, hosts.operate(guest.name, "machine", "restart", guest.name))
    assert over["not_back"] == []
    assert len(guest.boots()) == len(boots) + 1
    assert hosts.where(guest.name) == [host]


def test_a_redeploy_starts_the_guest_once_on_the_other_host(hosts: Hosts, guest: Guest) -> None:
    boots, [host] = guest.boots(), hosts.where(guest.name)
    over = carried_out(hosts, guest, hosts.operate(guest.name, "machine", "redeploy", guest.name))
    assert over["not_back"] == []
    assert len(guest.boots()) == len(boots) + 1
    assert hosts.where(guest.name) == [hosts.machine(guest.name)["host"]] == [other(host)]


def test_a_guest_that_has_crashed_is_started_on_the_other_host(hosts: Hosts, guest: Guest) -> None:
    boots, [host] = guest.boots(), hosts.where(guest.name)
    hosts.hosts[host].crash(guest.name)
    over = ended(hosts, guest, hosts.operate(guest.name, "machine", "fail", guest.name, "--yes"))
    assert (over["type"], over["not_back"]) == ("Redeploy", [])
    assert len(guest.boots()) == len(boots) + 1
    assert hosts.where(guest.name) == [hosts.machine(guest.name)["host"]] == [other(host)]


def test_a_guest_goes_on_after_its_live_migration_or_is_not_back(
    hosts: Hosts, guest: Guest, bystander: Guest
) -> None:
    """An emulated guest can hang afterwards, by itself."""
    boots, [host] = guest.boots(), hosts.where(guest.name)
    assert hosts.where(bystander.name) == [other(host)]  # all that are on a host are moved
    polls = len(guest.polls())
    event = hosts.operate(guest.name, "host", "maintain", host, "--type=live-migration")
    over = carried_out(hosts, guest, event)
    assert hosts.where(guest.name) == [hosts.machine(guest.name)["host"]] == [other(host)]
    assert guest.boots() == boots
    if over["not_back"]:
        assert over["not_back"] == [guest.name]
        assert hosts.machine(guest.name)["not_back"]["event"] == event
    else:
        failed = [poll for poll in guest.polls()[polls:] if poll.document is None]
        assert len(failed) <= 1  # that which was being answered when the guest left


def test_a_guest_that_is_silent_after_its_migration_is_not_back_until_it_polls(
    hosts: Hosts, guest: Guest, bystander: Guest
) -> None:
    if hosts.where(guest.name) == hosts.where(bystander.name):  # all that are there are moved
        carried_out(hosts, guest, hosts.operate(guest.name, "machine", "redeploy", guest.name))
    [host], policy = hosts.where(guest.name), {"back_within": 30}  # enough for two polls
    target = hosts.hosts[other(host)]
    assert hosts.api("PATCH", f"/v1/groups/{guest.name}/policy", policy).status == 200
    with target.unheard(guest.address):
        event = hosts.operate(guest.name, "host", "maintain", host, "--type=live-migration")
        over = carried_out(hosts, guest, event)
        assert over["not_back"] == [guest.name]
        assert hosts.machine(guest.name)["not_back"]["event"] == event
        assert hosts.where(guest.name) == [hosts.machine(guest.name)["host"]] == [target.name]
    if hosts.is_usable(guest):
        assert hosts.machine(guest.name)["not_back"] is None


@pytest.mark.parametrize("type", ["Preempt", "Terminate"])
def test_a_guest_is_informed_before_it_is_deleted(hosts: Hosts, guest: Guest, type: str) -> None:
    carried_out(hosts, guest, hosts.schedule(type, guest.name))
    assert all(host.domain(guest.name) is None for host in hosts.hosts.values())
    assert hosts.machine(guest.name)["gone"]
