"""Who is connected, who asks too often, and what is counted of it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from forewarn.metadata.endpoint.limits import (
    OPEN_FILES,
    ConnectionAdmission,
    ConnectionLimits,
    HeldRequests,
    Limits,
    RateLimits,
)
from forewarn.metadata.endpoint.metrics import LOG_EVERY, EndpointCounts
from forewarn.support import guard
from forewarn.wire.versions import VERSIONS

LIMITS = Limits(max_connections_per_machine=3, max_connections=5)


def connections(*names: str, limits: Limits = LIMITS) -> ConnectionLimits:
    made = ConnectionLimits(limits)
    for name in names:
        made.enter(name)
    return made


def test_the_connections_of_a_machine_are_limited() -> None:
    assert connections("a", "a").admission("a") is ConnectionAdmission.ADMITTED
    assert connections("a", "a", "a").admission("a") is ConnectionAdmission.MACHINE_FULL
    assert connections("a", "a", "a").admission("b") is ConnectionAdmission.ADMITTED, (
        "that is no concern of another's"
    )


def test_the_connections_of_all_machines_are_limited() -> None:
    full = connections("a", "a", "a", "b", "c")
    assert {full.admission(name) for name in "abcd"} == {ConnectionAdmission.ALL_FULL}
    full.leave("b")
    assert full.admission("d") is ConnectionAdmission.ADMITTED
    assert full.admission("a") is ConnectionAdmission.MACHINE_FULL


def test_refusals_are_counted_by_limit() -> None:
    names = {field.name for field in msgspec.structs.fields(Limits)}
    assert {
        room.value for room in ConnectionAdmission if room is not ConnectionAdmission.ADMITTED
    } <= names


@given(st.lists(st.sampled_from("abc"), max_size=40))
def test_a_closed_connection_leaves_nothing_behind(names: list[str]) -> None:
    made = connections(*names, limits=Limits())
    assert made.total == len(names)
    for name in reversed(names):
        made.leave(name)
    assert made.total == 0
    assert made._held == {}


class Stands:
    now = 1.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stands(monkeypatch: pytest.MonkeyPatch) -> Stands:
    stands = Stands()
    monkeypatch.setattr(guard, "monotonic", stands)
    return stands


def test_a_rate_limit_is_a_token_bucket(stands: Stands) -> None:
    rates = RateLimits(5)
    assert [rates.admit("a") for _ in range(7)] == [True] * 5 + [False] * 2
    assert rates.admit("b")
    stands.now += 0.5
    assert [rates.admit("a") for _ in range(3)] == [True, True, False]
    stands.now += 3_600
    assert [rates.admit("a") for _ in range(6)] == [True] * 5 + [False]


def test_a_refused_request_takes_no_token(stands: Stands) -> None:
    rates = RateLimits(1)
    rates.admit("a")
    assert not any(rates.admit("a") for _ in range(100))
    stands.now += 1
    assert rates.admit("a")


def test_no_rate_is_no_limit() -> None:
    assert all(RateLimits(0).admit("a") for _ in range(10_000))


def test_every_limit_is_counted_under_its_name_from_the_start() -> None:
    names = {field.name for field in msgspec.structs.fields(Limits)} | {OPEN_FILES}
    assert dict(EndpointCounts().hits) == dict.fromkeys(names, 0)


def test_polls_are_counted_by_version_and_status() -> None:
    counts = EndpointCounts()
    counts.polls[:] = range(1, 2 * len(VERSIONS) + 1)
    expected = [
        (version.name, status, 2 * n + 1 + (status == 304))
        for n, version in enumerate(VERSIONS)
        for status in (200, 304)
    ]
    assert list(counts.by_version_and_status()) == expected


def test_a_limit_is_logged_once_a_minute_with_a_count() -> None:
    counts = EndpointCounts()
    with capture_logs() as entries:
        for _ in range(1_000):
            counts.hit("max_head", "web_0")
        counts.log_hits(0.0)
        counts.hit("max_head", "web_1")
        counts.log_hits(LOG_EVERY - 1)
        assert len(entries) == 1
        counts.log_hits(LOG_EVERY)
        counts.log_hits(3 * LOG_EVERY)
    response = [(entry["limit"], entry["times"], entry["last"]) for entry in entries]
    assert response == [("max_head", 1_000, "web_0"), ("max_head", 1, "web_1")]


def test_requests_that_are_held_use_a_quarter_of_a_machines_connections() -> None:
    held = HeldRequests(Limits(max_connections_per_machine=8))

    async def body() -> None:
        async with held.hold("a"):
            assert not held.full("a")
            async with held.hold("a"):
                assert held.full("a")
                assert not held.full("b")
        assert not held.full("a")

    asyncio.run(body())


def test_requests_of_a_machine_are_passed_on_at_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    held, now = HeldRequests(Limits(), per_second=10), 0.0

    async def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(guard, "monotonic", lambda: now)
    monkeypatch.setattr(guard, "pause", pause)

    async def body() -> None:
        for _ in range(30):
            async with held.hold("a"):
                pass
        passed_on_after = now
        async with held.hold("b"):  # which has its own
            assert now == passed_on_after >= 1.9

    asyncio.run(body())
