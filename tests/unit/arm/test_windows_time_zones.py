"""What Windows calls time zones."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from forewarn.arm.windows_time_zones import ZONES, name_of, zone_of


def test_every_name_stands_for_a_zone_of_its_own() -> None:
    assert all(ZoneInfo(zone) for zone in ZONES.values())
    for name, zone in ZONES.items():
        assert (zone_of(name.upper()), name_of(zone)) == (zone, name)


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("Pacific Standard Time", "America/Los_Angeles"),
        ("W. Europe Standard Time", "Europe/Berlin"),
        ("Korea Standard Time", "Asia/Seoul"),
        ("Cen. Australia Standard Time", "Australia/Adelaide"),
        ("UTC", "UTC"),
        ("Europe/Vienna", "Europe/Vienna"),
        ("Europe/Nowhere", None),
        ("Mars Standard Time", None),
        ("../etc/passwd", None),
    ],
)
def test_a_zone_has_the_name_that_windows_gives_it_or_its_own(name: str, zone: str | None) -> None:
    assert zone_of(name) == zone


def test_a_zone_that_windows_does_not_name_keeps_its_name() -> None:
    assert name_of("Europe/Vienna") == "Europe/Vienna"
