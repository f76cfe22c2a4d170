"""Blackouts from an iCalendar file (RFC 5545).

The file is read once, by a command or together with a fleet file. Each time that its events cover,
from now until LOOK_AHEAD, becomes a blackout in the syntax of `core/windows/syntax.py`.

A recurring event keeps its local times when the clocks change. A day without a time zone is in that
of the calendar (X-WR-TIMEZONE), or else in UTC, as in other blackouts; a time without one is only
accepted if the calendar has a time zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfoNotFoundError

from forewarn.core.windows.model import A_DAY, zone_of
from forewarn.core.windows.openings import LOOK_AHEAD, first_shown
from forewarn.core.windows.syntax import FIRST_YEAR, LAST_YEAR, parse_blackout
from forewarn.support.instants import Time, from_datetime, to_datetime
from forewarn.support.text import MINUTE, SECOND, in_words, not_utf8, visible

MAX_CALENDAR_BYTES = 10_000_000  # years of a busy team's calendar have about one
TOO_FREQUENT = ("SECONDLY", "MINUTELY")  # 400 days have half a million minutes

# What the parser and the rules of recurrences raise for values that are wrong.
_ERRORS = (ValueError, TypeError, AttributeError, LookupError, OverflowError)


class CalendarError(ValueError):
    """What is wrong with a calendar, and in which event."""


def load_blackouts(file: Path, now: Time) -> list[str]:
    """Return the times that the events of a calendar file cover, as blackouts in order. Raises
    CalendarError."""
    try:
        size = file.stat().st_size
        content = file.read_bytes() if size <= MAX_CALENDAR_BYTES else b""
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise CalendarError(error.strerror) from error
    except UnicodeDecodeError as error:
        raise CalendarError(not_utf8(error)) from error
    except ValueError as error:  # a path that no file can have
        raise CalendarError(str(error)) from error
    if size > MAX_CALENDAR_BYTES:
        raise CalendarError(f"the file has {size:,} bytes; the maximum is {MAX_CALENDAR_BYTES:,}")
    return read_blackouts(text, now)


def no_events(file: str) -> str:
    """Return a note about a calendar that adds no blackout."""
    return f"{file} has no event in the next {in_words(LOOK_AHEAD)}"


def read_blackouts(text: str, now: Time) -> list[str]:
    """Return the times that the events of a calendar cover, as blackouts in order. Raises
    CalendarError."""
    import icalendar

    try:
        calendars: list[Any] = list(icalendar.Calendar.from_ical(text, multiple=True))
    except OSError:  # a name such as Europe, which is a directory of time zones
        raise CalendarError("it names a time zone that does not exist") from None
    except _ERRORS as error:
        raise CalendarError(f"it is not an iCalendar file: {_one_line(error)}") from None
    if not calendars or any(calendar.name != "VCALENDAR" for calendar in calendars):
        raise CalendarError(
            "it is not an iCalendar file, or is cut short: such a file begins with BEGIN:VCALENDAR"
            " and ends with END:VCALENDAR"
        )
    covered = [span for calendar in calendars for span in _calendar_spans(calendar, now)]
    return [_text(span) for span in _merged(covered)]


class _Span(NamedTuple):
    begins: Time
    ends: Time
    zone: str  # in which it is written


def _merged(spans: Sequence[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for span in sorted(spans):
        if merged and span.begins <= merged[-1].ends:
            merged[-1] = merged[-1]._replace(ends=max(span.ends, merged[-1].ends))
        else:
            merged.append(span)
    return merged


def _text(span: _Span) -> str:
    """Return a blackout in local time; in UTC if the clocks show one of its times twice, or if the
    zone is described only by the file."""
    for name in (span.zone, "UTC"):
        try:
            zone = zone_of(name)
            begins, ends = (to_datetime(at).astimezone(zone) for at in (span.begins, span.ends))
            if begins.time() == ends.time() == time():
                first, last = f"{begins:%Y-%m-%d}", f"{ends - A_DAY:%Y-%m-%d}"
            else:
                first, last = f"{begins:%Y-%m-%d %H:%M}", f"{ends:%Y-%m-%d %H:%M}"
            text = first if first == last else f"{first} to {last}"
            text = text if name == "UTC" else f"{text} {name}"
            blackout = parse_blackout(text)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
        if (blackout.begins, blackout.ends) == (span.begins, span.ends):
            break
    return text


def _calendar_spans(calendar: Any, now: Time) -> Iterator[_Span]:
    zone = _calendar_zone(calendar)
    events = calendar.walk("VEVENT")
    replaced: dict[str, list[Any]] = {}  # occurrences that have an event of their own, by UID
    for event in events:
        if "RECURRENCE-ID" in event:
            replaced.setdefault(str(event.get("UID", "")), []).append(event)
    for event in events:
        if str(event.get("STATUS", "")).upper() == "CANCELLED":
            continue
        others = [] if "RECURRENCE-ID" in event else replaced.get(str(event.get("UID", "")), [])
        try:
            spans = list(_Event(event, zone).spans(others, now))
        except _ERRORS as error:
            raise CalendarError(f"event {_name(event)}: {_one_line(error)}") from None
        yield from spans


def _calendar_zone(calendar: Any) -> tzinfo | None:
    name = calendar.get("X-WR-TIMEZONE")
    if name is None:
        return None
    try:
        return zone_of(str(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CalendarError(
            f"unknown time zone '{visible(str(name))}' (X-WR-TIMEZONE); write one like"
            " Europe/Berlin or UTC"
        ) from None


def _name(event: Any) -> str:
    """Return how a user recognizes an event."""
    for name in ("SUMMARY", "UID"):
        if text := " ".join(str(event.get(name, "")).split()):
            return f"'{visible(text[:80])}'"
    return "without SUMMARY and UID"


def _one_line(error: Exception) -> str:
    return visible(" ".join(str(error).split())[:200])


class _Event:
    """An event of a calendar, with its times in the zone of its start."""

    def __init__(self, event: Any, calendar_zone: tzinfo | None) -> None:
        self._event = event
        self._calendar_zone = calendar_zone
        if event.errors:
            name, problem = event.errors[0]
            raise ValueError(f"{name or 'a line'} is not valid: {problem}")
        for name in ("DTSTART", "DTEND", "DURATION", "RECURRENCE-ID"):
            if isinstance(event.get(name), list):
                raise ValueError(f"{name} occurs twice")
        if "DTSTART" not in event:
            raise ValueError("it has no start (DTSTART)")
        start = event["DTSTART"].dt
        self.whole_days = not isinstance(start, datetime)
        self.zone: tzinfo = calendar_zone or UTC
        if isinstance(start, datetime):
            self.zone = self._zoned(start, event["DTSTART"]).tzinfo or UTC
        self.start = self._local(start, event["DTSTART"])
        self.end = self._end()
        self.length = self.end - self.start
        self._check(self.start, self.end)
        if self.whole_days and self.length % A_DAY:
            raise ValueError("it begins on a day without a time, so its DURATION must be in days")

    def spans(self, replaced: Sequence[Any], now: Time) -> Iterator[_Span]:
        """Yield the times that its occurrences cover, from now until LOOK_AHEAD, except for
        occurrences that are replaced by other events."""
        for begins, ends in self._occurrences(replaced, to_datetime(now)):
            span = _Span(
                self._instant(begins) // MINUTE * MINUTE,
                -(-self._instant(ends) // MINUTE) * MINUTE,
                getattr(self.zone, "key", "UTC"),
            )
            # Where the clocks skip an hour, an occurrence can have no time left.
            if max(now, span.begins) < span.ends and span.begins < now + LOOK_AHEAD:
                yield span

    def _occurrences(
        self, replaced: Sequence[Any], now: datetime
    ) -> Iterator[tuple[datetime, datetime]]:
        from dateutil.rrule import rruleset

        occurrences = rruleset()
        occurrences.rdate(self.start)
        for recurrence in _all(self._event.get("RRULE")):
            occurrences.rrule(self._rule(recurrence))
        periods = []
        for value, source in self._listed("RDATE"):
            if isinstance(value, tuple):
                begins, end = self._local(value[0], source), value[1]
                is_length = isinstance(end, timedelta)
                ends = begins + end if is_length else self._local(end, source)
                self._check(begins, ends)
                periods.append((begins, ends))
            else:
                occurrences.rdate(self._local(value, source))
        for value, source in self._listed("EXDATE"):
            occurrences.exdate(self._local(value, source))
        for other in replaced:
            source = _all(other["RECURRENCE-ID"])[0]
            if "RANGE" in source.params:
                raise ValueError("changes to all following occurrences (RANGE) are not supported")
            occurrences.exdate(self._local(source.dt, source))
        # A zone is at most a day away from UTC.
        first = now.replace(tzinfo=None) - self.length - A_DAY
        last = now.replace(tzinfo=None) + timedelta(microseconds=LOOK_AHEAD) + A_DAY
        for begins in occurrences.xafter(first, inc=True):
            if begins > last:
                break
            first_one = begins == self.start
            yield (self.start, self.end) if first_one else (begins, begins + self.length)
        yield from periods

    def _check(self, begins: datetime, ends: datetime) -> None:
        for moment in (begins, ends):
            if not FIRST_YEAR <= moment.year <= LAST_YEAR:
                raise ValueError(f"a year is from {FIRST_YEAR} to {LAST_YEAR}")
        if begins == ends:
            raise ValueError("it ends when it begins; give it a DTEND or a DURATION")
        if self._instant(ends) <= self._instant(begins):
            raise ValueError("it ends before it begins")

    def _rule(self, recurrence: Any) -> Any:
        from dateutil.rrule import rrulestr

        if recurrence.get("FREQ", [""])[0] in TOO_FREQUENT:
            raise ValueError("it repeats every minute or second; write longer events instead")
        if "FREQ" not in recurrence or min(recurrence.get("INTERVAL", [1])) < 1:
            raise ValueError("its RRULE needs a FREQ, and an INTERVAL of at least 1")
        parts = {name: value for name, value in recurrence.items() if name != "UNTIL"}
        rule = rrulestr(type(recurrence)(parts).to_ical().decode(), dtstart=self.start)
        for until in recurrence.get("UNTIL", []):
            if not isinstance(until, datetime):
                until = datetime.combine(until, time.max)
            elif until.tzinfo is not None:
                until = until.astimezone(self.zone).replace(tzinfo=None)
            rule = rule.replace(until=until)
        return rule

    def _listed(self, name: str) -> Iterator[tuple[Any, Any]]:
        for values in _all(self._event.get(name)):
            for value in values.dts:
                yield value.dt, values

    def _end(self) -> datetime:
        if "DTEND" in self._event:
            end = self._event["DTEND"].dt
            if isinstance(end, datetime) == self.whole_days:
                raise ValueError("one of DTSTART and DTEND is a day, the other a time")
            return self._local(end, self._event["DTEND"])
        if "DURATION" in self._event:
            duration: timedelta = self._event["DURATION"].dt
            return self.start + duration
        return self.start + (A_DAY if self.whole_days else timedelta())

    def _local(self, value: object, source: Any) -> datetime:
        """Return a time as the clocks in the zone of the event show it, without the zone."""
        if isinstance(value, datetime):
            return self._zoned(value, source).astimezone(self.zone).replace(tzinfo=None)
        if not isinstance(value, date):
            raise ValueError(f"'{value}' is neither a day nor a time of a day")
        return datetime.combine(value, time() if self.whole_days else self.start.time())

    def _zoned(self, value: datetime, source: Any) -> datetime:
        if value.tzinfo is not None:
            return value
        if "TZID" in source.params:
            raise ValueError(f"unknown time zone '{source.params['TZID']}'")
        if self._calendar_zone is None:
            raise ValueError(
                "its times have no time zone; write them with TZID or in UTC, or give the calendar"
                " a zone, with a line like X-WR-TIMEZONE:Europe/Berlin"
            )
        return value.replace(tzinfo=self._calendar_zone)

    def _instant(self, local: datetime) -> Time:
        if local.fold:  # the second time that the clocks show it
            return from_datetime(local.replace(tzinfo=self.zone))
        minute = first_shown(local.date(), 60 * local.hour + local.minute, self.zone)
        return minute + local.second * SECOND


def _all(value: Any) -> list[Any]:
    """Return the values of a property that may occur several times."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
