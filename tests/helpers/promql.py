"""Reads the part of PromQL that the dashboard and the alerts use: can an expression be read and
evaluated, and which labels does its result have?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

SCRAPED = frozenset({"instance", "job"})  # labels that Prometheus adds to everything
FUNCTIONS = {"rate": "range", "increase": "range", "histogram_quantile": "vector"}
AGGREGATIONS = ("sum", "min", "max")
# What binds least first; what is on one line binds equally.
OPERATORS = (
    ("or",),
    ("and", "unless"),
    ("==", "!=", "<=", ">=", "<", ">"),
    ("+", "-"),
    ("*", "/"),
)
TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_]\w*)|(?P<text>"[^"\\]*")
    |(?P<range>\[(?:\$__rate_interval|\d+[smhd])\])|(?P<sign>==|=~|!=|!~|<=|>=|[-+*/<>=(){},]))""",
    re.VERBOSE,
)


class Unreadable(Exception):
    """Prometheus would refuse the expression, or it would never match anything."""


class Value(NamedTuple):
    kind: Literal["scalar", "vector", "range"]
    labels: frozenset[str] = frozenset()


def read(expression: str, exposed: Mapping[str, set[str]]) -> frozenset[str]:
    """Return the labels of what an expression selects. `exposed` are the labels of all metrics."""
    reader = _Reader(expression, exposed)
    value = reader.expression()
    if reader.token or value.kind != "vector":
        raise Unreadable(f"{reader.token or value.kind} in {expression}")
    return value.labels


def shown_labels(template: str) -> set[str]:
    """Return the labels that a legend of Grafana, or an annotation of an alert, shows."""
    return set(re.findall(r"\{\{ *(?:\$labels\.)?([a-z_]+) *\}\}", template))


class _Reader:
    def __init__(self, text: str, exposed: Mapping[str, set[str]]) -> None:
        self._exposed = exposed
        self._tokens: list[tuple[str, str]] = []
        position, text = 0, text.rstrip()
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise Unreadable(text[position:])
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()

    @property
    def token(self) -> str:
        return self._tokens[0][1] if self._tokens else ""

    def take(self, kind: str) -> str:
        if not self._tokens or self._tokens[0][0] != kind:
            raise Unreadable(f"{self.token or 'the end'} instead of a {kind}")
        return self._tokens.pop(0)[1]

    def expect(self, sign: str) -> None:
        if self.take("sign") != sign:
            raise Unreadable(f"{sign} is missing")

    def expression(self, level: int = 0) -> Value:
        if level == len(OPERATORS):
            return self._operand()
        value = self.expression(level + 1)
        while self.token in OPERATORS[level]:
            operator = self._tokens.pop(0)[1]
            value = _combined(operator, value, self.expression(level + 1))
        return value

    def _operand(self) -> Value:
        if self.token == "-" or (self._tokens and self._tokens[0][0] == "number"):
            if self.token == "-":
                self.expect("-")
            self.take("number")
            return Value("scalar")
        if self.token == "(":
            return self._arguments()[0]
        name = self.take("name")
        if name == "time":
            self.expect("(")
            self.expect(")")
            return Value("scalar")
        if name in AGGREGATIONS:
            return self._aggregation()
        if name in FUNCTIONS:
            value = self._arguments()[-1]
            if value.kind != FUNCTIONS[name]:
                raise Unreadable(f"{name} of a {value.kind}")
            gone = {"le"} if name == "histogram_quantile" else set()
            if not gone <= value.labels:
                raise Unreadable(f"{name} without le")
            return Value("vector", value.labels - gone)
        return self._selector(name)

    def _arguments(self) -> list[Value]:
        self.expect("(")
        values = [self.expression()]
        while self.token == ",":
            self.expect(",")
            values.append(self.expression())
        self.expect(")")
        return values

    def _aggregation(self) -> Value:
        kept: set[str] = set()
        if self.token == "by":
            self.take("name")
            self.expect("(")
            kept = {self.take("name")}
            while self.token == ",":
                self.expect(",")
                kept.add(self.take("name"))
            self.expect(")")
        (value,) = self._arguments()
        if value.kind != "vector" or not kept <= value.labels:
            raise Unreadable(f"by {sorted(kept)} of a {value.kind} with {sorted(value.labels)}")
        return Value("vector", frozenset(kept))

    def _selector(self, metric: str) -> Value:
        if metric not in self._exposed:
            raise Unreadable(f"there is no metric {metric}")
        labels = SCRAPED | self._exposed[metric]
        if self.token == "{":
            separator = "{"
            while separator != "}":
                self.expect(separator)
                if (label := self.take("name")) not in labels:
                    raise Unreadable(f"{metric} has no label {label}")
                if self.take("sign") not in ("=", "!=", "=~", "!~"):
                    raise Unreadable(f"{metric}: {label} is compared with nothing")
                self.take("text")
                separator = self.token if self.token in (",", "}") else ","
            self.expect("}")
        if self._tokens and self._tokens[0][0] == "range":
            self.take("range")
            return Value("range", labels)
        return Value("vector", labels)


def _combined(operator: str, left: Value, right: Value) -> Value:
    if "range" in (left.kind, right.kind):
        raise Unreadable(f"{operator} of a range")
    if operator == "or":  # each result has the labels of one side
        return Value("vector", left.labels & right.labels)
    vectors = [value for value in (left, right) if value.kind == "vector"]
    if len(vectors) == 2 and left.labels != right.labels:
        raise Unreadable(f"{operator} of {sorted(left.labels)} and {sorted(right.labels)}")
    return vectors[0] if vectors else left
