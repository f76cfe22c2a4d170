"""Labels and selecting by them: what a label may be, which labels a machine has, and selectors.

A selector is terms with commas between them, all of which must hold: `k=v` (the label has this
value), `k!=v` (it has not, or is not there), `k` (it is there), `!k` (it is not). Use it so:

    selector = parse("tier=web,!canary")           # or SelectorError, which says what is wrong
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
    """It is no selector; the message says what is wrong and what would be right."""


class Term(msgspec.Struct, frozen=True):
    """One condition. Without a value it asks whether the label is there at all."""

    name: str
    value: str | None = None
    negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        there = labels.get(self.name)
        found = there is not None if self.value is None else there == self.value
        return found is not self.negated

    def __str__(self) -> str:
        if self.value is None:
            return f"!{self.name}" if self.negated else self.name
        return f"{self.name}{'!=' if self.negated else '='}{self.value}"


Selector: TypeAlias = tuple[Term, ...]


def parse(text: str) -> Selector:
    """The selector that the text says. Raises SelectorError."""
    if not text.strip():
        return ()
    terms = tuple(_term(part.strip(), text) for part in text.split(","))
    if len(terms) > MAX_TERMS:
        raise SelectorError(f"a selector has at most {MAX_TERMS} terms")
    return terms


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    return all(term.holds(labels) for term in selector)


def labels_of(group: Group, machine: Machine) -> Mapping[str, str]:
    """A machine's labels: its group's, overlaid with its own."""
    if not machine.labels:
        return group.labels
    return {**group.labels, **machine.labels} if group.labels else machine.labels


def labels_problem(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong with them, if anything: the label it is about, and what would be right."""
    if len(labels) > MAX_LABELS:
        return "", f"there are {len(labels)} labels; at most {MAX_LABELS} are allowed"
    for name, value in labels.items():
        if wrong := _wrong_name(name) or _wrong_value(value):
            return name, wrong
    return None


def _wrong_name(name: str) -> str:
    if len(name) <= MAX_LABEL_NAME and LABEL_NAME.fullmatch(name):
        return ""
    return (
        f"'{name}' is no name of a label: that has 1 to {MAX_LABEL_NAME} letters, digits, '.',"
        " '_', '/' or '-', and begins and ends with a letter or digit"
    )


def _wrong_value(value: str) -> str:
    if len(value) <= MAX_LABEL_VALUE and LABEL_VALUE.fullmatch(value):
        return ""
    return (
        f"'{value}' is no value of a label: that has up to {MAX_LABEL_VALUE} letters, digits, '.',"
        " '_', '/', ':', '@', '+' or '-', and begins and ends with a letter or digit"
    )


def _term(part: str, text: str) -> Term:
    if not part:
        raise SelectorError(
            f"'{text}': there is nothing between two commas; say k=v, k!=v, k or !k"
        )
    name, equals, value = part.partition("=")
    if equals:
        negated = name.endswith("!")
        term = Term(name.removesuffix("!").strip(), value.strip(), negated)
    else:
        term = Term(part.removeprefix("!").strip(), None, part.startswith("!"))
    if wrong := _wrong_name(term.name) or _wrong_value(term.value or ""):
        raise SelectorError(f"'{part}': {wrong}; say k=v, k!=v, k or !k")
    return term
