"""The judge's own tables of the protocol: versions, keys, error bodies, time formats.

Derived from what the endpoint promises. The service has tables of its own; these are separate on
purpose, so that a mistake in one does not excuse the other.
"""

import calendar
import re
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

PATH = "/metadata/scheduledevents"
METADATA_ROOT = "metadata"
# Paths below it, here or on Azure. Only the first of these is judged.
METADATA_BRANCHES = frozenset(
    {"scheduledevents", "instance", "versions", "attested", "identity", "loadbalancer", "thim"}
)
WAIT_PATH = "/forewarn/v1/wait"  # long-poll: the document as soon as it has changed
PREVIEW = "2017-03-01"
NEWEST = "2020-07-01"

_FIRST_KEYS = ("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore")
_FIRST_TYPES = ("Freeze", "Reboot", "Redeploy")

# Types became visible in three waves; a version that sees a wave sees all earlier ones.
WAVE = {**dict.fromkeys(_FIRST_TYPES, 0), "Preempt": 1, "Terminate": 2}
LAST_WAVE = 2

# The kinds that wait for a machine's other Started event; Preempt and Terminate never do.
WAITING_TYPES = frozenset(_FIRST_TYPES)
DELETING = frozenset({"Preempt", "Terminate"})
USER_TYPES = frozenset({"Reboot", "Redeploy"})
# A failure or a user may start a Reboot or a Redeploy without notice, and a Terminate is
# unannounced if the group did not ask for it. These two types are always announced.
ALWAYS_ANNOUNCED = frozenset({"Freeze", "Preempt"})

# The minimum notice of each type, in seconds.
NOTICE = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300}


@dataclass(frozen=True, slots=True)
class Version:
    name: str
    wave: int
    keys: tuple[str, ...]

    @property
    def preview(self) -> bool:
        return self.name == PREVIEW


def _version(name: str, wave: int, *added: str) -> tuple[str, Version]:
    return name, Version(name, wave, _FIRST_KEYS + added)


VERSIONS: dict[str, Version] = dict(
    (
        _version("2017-03-01", 0),
        _version("2017-08-01", 0),
        _version("2017-11-01", 1),
        _version("2019-01-01", 2),
        _version("2019-04-01", 2, "Description"),
        _version("2019-08-01", 2, "Description", "EventSource"),
        _version("2020-07-01", 2, "Description", "EventSource", "DurationInSeconds"),
    )
)

NOT_FOUND = b'{ "error": "Not found" }'
NO_METADATA_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'
BAD_VERSION = (
    b'{"error":"Bad request. api-version is invalid or was not specified in the request. '
    b'For more information refer to aka.ms/azureimds",'
    b'"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
)
BAD_REQUEST_PREFIX = b'{"error":"Bad request. '
THROTTLED = b"Throttle Result: Too Many Requests"
CONTENT_TYPE = "application/json; charset=utf-8"

GUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_RFC1123 = re.compile(
    rf"({'|'.join(_DAYS)}), ([0-9]{{2}}) ({'|'.join(_MONTHS)}) ([0-9]{{4}}) "
    r"([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT"
)
_ISO8601 = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")


@lru_cache(maxsize=4096)  # many answers show the same times
def read_rfc1123(text: str) -> int | None:
    """Return seconds since 1970; None if the text has another form or a wrong weekday."""
    match = _RFC1123.fullmatch(text)
    if match is None:
        return None
    name, day, month, year, *clock = match.groups()
    second = _moment(int(year), _MONTHS.index(month) + 1, int(day), *map(int, clock))
    if second is None or _DAYS[date(int(year), _MONTHS.index(month) + 1, int(day)).weekday()] != (
        name
    ):
        return None
    return second


def read_iso8601(text: str) -> int | None:
    match = _ISO8601.fullmatch(text)
    return None if match is None else _moment(*map(int, match.groups()))


def _moment(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    try:
        date(year, month, day)
    except ValueError:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))
