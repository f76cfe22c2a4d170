"""When a lease is over, by the clock of who watches it."""

from __future__ import annotations

from forewarn.store.lease_watch import LeaseWatch


def test_a_lease_is_over_once_it_was_seen_unchanged_for_its_length() -> None:
    now = 1_000.0
    watch = LeaseWatch(lambda: now)
    assert watch.left((1, 7), 6.0) == 6.0
    now += 4.0
    assert watch.left((1, 7), 6.0) == 2.0
    assert watch.left((1, 8), 6.0) == 6.0  # it was renewed
    now += 5.9
    assert watch.left((1, 8), 6.0) > 0.0
    now += 0.2
    assert watch.left((1, 8), 6.0) == 0.0
    assert watch.left((2, 8), 6.0) == 6.0  # somebody else has it


def test_the_length_of_a_lease_is_that_of_its_holder() -> None:
    now = 0.0
    watch = LeaseWatch(lambda: now)
    watch.left("value", 30.0)
    now = 29.0
    assert watch.left("value", 30.0) == 1.0
    assert watch.left("value", 6.0) == 0.0
