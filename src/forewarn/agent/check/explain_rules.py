"""`agent test`: what would be done about an event that is only invented, rule by rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from forewarn.agent.config.model import Config, Hook, Rule
from forewarn.agent.planning.plan import LEAST, MARGIN
from forewarn.client.events import Event
from forewarn.support.text import SECOND, in_words, listing


class RuleResult(msgspec.Struct, frozen=True):
    """One rule, and why it does not match; empty if it is the one that does."""

    rule: str
    why_not: str


def tried(config: Config, event: Event, *, mine: bool, tags: Mapping[str, str]) -> list[RuleResult]:
    """Every rule up to the first that matches, and those that are not reached."""
    found: list[RuleResult] = []
    for rule in config.rules:
        if matched := next((one.rule for one in found if not one.why_not), ""):
            found.append(RuleResult(rule.name, f"not reached: '{matched}' matches first"))
        else:
            found.append(RuleResult(rule.name, why_not(rule, event, mine=mine, tags=tags)))
    return found


def why_not(rule: Rule, event: Event, *, mine: bool, tags: Mapping[str, str]) -> str:
    """Agrees with `matching.matches`, and says why."""
    if rule.type and event.type not in rule.type:
        return f"it is about {' or '.join(rule.type)}"
    if rule.source and event.source not in rule.source:
        return f"it is about events from {' or '.join(rule.source)}"
    if rule.machine != "any" and (rule.machine == "mine") is not mine:
        return f"it is about {'this machine' if rule.machine == 'mine' else 'other machines'}"
    if missing := [
        f"{key}={value}" for key, value in rule.labels.items() if tags.get(key) != value
    ]:
        return f"it is for machines that are labelled {listing(missing)}"
    return _lasting(rule, event.duration)


def _lasting(rule: Rule, duration: float | None) -> str:
    if rule.min_duration is None and rule.max_duration is None:
        return ""
    if duration is None:
        return "it goes by the duration, which is unknown"
    if rule.min_duration is not None and duration < rule.min_duration:
        return f"it is about events of at least {span(rule.min_duration)}"
    if rule.max_duration is not None and duration > rule.max_duration:
        return f"it is about events of at most {span(rule.max_duration)}"
    return ""


def done(rule: Rule, hooks: Mapping[str, Hook], notice: float) -> Iterator[str]:
    """What would be done, in its order, with so many seconds from now until NotBefore."""
    begins = 0.0 if rule.lead is None else max(0.0, notice - rule.lead)
    left = notice - begins - MARGIN
    used = [hooks[name] for name in rule.hooks]
    if not used:
        yield "nothing is prepared"
    when = "at once" if begins == 0.0 else f"after {span(begins)}"
    for hook in used:
        if not hook.has("prepare"):
            continue
        if left < LEAST:
            yield f"prepare {hook.name}: not begun, there is no time left"
        else:
            yield f"prepare {hook.name}: {when}, {span(min(hook.timeout, left))} at most"
        when = "then"
    yield {
        "never": "it starts at its NotBefore: nobody here approves it",
        "when-done": "when all are done, it is approved, for every machine that it lists",
        "coordinated": "when all are done, and on every machine that it lists, it is approved",
        "user-at-once": "if a user has asked for it, it is approved at once; else nobody here does",
    }[rule.approve]
    for stage, words in (("started", "when it has started"), ("undo", "when it is over")):
        names = [hook.name for hook in used if hook.has(stage)]  # type: ignore[arg-type]
        if names:
            order = names[::-1] if stage == "undo" else names
            yield f"{words}: {stage} {', then '.join(order)}"


def span(seconds: float) -> str:
    return in_words(round(seconds * SECOND))
