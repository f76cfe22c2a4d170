"""Instants as text, both ways, whatever the locale and the time zone of the process."""

from __future__ import annotations

import calendar
import locale
import os
import time  # noqa: TID251 - only to move this process to another time zone
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.wire.times import iso8601, parse_iso8601, parse_rfc1123, rfc1123

LAST = calendar.timegm((9999, 12, 31, 23, 59, 59))
seconds = st.integers(0, LAST)

KNOWN = [
    (0, "Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00Z"),
    (1474309787, "Mon, 19 Sep 2016 18:29:47 GMT", "2016-09-19T18:29:47Z"),
    (1516828844, "Wed, 24 Jan 2018 21:20:44 GMT", "2018-01-24T21:20:44Z"),
    (1688162416, "Fri, 30 Jun 2023 22:00:16 GMT", "2023-06-30T22:00:16Z"),
    (1709164800, "Thu, 29 Feb 2024 00:00:00 GMT", "2024-02-29T00:00:00Z"),
    (1801990800, "Sun, 07 Feb 2027 09:00:00 GMT", "2027-02-07T09:00:00Z"),
    (4102444799, "Thu, 31 Dec 2099 23:59:59 GMT", "2099-12-31T23:59:59Z"),
]


@pytest.fixture
def far_away() -> Iterator[None]:
    """A time zone half a day off, and whatever other locale this system has."""
    zone, language = os.environ.get("TZ"), locale.setlocale(locale.LC_ALL)
    os.environ["TZ"] = "XXX-13:45"
    time.tzset()
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"):
        try:
            locale.setlocale(locale.LC_ALL, name)
            break
        except locale.Error:
            continue
    yield
    locale.setlocale(locale.LC_ALL, language)
    if zone is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = zone
    time.tzset()


@pytest.mark.parametrize(("at", "rfc", "iso"), KNOWN)
def test_known_instants_are_written_and_read(at: int, rfc: str, iso: str) -> None:
    assert rfc1123(at) == rfc
    assert iso8601(at) == iso
    assert parse_rfc1123(rfc) == at
    assert parse_iso8601(iso) == at


@pytest.mark.usefixtures("far_away")
@pytest.mark.parametrize(("at", "rfc", "iso"), KNOWN)
def test_neither_zone_nor_locale_of_the_process_matters(at: int, rfc: str, iso: str) -> None:
    assert (rfc1123(at), iso8601(at)) == (rfc, iso)
    assert (parse_rfc1123(rfc), parse_iso8601(iso)) == (at, at)


@given(seconds)
def test_rfc1123_is_what_mail_and_http_write(at: int) -> None:
    assert rfc1123(at) == format_datetime(datetime.fromtimestamp(at, UTC), usegmt=True)
    assert parse_rfc1123(rfc1123(at)) == at


@given(seconds)
def test_iso8601_is_what_the_standard_library_reads(at: int) -> None:
    assert datetime.fromisoformat(iso8601(at)) == datetime.fromtimestamp(at, UTC)
    assert parse_iso8601(iso8601(at)) == at


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Mon, 19 Sep 2016 18:29:47",
        "Mon, 19 Sep 2016 18:29:47 UTC",
        "Mon, 19 Sep 2016 18:29:47 +0000",
        "Mon, 9 Sep 2016 18:29:47 GMT",
        "Tue, 19 Sep 2016 18:29:47 GMT",
        "mon, 19 Sep 2016 18:29:47 GMT",
        "Mon, 19 sep 2016 18:29:47 GMT",
        "Mon, 19 Sep 16 18:29:47 GMT",
        "Mon, 31 Feb 2016 18:29:47 GMT",
        "Mon, 19 Sep 2016 24:00:00 GMT",
        "Mon, 19 Sep 2016 18:29:60 GMT",
        "Mon, 19 Sep 0000 18:29:47 GMT",
        " Mon, 19 Sep 2016 18:29:47 GMT",
        "Mon, 19 Sep 2016 18:29:47 GMT\n",
        "Mo, 19 Sep 2016 18:29:47 GMT",
        "Lun, 19 Sep 2016 18:29:47 GMT",
        "Mon, ١٩ Sep 2016 18:29:47 GMT",
        "2016-09-19T18:29:47Z",
    ],
)
def test_a_time_that_is_not_rfc1123_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_rfc1123(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2016-09-19",
        "2016-09-19T18:29:47",
        "2016-09-19T18:29:47z",
        "2016-09-19T18:29:47+00:00",
        "2016-09-19T18:29:47.000Z",
        "2016-09-19 18:29:47Z",
        "2016-9-19T18:29:47Z",
        "2016-02-30T18:29:47Z",
        "2016-09-19T24:00:00Z",
        "2016-09-19T18:29:47Z\n",
        "Mon, 19 Sep 2016 18:29:47 GMT",
    ],
)
def test_a_time_that_is_not_iso8601_in_utc_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_iso8601(text)


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    for read in (parse_rfc1123, parse_iso8601):
        try:
            assert isinstance(read(text), int)
        except ValueError:
            continue
