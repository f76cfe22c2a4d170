"""Memory is given back after much of it was held, once, and not while it is still in use."""

from __future__ import annotations

from forewarn.metadata.endpoint.limits import BufferLimits, Limits
from forewarn.node.heap import TRIM_ABOVE, trim_after_use


def test_memory_is_given_back_once_most_of_it_has_been_released() -> None:
    buffered = BufferLimits(Limits())
    buffered.change("a", TRIM_ABOVE)
    assert not trim_after_use(buffered), "it is still held"
    buffered.change("a", -TRIM_ABOVE)
    assert trim_after_use(buffered)
    assert not trim_after_use(buffered), "there is nothing more to give back"


def test_memory_is_kept_if_little_was_released() -> None:
    buffered = BufferLimits(Limits())
    buffered.change("a", TRIM_ABOVE - 1)
    buffered.change("a", 1 - TRIM_ABOVE)
    assert not trim_after_use(buffered)
