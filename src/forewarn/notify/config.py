"""The tables [[notify]] of the settings: what each says, and what is wrong with it.

Each table selects changes and names one target. Secrets are never in the table, but in files that
it names. Whether a file can be used is checked by the targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfoNotFoundError

import msgspec

from forewarn.core.labels import SelectorError, parse
from forewarn.core.windows.model import zone_of
from forewarn.notify.kinds import DEFAULT_KINDS, KINDS, SEVERITIES
from forewarn.support.suggest import instead_of
from forewarn.support.text import SECOND, Duration, either_of, parse_duration

MAX_TABLES = 64  # each follows the feed
MODES = ("structured", "binary")  # of CloudEvents
TARGETS = ("webhook", "cloudevents", "event-grid", "apprise")
FILES = ("url_file", "secret_file", "authorization_file", "urls_file", "ca")
LEAST_TIMEOUT = SECOND
MAX_TIMEOUT = 300 * SECOND

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,78}[A-Za-z0-9_])?", re.ASCII)


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a target."""

    for_people: ClassVar[bool] = False  # what waits is combined into one message

    timeout: str = "10s"  # for one attempt

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong, each with its key."""
        yield from _duration_problem("timeout", self.timeout, LEAST_TIMEOUT, MAX_TIMEOUT)


class Http(Target, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str = ""
    url_file: str = ""  # instead of `url`, if that is a secret
    secret_file: str = ""  # signs messages
    authorization_file: str = ""  # contains the value of the header Authorization
    ca: str = ""  # CA bundle (PEM) used to verify the receiver's certificate

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from super().problems()
        if bool(self.url) is bool(self.url_file):
            yield "url", "set either url or url_file"
        if self.url and (problem := url_problem(self.url)):
            yield "url", problem


class Webhook(Http, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JSON by POST, signed as Standard Webhooks prescribes."""

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from super().problems()
        if not self.secret_file:
            yield (
                "secret_file",
                "is missing: a file with the secret that signs messages; create one with"
                " echo whsec_$(openssl rand -base64 32)",
            )


class CloudEvents(Http, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CloudEvents 1.0 by POST; signed like a webhook if there is a secret."""

    mode: Literal["structured", "binary"] = "structured"
    source: str = "/forewarn"  # the attribute `source`, a URI reference

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from super().problems()
        if not re.fullmatch(r"[!-~]{1,255}", self.source, re.ASCII):
            yield "source", "must be a URI, for example https://forewarn.example.org"


class EventGrid(Http, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events as Azure's Event Grid sends them, of the groups that publish theirs."""

    schema: Literal["EventGridSchema", "CloudEventSchemaV1_0"] = "EventGridSchema"
    subject_begins_with: str = ""  # the id of a subscription, resource group or scale set


class Apprise(Target, frozen=True, kw_only=True, forbid_unknown_fields=True):
    for_people: ClassVar[bool] = True

    urls_file: str  # one URL of Apprise on each line
    timeout: str = "60s"


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table [[notify]]."""

    name: str
    kinds: list[str] | None = None  # of changes; None: DEFAULT_KINDS
    groups: list[str] = []  # empty: all
    label: str = ""  # selector
    owner: str = ""  # value of the label `owner`
    severity: str = "info"  # the least
    timezone: str = "UTC"  # of times in texts
    max_age: str | None = None  # older changes are skipped; None: "1d" for people, else ""
    at_most_every: str | None = None  # for people: time between two messages; None: "1m"
    webhook: Webhook | None = None
    cloudevents: CloudEvents | None = None
    event_grid: EventGrid | None = msgspec.field(name="event-grid", default=None)
    apprise: Apprise | None = None

    @property
    def target_kind(self) -> str:
        return next(iter(self._targets), "")

    @property
    def target(self) -> Target:
        return self._targets[self.target_kind]

    @property
    def _targets(self) -> dict[str, Target]:
        by_kind = {kind: getattr(self, kind.replace("-", "_")) for kind in TARGETS}
        return {kind: target for kind, target in by_kind.items() if target is not None}

    @property
    def wanted_kinds(self) -> Sequence[str]:
        return DEFAULT_KINDS if self.kinds is None else self.kinds

    @property
    def oldest(self) -> Duration | None:
        """How old a change may be to be sent; None: any."""
        text = self.max_age
        if text is None:
            text = "1d" if self.target.for_people else ""
        return parse_duration(text) if text else None

    @property
    def pause(self) -> Duration:
        """The time between two messages."""
        if not self.target.for_people:
            return 0
        return parse_duration(self.at_most_every if self.at_most_every is not None else "1m")

    @property
    def zone(self) -> tzinfo:
        return zone_of(self.timezone)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong, each with its key."""
        if not _NAME.fullmatch(self.name):
            yield (
                "name",
                f"'{self.name[:80]}' is not a name: use 1 to 80 letters, digits, '.', '_' and '-'",
            )
        yield from self._filter_problems()
        if self.max_age:
            yield from _duration_problem("max_age", self.max_age, 60 * SECOND)
        try:
            zone_of(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield (
                "timezone",
                f"'{self.timezone[:80]}' is not a time zone that this machine knows; write for"
                " example Europe/Berlin",
            )
        targets = list(self._targets)
        if len(targets) != 1:
            named = f"it has {either_of(targets)}" if targets else "it has none"
            yield "", f"needs exactly one target ({either_of(TARGETS)}); {named}"
            return
        yield from ((f"{targets[0]}.{key}", text) for key, text in self.target.problems())
        if self.at_most_every is not None:
            if self.target.for_people:
                yield from _duration_problem("at_most_every", self.at_most_every, 0)
            else:
                yield (
                    "at_most_every",
                    f"is only for apprise; {targets[0]} sends every change separately",
                )

    def _filter_problems(self) -> Iterator[tuple[str, str]]:
        for kind in self.wanted_kinds:
            if kind not in KINDS:
                yield "kinds", f"unknown kind '{kind[:80]}'; {instead_of(kind, KINDS)}"
        if self.kinds == []:
            yield "kinds", "is empty, so nothing would be sent; name kinds, or leave it out"
        if self.severity not in SEVERITIES:
            yield "severity", f"'{self.severity[:80]}': {instead_of(self.severity, SEVERITIES)}"
        for key, text in (("label", self.label), ("owner", f"owner={self.owner}")):
            try:
                parse(text)
            except SelectorError as error:
                yield key, str(error)


def url_problem(text: str) -> str:
    """Return what is wrong with a URL, without repeating it; empty if nothing is."""
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid or not text.isprintable() or " " in text:
        return "is not a URL; write for example https://example.org/hook"
    return "must not contain a password; put it into authorization_file" if url.password else ""


def origin(text: str) -> str:
    """Return scheme, host and port of a URL: the rest may be a secret."""
    url = urlsplit(text)
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port else "")


def without_secrets(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table, as in the settings file, with only the origin of a URL."""
    shown: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            shown[key] = without_secrets(value)
        elif key == "url" and value:
            shown[key] = f"{origin(value)}/***" if not url_problem(value) else "***"
        elif value not in (None, "", []):
            shown[key] = value
    return shown


def _duration_problem(
    key: str, text: str, least: Duration, most: Duration | None = None
) -> Iterator[tuple[str, str]]:
    try:
        value = parse_duration(text)
    except ValueError as error:
        yield key, str(error)
        return
    if value < least or (most is not None and value > most):
        limit = f"at least {least // SECOND} s"
        if most is not None:
            limit = f"{least // SECOND} s to {most // SECOND} s"
        yield key, f"'{text}' must be {limit}"
