"""Durations and times as tests write them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from forewarn.testing import RefusedError, Service
from forewarn.testing.durations import in_microseconds, in_seconds, instant, whole_seconds

REFUSED = "not a duration|negative"


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5_400),
        (0, 0),
        (90, 90),
        (0.25, 0.25),
        (1e-6, 1e-6),
        (timedelta(minutes=15), 900),
        (timedelta(microseconds=1), 1e-6),
    ],
)
def test_a_duration_is_a_text_seconds_or_a_timedelta(duration: Any, seconds: float) -> None:
    assert in_microseconds(duration) == round(seconds * 1_000_000)
    assert in_seconds(duration) == seconds


@pytest.mark.parametrize(
    "duration", ["soon", "", -1, -0.5, float("nan"), float("inf"), timedelta(seconds=-1)]
)
def test_an_invalid_duration_is_refused_everywhere(duration: Any) -> None:
    with Service() as service:
        web = service.scale_set("web", 2, hosts=["rack-1"])
        uses: list[Callable[[], object]] = [
            lambda: service.clock.advance(duration),
            lambda: service.clock.play("1m", timeout=duration),
            lambda: service.scale_set("api", 1, terminate_notice=duration),
            lambda: service.schedule("Reboot", "web_0", notice=duration),
            lambda: service.host("rack-1").maintain(notice=duration),
            lambda: service.host("rack-1").degrade(notice=duration),
            lambda: service.faults.add("gone", lasts=duration),
            lambda: web[0].wait_for_poll(timeout=duration),
            lambda: service.play_scenario("live-migration", timeout=duration),
        ]
        for use in uses:
            with pytest.raises(RefusedError, match=REFUSED):
                use()
        assert (service.events, len(service.faults), len(service.machines)) == ([], 0, 2)
    for option in ("silence", "enable_delay"):
        with pytest.raises(RefusedError, match=REFUSED):
            Service(**{option: duration})


def test_the_duration_of_an_impact_is_whole_seconds_or_unknown() -> None:
    assert [whole_seconds(duration) for duration in ("9s", 9, timedelta(seconds=9))] == [9] * 3
    assert whole_seconds(-1) == -1
    with pytest.raises(RefusedError, match=r"whole number.*0\.5"):
        whole_seconds(0.5)


def test_a_time_without_a_zone_is_refused() -> None:
    nine = datetime(2027, 1, 15, 9, tzinfo=timezone(timedelta(hours=1)))
    assert instant(nine) == instant(datetime(2027, 1, 15, 8, tzinfo=UTC)) == 1_800_000_000_000_000
    with pytest.raises(RefusedError, match="no time zone"):
        instant(datetime(2027, 1, 15, 8))  # noqa: DTZ001


def test_times_of_the_kit_are_datetimes() -> None:
    start = datetime(2030, 6, 1, 12, tzinfo=UTC)
    with Service(start=start) as service:
        assert service.clock.now == start
        web = service.scale_set("web", 1)
        at = start + timedelta(hours=2)
        assert web[0].schedule("Reboot", not_before=at).not_before == at
        with pytest.raises(RefusedError, match="no time zone"):
            web[0].schedule("Reboot", not_before=at.replace(tzinfo=None))
    with pytest.raises(RefusedError, match="no time zone"):
        Service(start=start.replace(tzinfo=None))
