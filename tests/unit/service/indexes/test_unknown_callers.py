"""The table of callers that are no machine: what it keeps, and that it does not grow."""

from __future__ import annotations

from forewarn.core.retiming import Correction
from forewarn.core.time import HOUR
from forewarn.service.indexes.unknown_callers import MAX_ADDRESSES, UnknownCaller, UnknownCallers

AT = 1_800_000_000_000_000


def test_a_caller_is_named_with_its_first_and_last_request() -> None:
    callers = UnknownCallers()
    for at in (AT, AT + 5, AT + 9):
        callers.record("10.0.0.9", at)
    callers.record("10.0.0.8", AT + 10)
    assert callers.all() == [
        UnknownCaller("10.0.0.8", AT + 10, AT + 10, 1),
        UnknownCaller("10.0.0.9", AT, AT + 9, 3),
    ]


def test_many_new_addresses_do_not_displace_callers_that_keep_asking() -> None:
    callers = UnknownCallers()
    callers.record("10.0.0.9", AT)
    for n in range(20 * MAX_ADDRESSES):
        callers.record(f"2001:db8::{n:x}", AT + n)
        if n % 100 == 0:
            callers.record("10.0.0.9", AT + n)
    assert len(callers.all()) <= MAX_ADDRESSES
    steady = next(caller for caller in callers.all() if caller.address == "10.0.0.9")
    assert (steady.first, steady.requests) == (AT, 206)
    assert f"2001:db8::{20 * MAX_ADDRESSES - 1:x}" in {c.address for c in callers.all()}


def test_only_requests_of_the_last_hour_are_recent() -> None:
    callers = UnknownCallers()
    callers.record("10.0.0.8", AT)
    callers.record("10.0.0.9", AT + 1)
    assert [callers.recent(AT + HOUR), callers.recent(AT + HOUR + 1)] == [2, 1]


def test_what_nodes_have_recorded_is_added_up() -> None:
    node, callers = UnknownCallers(), UnknownCallers()
    node.record("10.0.0.9", AT + 5)
    node.record("10.0.0.9", AT + 6)
    callers.record("10.0.0.9", AT + 7)
    for calls in node.take():
        callers.add(calls)
    assert callers.all() == [UnknownCaller("10.0.0.9", AT + 5, AT + 7, 3)]
    assert node.take() == []


def test_an_address_that_a_machine_gets_is_forgotten() -> None:
    callers = UnknownCallers()
    callers.record("10.0.0.9", AT)
    elsewhere, there = (
        UnknownCaller("10.0.0.9", AT, AT, 1, host=host) for host in ("host-a", "host-b")
    )
    callers.add(elsewhere)
    callers.add(there)
    callers.forget(["10.0.0.7", "10.0.0.9"], "host-b")
    assert callers.all() == [elsewhere]  # where another machine may have that address


def test_times_that_a_clock_dated_too_late_are_moved_back() -> None:
    callers = UnknownCallers()
    callers.record("10.0.0.9", AT - 5)
    callers.record("10.0.0.9", AT + 100)
    callers.correct(Correction(AT, 60))
    assert callers.all() == [UnknownCaller("10.0.0.9", AT - 5, AT + 40, 2)]
