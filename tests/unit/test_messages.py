"""Whatever the service may say to an operator stands in docs/messages.md, with what to do.

The messages are read off the source: lines of the log, refusals, errors that end a command, and
notes and warnings beside what a command prints. What is filled in when they are said stands as
`…`. How an event or a rollout stands (`explain`) is no message, and neither is what guests get.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "forewarn"
LOGGED = {"info", "warning", "error", "exception", "critical"}
REFUSED = {"conflict", "invalid", "unknown", "stale", "fail", "Refused", "BadParameter"}
FOUND = {"_wrong", "_fatal", "_warning", "Finding", "Pair"}  # by a look at the settings
ANSWERED = {"PermissionDeniedException", "_refuse", "problem", "_cut", "Veto"}
TELLING = {"_tell", "tell"}  # a way to the log that somebody was given
NOTED = {"problems", "notes", "said"}  # lists that are told, one by one
APART = {"testing", "wire"}  # the test kit's own; what guests are told
PASSING = {  # not for an operator, and why
    "no way to … an event that is …": "a mistake of ours",
}
LEAST = 3  # words that are its own: with fewer it only passes on what somebody else has said
ROW = re.compile(r"^\| `(.+?)` \| (.*) \|$", re.MULTILINE)


def test_every_message_is_explained() -> None:
    explained = set(_explained())
    assert [words for words in sorted(_said()) if words not in explained] == []


def test_no_message_is_explained_that_is_never_said() -> None:
    said = _said()
    assert [words for words in _explained() if words not in said] == []


def test_no_message_is_explained_twice() -> None:
    explained = _explained()
    assert sorted(explained) == sorted(set(explained))


def test_every_explanation_says_something() -> None:
    rows = ROW.findall(_page())
    assert rows
    assert [words for words, meaning in rows if len(meaning.split()) < LEAST] == []


def _explained() -> list[str]:
    return [words for words, _ in ROW.findall(_page())]


def _page() -> str:
    return (ROOT / "docs" / "messages.md").read_text().replace("\\|", "|")


@cache
def _said() -> frozenset[str]:
    return frozenset(words for _, _, words in messages()) - set(PASSING)


def messages() -> Iterator[tuple[str, int, str]]:
    """Every message, and where it is said."""
    for file, tree in _trees().items():
        if Path(file).parts[0] in APART:
            continue
        for node in ast.walk(tree):
            for said in _saying(node):
                for words in _words(said, file):
                    if " " in words and len(re.findall(r"[a-z]{2,}", words)) >= LEAST:
                        yield file, said.lineno, " ".join(words.split())


@cache
def _trees() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text())
        for path in sorted(SOURCE.rglob("*.py"))
    }


def _saying(node: ast.AST) -> list[ast.expr]:
    """What an operator is told here, if anything is."""
    if not isinstance(node, ast.Call):
        return []
    match node.func:
        case ast.Attribute(value=ast.Name(id="log"), attr=name):
            return node.args[:1] if name in LOGGED else []
        case ast.Attribute(value=ast.Name(id=name), attr="append"):
            return node.args if name in NOTED else []
        case ast.Name(id=name) | ast.Attribute(attr=name):
            if name in ("say", "echo"):
                return node.args[:1] if any(k.arg == "err" for k in node.keywords) else []
            told = REFUSED | FOUND | ANSWERED | TELLING | {"ValueError"} | _errors()
            return [*node.args, *(k.value for k in node.keywords)] if name in told else []
    return []


def _words(node: ast.expr, file: str, depth: int = 2) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(words)):
            yield words
        case ast.JoinedStr(values=values):
            said = (v.value if isinstance(v, ast.Constant) else "…" for v in values)
            yield "".join(map(str, said))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            for first in _words(left, file, depth):
                for second in _words(right, file, depth):
                    yield first + second
        case ast.IfExp(body=body, orelse=other):
            yield from _words(body, file, depth)
            yield from _words(other, file, depth)
        case ast.Name(id=name) if depth:
            for value in _given(file).get(name, []):
                yield from _words(value, file, depth - 1)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if depth:
            for where, value in _returned().get(name, []):
                yield from _words(value, where, depth - 1)


@cache
def _given(file: str) -> dict[str, list[ast.expr]]:
    """What the names in a file stand for."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(_trees()[file]):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


@cache
def _returned() -> dict[str, list[tuple[str, ast.expr]]]:
    """What functions answer that answer with words."""
    found: dict[str, list[tuple[str, ast.expr]]] = {}
    for file, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.returns:
                if not re.fullmatch(r"str( \| None)?", ast.unparse(node.returns)):
                    continue
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and inner.value:
                        found.setdefault(node.name, []).append((file, inner.value))
    return found


@cache
def _errors() -> frozenset[str]:
    """The exceptions of ours, whose words are for an operator."""
    bases = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for tree in _trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }

    def raised(name: str) -> bool:
        return name in ("Exception", "ValueError", "OSError") or any(
            map(raised, bases.get(name, []))
        )

    return frozenset(name for name in bases if raised(name))
