"""Bytes that are held for callers: bounded for each, and nobody waits because of others."""

from __future__ import annotations

from forewarn.metadata.endpoint.limits import UNKNOWN_CALLER, BufferLimits, Limits, share_of

LIMITS = Limits(max_buffered_per_machine=100, max_buffered=300, max_body=80)
ONE, TWO, THREE = object(), object(), object()  # connections


def test_a_machine_at_its_share_waits_except_for_one_connection() -> None:
    buffered = BufferLimits(LIMITS)
    buffered.change("a", 99)
    assert buffered.full("a", ONE, 9) == ""
    buffered.change("a", 1)
    assert buffered.full("a", ONE, 9) == ""
    assert buffered.full("a", TWO, 9) == "max_buffered_per_machine"
    assert buffered.full("a", ONE, 9) == "", "it comes to its end"
    assert buffered.full("b", TWO, 9) == ""
    buffered.finish("a", ONE)
    assert buffered.full("a", THREE, 0) == "max_buffered_per_machine", "which holds nothing"
    assert buffered.full("a", TWO, 9) == "", "then it is another's turn"
    assert buffered.full("a", ONE, 9) == "max_buffered_per_machine"


def test_a_machine_does_not_wait_because_of_others() -> None:
    buffered = BufferLimits(LIMITS)
    for name in "abc":
        buffered.change(name, 90)
    buffered.change("d", 60)
    assert buffered.total >= LIMITS.max_buffered
    assert buffered.full("a", ONE, 9) == "max_buffered", "more than its part of a quarter"
    assert buffered.full("a", TWO, 9) == "max_buffered"
    assert buffered.full("d", ONE, 9) == ""
    assert buffered.full("e", ONE, 9) == "", "one that holds nothing"


def test_a_machine_at_its_limit_comes_to_an_end_however_many_others_hold_a_little() -> None:
    buffered = BufferLimits(LIMITS)
    for n in range(20):
        buffered.change(f"other{n}", 1)
    buffered.change("a", 100)
    assert buffered.total < LIMITS.max_buffered
    assert buffered.full("a", ONE, 9) == ""
    assert buffered.full("a", TWO, 9) == "max_buffered_per_machine"


def test_a_waiting_connection_is_woken_once_when_its_machine_releases_bytes() -> None:
    buffered, woken = BufferLimits(LIMITS), list[str]()
    buffered.change("a", 100)
    buffered.wait("a", lambda: woken.append("a"))
    buffered.wait("b", lambda: woken.append("b"))
    buffered.change("a", 5)
    assert woken == []
    buffered.change("a", -5)
    buffered.change("a", -5)
    assert woken == ["a"]


def test_all_waiting_connections_are_woken_when_there_is_room() -> None:
    buffered, woken = BufferLimits(LIMITS), list[str]()
    for name in "abcd":
        buffered.change(name, 90)
        buffered.wait(name, lambda name=name: woken.append(name))  # type: ignore[misc]
    buffered.change("a", -90)
    assert sorted(woken) == ["a", "b", "c", "d"]


def test_a_closed_connection_is_not_woken() -> None:
    buffered, woken = BufferLimits(LIMITS), list[str]()

    def wake() -> None:
        woken.append("a")

    buffered.change("a", 100)
    buffered.wait("a", wake)
    buffered.cancel_wait("a", wake)
    buffered.change("a", -100)
    assert woken == []
    assert (buffered.total, buffered.held("a")) == (0, 0)


def test_unknown_callers_share_one_limit() -> None:
    assert share_of("web_0") == "web_0"
    assert share_of(f"{UNKNOWN_CALLER}10.0.0.1") == share_of(f"{UNKNOWN_CALLER}10.0.0.2")
