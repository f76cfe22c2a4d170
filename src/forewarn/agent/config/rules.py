"""Which rule applies to an event: the first that matches. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from forewarn.agent.config.model import Rule
from forewarn.client.events import Event


class Mismatch(Enum):
    """The first condition of a rule that an event does not meet."""

    TYPE = auto()
    SOURCE = auto()
    MACHINE = auto()
    LABELS = auto()
    UNKNOWN_DURATION = auto()
    TOO_SHORT = auto()
    TOO_LONG = auto()


def first_match(
    rules: Sequence[Rule], event: Event, *, mine: bool, tags: Mapping[str, str]
) -> Rule | None:
    return next((rule for rule in rules if matches(rule, event, mine=mine, tags=tags)), None)


def matches(rule: Rule, event: Event, *, mine: bool, tags: Mapping[str, str]) -> bool:
    return mismatch(rule, event, mine=mine, tags=tags) is None


def mismatch(rule: Rule, event: Event, *, mine: bool, tags: Mapping[str, str]) -> Mismatch | None:
    """Return the reason why the rule does not match; None if it does. `mine` says whether the event
    lists this machine, whose labels are `tags`."""
    if rule.type and event.type not in rule.type:
        return Mismatch.TYPE
    if rule.source and event.source not in rule.source:
        return Mismatch.SOURCE
    if rule.machine != "any" and (rule.machine == "mine") is not mine:
        return Mismatch.MACHINE
    if missing_labels(rule, tags):
        return Mismatch.LABELS
    return _duration_mismatch(rule, event.duration)


def missing_labels(rule: Rule, tags: Mapping[str, str]) -> list[str]:
    """Return the labels that the rule requires and the machine does not have, as `KEY=VALUE`."""
    return [f"{key}={value}" for key, value in rule.labels.items() if tags.get(key) != value]


def _duration_mismatch(rule: Rule, duration: float | None) -> Mismatch | None:
    if rule.min_duration is None and rule.max_duration is None:
        return None
    if duration is None:
        return Mismatch.UNKNOWN_DURATION
    if rule.min_duration is not None and duration < rule.min_duration:
        return Mismatch.TOO_SHORT
    if rule.max_duration is not None and duration > rule.max_duration:
        return Mismatch.TOO_LONG
    return None


def covers(earlier: Rule, later: Rule) -> bool:
    """Whether the earlier rule matches every event that the later one matches."""
    return (
        _covers_values(earlier.type, later.type)
        and _covers_values(earlier.source, later.source)
        and earlier.machine in ("any", later.machine)
        and earlier.labels.items() <= later.labels.items()
        and _covers_durations(earlier, later)
    )


def _covers_values(earlier: tuple[str, ...], later: tuple[str, ...]) -> bool:
    return not earlier or (bool(later) and set(later) <= set(earlier))


def _covers_durations(earlier: Rule, later: Rule) -> bool:
    if earlier.min_duration is None and earlier.max_duration is None:
        return True
    if later.min_duration is None and later.max_duration is None:
        return False  # it also matches events of unknown duration
    least, most = earlier.min_duration or 0.0, earlier.max_duration
    if (later.min_duration or 0.0) < least:
        return False
    return most is None or (later.max_duration is not None and later.max_duration <= most)
