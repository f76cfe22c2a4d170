"""`agent test`: what the agent would do about a hypothetical event, rule by rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from forewarn.agent.config.model import Config, Hook, Rule, Stage
from forewarn.agent.config.rules import Mismatch, mismatch, missing_labels
from forewarn.agent.planning.plan import LEAST, MARGIN
from forewarn.client.events import Event
from forewarn.support.text import SECOND, in_words, listing

_AFTERWARDS: tuple[tuple[Stage, str], ...] = (
    ("started", "when it has started"),
    ("undo", "when it is over"),
)
_APPROVAL = {
    "never": "it starts at its NotBefore: the agent does not approve it",
    "when-done": "when all hooks are done, it is approved for every machine that it lists",
    "coordinated": "when all hooks are done on every machine that it lists, it is approved",
    "user-at-once": "if a user requested it, it is approved at once; otherwise it is not approved",
}


class RuleResult(msgspec.Struct, frozen=True):
    """A rule, and why it does not match; empty if it is the one that does."""

    rule: str
    why_not: str


def explain(
    config: Config, event: Event, *, mine: bool, tags: Mapping[str, str]
) -> list[RuleResult]:
    """Return a result for every rule: up to the first that matches, and those after it."""
    results: list[RuleResult] = []
    matched = ""
    for rule in config.rules:
        if matched:
            reason = f"not reached: '{matched}' matches first"
        else:
            reason = why_not(rule, event, mine=mine, tags=tags)
            matched = "" if reason else rule.name
        results.append(RuleResult(rule.name, reason))
    return results


def why_not(rule: Rule, event: Event, *, mine: bool, tags: Mapping[str, str]) -> str:
    """Return why the rule does not match the event; empty if it does."""
    match mismatch(rule, event, mine=mine, tags=tags):
        case Mismatch.TYPE:
            return f"it is for {' or '.join(rule.type)}"
        case Mismatch.SOURCE:
            return f"it is for events from {' or '.join(rule.source)}"
        case Mismatch.MACHINE:
            return f"it is for {'this machine' if rule.machine == 'mine' else 'other machines'}"
        case Mismatch.LABELS:
            return f"it is for machines with the labels {listing(missing_labels(rule, tags))}"
        case Mismatch.UNKNOWN_DURATION:
            return "it depends on the duration, which is unknown"
        case Mismatch.TOO_SHORT:
            return f"it is for events of at least {_span(rule.min_duration)}"
        case Mismatch.TOO_LONG:
            return f"it is for events of at most {_span(rule.max_duration)}"
        case None:
            return ""


def actions(rule: Rule, hooks: Mapping[str, Hook], notice: float) -> Iterator[str]:
    """Describe what would be done, in order, `notice` seconds before NotBefore."""
    begins = 0.0 if rule.lead is None else max(0.0, notice - rule.lead)
    left = notice - begins - MARGIN
    used = [hooks[name] for name in rule.hooks]
    if not used:
        yield "nothing is prepared"
    for hook in used:
        if begins and hook.has("announced"):
            yield f"announced {hook.name}: at once, {_span(min(hook.timeout, begins))} at most"
    when = "at once" if begins == 0.0 else f"after {_span(begins)}"
    for hook in used:
        if not hook.has("prepare"):
            continue
        if left < LEAST:
            yield f"prepare {hook.name}: not started, since there is no time left"
        else:
            yield f"prepare {hook.name}: {when}, {_span(min(hook.timeout, left))} at most"
        when = "then"
    yield _APPROVAL[rule.approve]
    for stage, text in _AFTERWARDS:
        names = [hook.name for hook in used if hook.has(stage)]
        if names:
            order = names[::-1] if stage == "undo" else names
            yield f"{text}: {stage} {', then '.join(order)}"


def _span(seconds: float | None) -> str:
    return in_words(round((seconds or 0.0) * SECOND))
