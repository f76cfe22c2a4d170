"""Labels and selectors: which labels are valid, which a machine has, and how to select by them.

A selector is a comma-separated list of terms, all of which must be true: `k=v` (the label has this
value), `k!=v` (it has another value or does not exist), `k` (it exists), `!k` (it does not exist):

    selector = parse("tier=web,!canary")           # raises SelectorError
    matches(selector, labels_of(group, machine))   # or host.labels, or group.labels

The empty selector matches everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from forewarn.core.fleet import Machine
from forewarn.core.group import Group

MAX_LABELS = 64  # of one host, group or machine
MAX_LABEL_NAME = 63  # characters
MAX_LABEL_VALUE = 63  # characters
MAX_TERMS = 32  # of one selector
LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._/:@+-]*[A-Za-z0-9])?)?")


class SelectorError(ValueError):
    """The text is not a selector. The message says what is wrong and what would be right."""


class Term(msgspec.Struct, frozen=True):
    """One condition of a selector. Without a value, the label only has to exist."""

    name: str
    value: str | None = None
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.name)
        matched = value is not None if self.value is None else value == self.value
        return matched is not self.negated

    def __str__(self) -> str:
        if self.value is None:
            return f"!{self.name}" if self.negated else self.name
        return f"{self.name}{'!=' if self.negated else '='}{self.value}"


Selector: TypeAlias = tuple[Term, ...]


def parse(text: str) -> Selector:
    """Parse a selector. Raises SelectorError."""
    if not text.strip():
        return ()
    terms = tuple(_term(part.strip(), text) for part in text.split(","))
    if len(terms) > MAX_TERMS:
        raise SelectorError(f"a selector has at most {MAX_TERMS} terms")
    return terms


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    return all(term.matches(labels) for term in selector)


def labels_of(group: Group, machine: Machine) -> Mapping[str, str]:
    """Return a machine's labels: those of its group, overridden by its own."""
    if not machine.labels:
        return group.labels
    return {**group.labels, **machine.labels} if group.labels else machine.labels


def labels_problem(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return what is wrong with labels, if anything: the label's name, and a message."""
    if len(labels) > MAX_LABELS:
        return "", f"there are {len(labels)} labels; at most {MAX_LABELS} are allowed"
    for name, value in labels.items():
        if problem := _name_problem(name) or _value_problem(value):
            return name, problem
    return None


def _name_problem(name: str) -> str:
    if len(name) <= MAX_LABEL_NAME and LABEL_NAME.fullmatch(name):
        return ""
    return (
        f"'{name}' is not a valid label name: use 1 to {MAX_LABEL_NAME} letters, digits, '.',"
        " '_', '/' or '-', beginning and ending with a letter or digit"
    )


def _value_problem(value: str) -> str:
    if len(value) <= MAX_LABEL_VALUE and LABEL_VALUE.fullmatch(value):
        return ""
    return (
        f"'{value}' is not a valid label value: use up to {MAX_LABEL_VALUE} letters, digits, '.',"
        " '_', '/', ':', '@', '+' or '-', beginning and ending with a letter or digit"
    )


def _term(part: str, text: str) -> Term:
    if not part:
        raise SelectorError(f"'{text}' has an empty term; use k=v, k!=v, k or !k")
    name, equals, value = part.partition("=")
    if equals:
        negated = name.endswith("!")
        term = Term(name.removesuffix("!").strip(), value.strip(), negated)
    else:
        term = Term(part.removeprefix("!").strip(), None, part.startswith("!"))
    if problem := _name_problem(term.name) or _value_problem(term.value or ""):
        raise SelectorError(f"'{part}': {problem}; use k=v, k!=v, k or !k")
    return term
