"""Reads a query in the Kusto Query Language: those operators of it that published queries of Azure
Resource Graph use.

    query      = (table | step) {"|" step}
    step       = "where" condition | "project" named {"," named} | "extend" named {"," named}
               | "distinct" ("*" | named {"," named}) | "count"
               | ("take" | "limit" | "sample") number
               | ("sort" | "order") "by" key {"," key} | "top" number "by" key
               | "summarize" [[name "="] "count" "(" ")"] ["by" named {"," named}]
    named      = [name "="] condition
    key        = condition ["asc" | "desc"] ["nulls" ("first" | "last")]
    condition  = both {"or" both}
    both       = comparison {"and" comparison}
    comparison = operand [operator (operand | "(" operand {"," operand} ")")]
    operand    = (text | number | "true" | "false" | name | "[" text "]"
               | name "(" [condition {"," condition}] ")" | "(" condition ")")
               {"." name | "[" (text | number) "]"}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NoReturn, TypeVar

import msgspec

from forewarn.arm.kusto import rows as r
from forewarn.arm.kusto.rows import Expression, Key, KustoError, Rows, Step

MAX_QUERY = 10_000  # characters
MAX_DEPTH = 32  # of parentheses
MAX_STEPS = 64

T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*)*(?:(?P<text>'(?:[^'\\\n]|\\[ntr\\'"])*'|"(?:[^"\\\n]|\\[ntr\\'"])*")"""
    r"|(?P<number>\d{1,15}(?:\.\d{1,9})?(?!\w))|(?P<word>!?in~|!?[A-Za-z_]\w*(?:-\w+)*)"
    r"|(?P<symbol>[=!<>]=|[=!]~|<>|[<>=|(),.\[\]*-])|(?P<end>\Z)|(?P<other>.+))",
    re.ASCII | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_SORTS, _TAKES = ("sort", "order"), ("take", "limit", "sample")
STEPS = ("where", "project", "extend", "distinct", "count", "summarize", "top", *_SORTS, *_TAKES)
OPERATORS = (*r.TESTS, *r.LISTS, *r.NEGATED)
_AFTER = ("and", "or", "asc", "desc", "nulls", "by")  # an expression
_TRUTH = "something that is true or false, such as name == 'web'"


class Query(msgspec.Struct, frozen=True):
    columns: tuple[str, ...]  # of the result
    steps: tuple[Step, ...]

    def run(self, rows: Rows) -> Rows:
        """Yield the rows of the result, and None now and then. Raises KustoError."""
        for step in self.steps:
            rows = step(rows)
        return rows


def parse(text: str, tables: Mapping[str, Sequence[str]]) -> tuple[str, Query]:
    """Return which of the tables, each with its columns, a query reads, and the query; without one,
    it reads the first. Raises KustoError."""
    if len(text) > MAX_QUERY:
        raise KustoError(f"a query has at most {MAX_QUERY:,} characters, not {len(text):,}")
    return _Parser(text, tables).query()


class _Token(msgspec.Struct, frozen=True):
    kind: str  # a group of _TOKEN
    text: str  # a word in lower case
    shown: str
    at: int


class _Read(msgspec.Struct, frozen=True):
    """An expression that was read."""

    value: Expression
    name: str = ""  # of a column that is made of it
    truth: bool = False  # is it true or false?


class _Parser:
    def __init__(self, text: str, tables: Mapping[str, Sequence[str]]) -> None:
        self._tables = tables
        self._columns: list[str] = []
        self._depth = 0
        self._tokens = []
        for match in _TOKEN.finditer(text):
            kind = str(match.lastgroup)
            shown = match[kind]
            lower = shown if kind == "text" else shown.lower()
            self._tokens.append(_Token(kind, lower, shown, match.start(kind)))
        self._index = 0

    def query(self) -> tuple[str, Query]:
        table, more = next(iter(self._tables)), self._token.text in STEPS
        if not more:
            table, more = self._known("table", self._tables), self._accept("|")
        self._columns = list(self._tables[table])
        steps: list[Step] = []
        while more:
            if len(steps) == MAX_STEPS:
                self._refuse(self._token, f"a query has at most {MAX_STEPS} operators")
            steps.append(self._step())
            more = self._accept("|")
        if self._token.kind != "end":
            self._fail("'|' or the end of the query")
        return table, Query(tuple(self._columns), tuple(steps))

    def _step(self) -> Step:
        name = self._known("operator", STEPS)
        if name == "where":
            return r.where(self._truth(self._token, self._condition()).value)
        if name in _TAKES:
            return r.sample(self._rows()) if name == "sample" else r.take(self._rows())
        if name in _SORTS or name == "top":
            number = self._rows() if name == "top" else None
            self._expect("by")
            return r.sort([self._key()] if name == "top" else self._listed(self._key), number)
        if name == "count":
            self._columns = ["Count"]
            return r.group({}, "Count")
        if name == "summarize":
            return self._summarize()
        named = self._all() if name == "distinct" and self._accept("*") else self._named()
        if name == "extend":
            self._columns = list(dict.fromkeys([*self._columns, *named]))
            return r.extend(named)
        self._columns = list(named)
        return r.group(named) if name == "distinct" else r.project(named)

    def _summarize(self) -> Step:
        counted = "count_" if self._token.text != "by" else ""
        if counted:
            counted = self._name() or counted
            for text in ("count", "(", ")"):
                self._expect(text)
        named = {}
        if not counted or self._token.text == "by":
            self._expect("by")
            named = self._named()
        self._columns = [*named, *filter(None, [counted])]
        return r.group(named, counted)

    def _all(self) -> dict[str, Expression]:
        return {column: r.column(column) for column in self._columns}

    def _named(self) -> dict[str, Expression]:
        """Read columns that are made of expressions."""
        named: dict[str, Expression] = {}
        for token, name, read in self._listed(
            lambda: (self._token, self._name(), self._condition())
        ):
            name = name or read.name or f"Column{len(named) + 1}"
            if name in named:
                self._refuse(token, f"the column '{name}' is there twice; give one another name")
            named[name] = read.value
        return named

    def _name(self) -> str:
        """Read the name before `=`; empty if there is none."""
        name = self._token.shown if self._token.kind == "word" and self._peek.text == "=" else ""
        self._index += 2 if name else 0
        return name

    def _key(self) -> Key:
        """Read by what to sort."""
        value = self._condition().value
        descends = not self._accept("asc")
        if descends:
            self._accept("desc")
        nulls_first = not descends
        if self._accept("nulls"):
            nulls_first = self._accept("first")
            if not nulls_first:
                self._expect("last")
        return value, descends, nulls_first

    def _condition(self) -> _Read:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(self._token, f"parentheses are nested at most {MAX_DEPTH} deep")
        read = self._joined("or", any, lambda: self._joined("and", all, self._comparison))
        self._depth -= 1
        return read

    def _joined(
        self, word: str, join: Callable[[Iterable[bool]], bool], part: Callable[[], _Read]
    ) -> _Read:
        parts = [(self._token, part())]
        while self._accept(word):
            parts.append((self._token, part()))
        if len(parts) == 1:
            return parts[0][1]
        values = [self._truth(token, read).value for token, read in parts]
        return _Read(lambda row: join(value(row) for value in values), truth=True)

    def _truth(self, token: _Token, read: _Read) -> _Read:
        if not read.truth:
            self._refuse(token, f"expected {_TRUTH}")
        return read

    def _comparison(self) -> _Read:
        left, name = self._operand(), self._token.text
        if name not in OPERATORS:
            if name == "=" or (self._token.kind == "word" and name not in _AFTER):
                self._fail("comparison", OPERATORS)
            return left
        self._index += 1
        positive = r.NEGATED.get(name, name)
        if positive in r.LISTS:
            self._expect("(")
            compare, others = r.LISTS[positive], self._listed(self._operand)
            self._expect(")")
        else:
            if positive in r.ORDERS and self._token.kind == "text":
                self._fail("a number")
            compare, others = r.TESTS[positive], [self._operand()]
        return _Read(
            r.comparison(compare, left.value, [o.value for o in others], positive == name),
            truth=True,
        )

    def _operand(self) -> _Read:
        token = self._token
        if self._accept("("):
            operand = self._condition()
            self._expect(")")
        elif token.kind == "text":
            operand = _Read(r.constant(self._text()))
        elif token.kind == "number" or token.text == "-":
            operand = _Read(r.constant(self._number()))
        elif token.kind == "word" and token.text in ("true", "false"):
            self._index += 1
            operand = _Read(r.constant(token.text == "true"), truth=True)
        elif token.kind == "word" and self._peek.text == "(":
            operand = self._function()
        elif token.kind == "word":
            name = self._known("column", self._columns)
            operand = _Read(r.column(name), name)
        elif self._peek.kind == "text" and self._accept("["):
            name = self._known("column", self._columns, "text")
            self._expect("]")
            operand = _Read(r.column(name), name)
        else:
            self._fail("a column, a text in quotes, a number or a function")
        return self._path(operand)

    def _path(self, operand: _Read) -> _Read:
        keys: list[str | float] = []
        while self._token.text in (".", "["):
            if self._accept("."):
                if self._token.kind != "word":
                    self._fail("the name of a property")
                keys.append(self._token.shown)
                self._index += 1
            else:
                self._expect("[")
                keys.append(self._text() if self._token.kind == "text" else self._number())
                self._expect("]")
        if not keys:
            return operand
        name = "_".join([operand.name, *map(str, keys)]) if operand.name else ""
        return _Read(r.path(operand.value, keys), name)

    def _function(self) -> _Read:
        token, name = self._token, self._known("function", r.FUNCTIONS)
        self._expect("(")
        read = [] if self._token.text == ")" else self._listed(self._condition)
        self._expect(")")
        function = r.FUNCTIONS[name]
        if len(read) not in function.takes or (name == "not" and not read[0].truth):
            self._refuse(token, f"write {name}() as in {function.example}")
        values = [argument.value for argument in read]
        kept = read[0].name if name == "tostring" else ""
        return _Read(lambda row: function.of(*(v(row) for v in values)), kept, function.truth)

    def _known(self, what: str, known: Collection[str], kind: str = "word") -> str:
        """Read a name, in any letter case unless there are two, as Azure does."""
        name = self._token.shown if kind == "word" else self._token.shown[1:-1]
        if name not in known:
            by_name = {each.lower(): each for each in known}
            name = by_name.get(name.lower(), "")
        if not name or self._token.kind != kind:
            self._fail(what, known)
        self._index += 1
        return name

    def _text(self) -> str:
        self._index += 1
        text = self._tokens[self._index - 1].text[1:-1]
        return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)

    def _number(self) -> int | float:
        sign = -1 if self._accept("-") else 1
        text = self._token.text
        if self._token.kind != "number":
            self._fail("a number")
        self._index += 1
        return sign * (float(text) if "." in text else int(text))

    def _rows(self) -> int:
        if self._token.kind != "number" or "." in self._token.text:
            self._fail("a number of rows")
        return int(self._number())

    def _listed(self, read: Callable[[], T]) -> list[T]:
        items = [read()]
        while self._accept(","):
            items.append(read())
        return items

    @property
    def _token(self) -> _Token:
        return self._tokens[self._index]

    @property
    def _peek(self) -> _Token:
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    def _accept(self, text: str) -> bool:
        accepted = self._token.kind in ("word", "symbol") and self._token.text == text
        self._index += accepted
        return accepted

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail(f"'{text}'")

    def _fail(self, what: str, known: Iterable[str] = ()) -> NoReturn:
        token = self._token
        found = f"'{token.shown[:60]}'" if token.kind != "end" else "the end of the query"
        if known:
            self._refuse(token, f"unknown {what} {found}; there are {', '.join(known)}")
        self._refuse(token, f"expected {what}, not {found}")

    def _refuse(self, token: _Token, problem: str) -> NoReturn:
        raise KustoError(f"at character {token.at + 1}: {problem}")
