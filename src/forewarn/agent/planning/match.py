"""Which rule an event falls under: the first that matches. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn.agent.config.model import Rule
from forewarn.client.events import Event


def matched(
    rules: Sequence[Rule], event: Event, *, mine: bool, tags: Mapping[str, str]
) -> Rule | None:
    return next((rule for rule in rules if matches(rule, event, mine=mine, tags=tags)), None)


def matches(rule: Rule, event: Event, *, mine: bool, tags: Mapping[str, str]) -> bool:
    return (
        (not rule.type or event.type in rule.type)
        and (not rule.source or event.source in rule.source)
        and _lasts(rule, event.duration)
        and (rule.machine == "any" or (rule.machine == "mine") is mine)
        and all(tags.get(key) == value for key, value in rule.labels.items())
    )


def _lasts(rule: Rule, duration: float | None) -> bool:
    """Of one that nobody knows the duration of, nothing can be said."""
    if rule.min_duration is None and rule.max_duration is None:
        return True
    if duration is None:
        return False
    return (rule.min_duration is None or duration >= rule.min_duration) and (
        rule.max_duration is None or duration <= rule.max_duration
    )


def covers(earlier: Rule, later: Rule) -> bool:
    """Whether whatever the later one matches is matched by the earlier one already."""
    return (
        _wider(earlier.type, later.type)
        and _wider(earlier.source, later.source)
        and earlier.machine in ("any", later.machine)
        and earlier.labels.items() <= later.labels.items()
        and _longer(earlier, later)
    )


def _wider(earlier: tuple[str, ...], later: tuple[str, ...]) -> bool:
    return not earlier or (bool(later) and set(later) <= set(earlier))


def _longer(earlier: Rule, later: Rule) -> bool:
    if earlier.min_duration is None and earlier.max_duration is None:
        return True
    if later.min_duration is None and later.max_duration is None:
        return False  # it also matches what is unknown
    least, most = earlier.min_duration or 0.0, earlier.max_duration
    if (later.min_duration or 0.0) < least:
        return False
    return most is None or (later.max_duration is not None and later.max_duration <= most)
