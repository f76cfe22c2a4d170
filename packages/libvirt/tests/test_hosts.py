"""Two hosts with real guests: what each event does to a guest, as the guest itself sees it."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import pytest

from helpers.libvirt_hosts import Guest, Hosts, Poll


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def guest(hosts: Hosts) -> Guest:
    return hosts.guest("web-0", 11, "h1")


def stood_still(before: Poll, after: Poll) -> float:
    """Return for how many seconds a guest was not running between two polls: the date went on, and
    its own clock did not. Dates are whole seconds."""
    dates = parsedate_to_datetime(after.date) - parsedate_to_datetime(before.date)
    return dates.total_seconds() - (after.uptime - before.uptime)


def test_a_frozen_guest_stands_still_and_keeps_its_memory(hosts: Hosts, guest: Guest) -> None:
    before = guest.last()
    event = hosts.schedule("Freeze", guest.name, duration=9)
    guest.until_seen(event, "Scheduled")
    over = hosts.until_over(event)
    guest.until_polled()
    after = guest.last()
    assert (over["status"], over["not_back"]) == ("Finished", [])
    assert after.boot == before.boot
    assert stood_still(before, after) >= 9 - 1
    assert all(poll.document is not None for poll in guest.polls())
