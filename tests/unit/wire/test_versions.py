"""The seven versions: what each shows, spelled out once more and compared row by row."""

from __future__ import annotations

import itertools

import pytest

from forewarn.wire.versions import BY_NAME, NEWEST, VERSIONS

FIRST = {"Freeze", "Reboot", "Redeploy"}

# name: types, preview, description, event source, duration
TABLE = {
    "2017-03-01": (FIRST, True, False, False, False),
    "2017-08-01": (FIRST, False, False, False, False),
    "2017-11-01": (FIRST | {"Preempt"}, False, False, False, False),
    "2019-01-01": (FIRST | {"Preempt", "Terminate"}, False, False, False, False),
    "2019-04-01": (FIRST | {"Preempt", "Terminate"}, False, True, False, False),
    "2019-08-01": (FIRST | {"Preempt", "Terminate"}, False, True, True, False),
    "2020-07-01": (FIRST | {"Preempt", "Terminate"}, False, True, True, True),
}


def test_seven_versions_are_listed_in_the_order_of_their_release() -> None:
    assert [version.name for version in VERSIONS] == list(TABLE)
    assert sorted(TABLE) == list(TABLE)


def test_the_newest_version_is_the_last() -> None:
    assert NEWEST.name == "2020-07-01"


@pytest.mark.parametrize("name", TABLE)
def test_each_version_shows_what_it_was_released_with(name: str) -> None:
    version = BY_NAME[name]
    row = (
        set(version.types),
        version.preview,
        version.description,
        version.event_source,
        version.duration,
    )
    assert row == TABLE[name]
    assert len(set(version.types)) == len(version.types)


def test_what_a_version_shows_every_later_one_shows_too() -> None:
    for before, after in itertools.pairwise(VERSIONS):
        assert set(before.types) <= set(after.types)
        for field in ("description", "event_source", "duration"):
            assert getattr(before, field) <= getattr(after, field)


def test_only_the_preview_puts_an_underscore_before_a_machine_of_the_infrastructure() -> None:
    for version in VERSIONS:
        expected = "_web_0" if version.name == "2017-03-01" else "web_0"
        assert version.resource("web_0", iaas=True) == expected


def test_a_role_instance_of_a_cloud_service_never_has_an_underscore() -> None:
    for version in VERSIONS:
        assert version.resource("FrontEnd_IN_0", iaas=False) == "FrontEnd_IN_0"


@pytest.mark.parametrize("name", ["", "latest", "2017-03-01 ", "2020-07-02", "2021-02-01"])
def test_other_words_are_not_versions(name: str) -> None:
    assert name not in BY_NAME
