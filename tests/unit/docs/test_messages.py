"""Every message for an operator stands in docs/reference/messages.md, with what to do.

The messages are read off the source: lines of the log, refusals, errors that end a command, and
notes and warnings beside what a command prints. What is filled in when they are said stands as
`…`. How an event or a rollout stands (`explain`) is no message, and neither is what guests get.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from helpers.paths import ROOT

SOURCE = ROOT / "src" / "forewarn"
LOGGED = {"info", "warning", "error", "exception", "critical"}
REFUSED = {"conflict", "invalid", "unknown", "stale", "fail", "Refused", "BadParameter"}
FOUND = {
    "_scalar_error",
    "_problem",
    "_wrong",
    "fatal",
    "warning",
    "Finding",
    "Pair",
}  # by a look at the settings
ANSWERED = {"answer", "problem", "HTTPException", "PermissionDeniedException", "Veto"}
ANSWERED |= {"problem_response", "problem_for_status"}  # of the control API
ANSWERED |= {"NotAuthorizedException", "Changes", "Outcomes", "announce_all"}  # with notes
ANSWERED |= {"ValueProblem"}  # about values in files
ANSWERED |= {"Unknown", "Failed", "Unclear", "Answer", "GateResult"}  # drivers, gates, control
ANSWERED |= {"Problem"}  # of /healthz
ANSWERED |= {"DeliveryFailed"}  # of notifications
TELLING = {
    "_log",
    "_log_error",
    "_tell",
    "log_line",
    "tell",
    "log",
    "_within",
    "_interrupted",
    "cut",
    "fence",
    "_pause",
    "notes",
    "print_notes",
    "report_problem",
}
NOTED = {"problems", "notes", "said"}  # lists that are told, one by one
WORDING = {  # files whose functions put into words what others tell
    "control/notify/config.py",
    "control/http/parameters.py",
    "control/openapi/limits.py",
    "core/deciding/removals.py",
    "core/labels.py",
    "core/time.py",
    "drivers/command/driver.py",
    "drivers/command/options.py",
    "node/node.py",
    "node/settings/driver_tables.py",
    "node/open_files.py",
    "service/fleet/addresses.py",
    "support/extras.py",
    "support/suggest.py",
    "service/telemetry/health.py",
    "store/postgres/examine.py",
    "store/postgres/nodes.py",
}
# The test kit's; what guests get; a page; what a hook says, which its own page tells.
APART = ("judge", "testing", "wire", "control/openapi/html.py", "agent/hooks")
PASSING = {  # what looks like a message to us, and why it is none
    "cannot … an event that is …": "a mistake of ours",
    "the rollout has been paused, aborted or overtaken meanwhile": "a sign between two of ours",
    "event … belongs to the maintenance of host '…', which is for groups … together; they can"
    " only be cancelled together": "whoever cancels one cancels all",
    "no event … was ever listed here": "of a guest's approval, which is answered in other words",
    "no event … is listed here": "of a guest that is ready, which is answered in other words",
    "the note has more than … characters": "the same",
    "machine '…' has changed its readiness for event … … times; it stays as it is": "the same",
    "too many header lines": "closes a guest's connection, and is shown to nobody",
    "… belongs to another user": "the service goes on without its note, and commands without it",
    "… is not a directory; remove it": "the same",
    "… can be written to by other users; run chmod 700 …": "the same",
    "answered already": "the answer is what is told",
    'Basic realm="forewarn", charset="UTF-8"': "a header",
    'Bearer authorization_uri="…/…", error="invalid_token", error_description="The authentication'
    ' failed"': "a header",
    "there is none": "a part of others",
    "Successfully approved scheduled event": "what was done",
    "Successfully approved all Scheduled Events in the list": "the same",
    "did you mean '…'?": "a part of others",
    "there is only …": "a part of others",
    "there are ……": "a part of others",
    "…, not before … (in …)": "a line of forewarn status",
    "token … for '…', ……, valid …": "what was made",
}
LEAST = 2  # words that are its own: with fewer it only passes on what somebody else has said
MEANING = 5  # words of an explanation; with fewer it says nothing
EXAMPLES = {  # one for each way of telling something, so that we notice when we no longer see it
    "the state can be written again",  # a line of the log
    "event … has started and cannot be cancelled; only a Scheduled event can",  # a refusal
    "this needs the role …; token '…' has …",  # of who asks
    "a request with the … '…' is under way; try again in a moment",  # of a request
    "… is in use by …; stop that or choose another file",  # an exception of ours
    # in a helper's words
    "… is in use; choose another port (--metadata, --control), or port 0 for any that is free",
    "the speed must be a number from … to …",  # wrong usage
    "…: unknown key; …",  # a setting, with its place before it
    "… expires in … days",  # of the machine around
    "note: these machines have no address and cannot poll: …",  # beside what is printed
    "the notice is only …: clients may not see it in time",  # beside what is done
    "a deadline has been overdue for … s",  # of /healthz
    "the program cannot tell (exit code …)",  # of a driver
}
KINDS = (ast.Call, ast.Return, ast.Yield, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.NamedExpr)
LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.unaryop)
ROW = re.compile(r"^\| `(.+?)` \| (.*) \|$", re.MULTILINE)


def test_every_message_is_explained() -> None:
    explained = set(_explained())
    assert [words for words in sorted(_said()) if words not in explained] == []


def test_every_explained_message_exists() -> None:
    said = _said()
    assert [words for words in _explained() if words not in said] == []


def test_no_message_is_explained_twice() -> None:
    explained = _explained()
    assert sorted(explained) == sorted(set(explained))


def test_every_explanation_has_enough_words() -> None:
    rows = ROW.findall(_page())
    assert rows
    assert [words for words, meaning in rows if len(meaning.split()) < MEANING] == []


def test_every_kind_of_message_is_found() -> None:
    assert EXAMPLES - _said() == set()


def test_every_excluded_message_exists() -> None:
    assert set(PASSING) - {words for _, _, words in messages()} == set()


def _explained() -> list[str]:
    return [words for words, _ in ROW.findall(_page())]


def _page() -> str:
    return (ROOT / "docs" / "reference" / "messages.md").read_text().replace("\\|", "|")


@cache
def _said() -> frozenset[str]:
    return frozenset(words for _, _, words in messages()) - set(PASSING)


@cache
def messages() -> tuple[tuple[str, int, str], ...]:
    """Every message, and where it is said."""
    return tuple(
        (file, said.lineno, " ".join(words.split()))
        for file, nodes in _nodes().items()
        if not file.startswith(APART)
        for node in nodes
        for said in (*_saying(node), *_returning(node, file))
        for words in _words(said, file)
        if " " in words and len(re.findall(r"[a-z]{2,}", words)) >= LEAST
    )


@cache
def _nodes() -> dict[str, list[ast.AST]]:
    """Of each file what is looked at here: walked through once, as that is most of the work."""
    return {
        str(path.relative_to(SOURCE)): [
            node for node in _walk(ast.parse(path.read_text())) if isinstance(node, KINDS)
        ]
        for path in sorted(SOURCE.rglob("*.py"))
    }


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, in another order and without names and constants, in half the time."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for value in vars(node).values():
            if isinstance(value, list):
                waiting += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, LEAVES):
                waiting.append(value)


def _saying(node: ast.AST) -> list[ast.expr]:
    """What an operator is told here, if anything is."""
    if not isinstance(node, ast.Call):
        return []
    notes = [keyword.value for keyword in node.keywords if keyword.arg == "notes"]
    return [*notes, *_said_to(node)]


def _said_to(node: ast.Call) -> list[ast.expr]:
    match node.func.body if isinstance(node.func, ast.IfExp) else node.func:
        case ast.Attribute(value=ast.Name(id="log"), attr=name):
            return node.args[:1] if name in LOGGED else []
        case ast.Attribute(value=ast.Attribute(attr="stderr"), attr="write"):
            return node.args
        case ast.Attribute(value=ast.Name(id=name), attr="append"):
            return node.args if name in NOTED else []
        case ast.Name(id=name) | ast.Attribute(attr=name):
            if name == "unknown_name":
                kind = ast.literal_eval(node.args[0])
                return [ast.Constant(f"no {kind} '…'; …", lineno=node.lineno)]
            if name in ("say", "echo"):
                return node.args[:1] if any(k.arg == "err" for k in node.keywords) else []
            telling = name in _telling()
            return [*node.args, *(k.value for k in node.keywords)] if telling else []
    return []


def _returning(node: ast.AST, file: str) -> list[ast.expr]:
    """What is put into words here for others who tell it."""
    if file in WORDING and isinstance(node, ast.Return | ast.Yield) and node.value:
        return [node.value]
    return []


def _words(node: ast.expr, file: str, depth: int = 3) -> Iterator[str]:
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
        case ast.Tuple(elts=several) | ast.List(elts=several):
            for one in several:
                yield from _words(one, file, depth)
        case ast.GeneratorExp(elt=value) | ast.ListComp(elt=value):
            yield from _words(value, file, depth)
        case ast.Call(func=ast.Name(id="tuple"), args=[value]):
            yield from _words(value, file, depth)
        case ast.Dict(values=several):
            for one in several:
                yield from _words(one, file, depth)
        case ast.NamedExpr(value=value) | ast.Call(func=ast.Attribute(attr="prefix"), args=[value]):
            yield from _words(value, file, depth)
        case ast.BoolOp(values=several):
            for one in several:
                yield from _words(one, file, depth)
        case ast.IfExp(body=body, orelse=other):
            yield from _words(body, file, depth)
            yield from _words(other, file, depth)
        case ast.Name(id=name) if depth:
            for value in _given(file).get(name, []):
                yield from _words(value, file, depth - 1)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if depth:
            for value in _answers(name, file):
                yield from _words(value, file, depth - 1)


@cache
def _given(file: str) -> dict[str, list[ast.expr]]:
    """What the names in a file stand for."""
    found: dict[str, list[ast.expr]] = {}
    for node in _nodes()[file]:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.NamedExpr):
            found.setdefault(node.target.id, []).append(node.value)
    return found


def _answers(name: str, file: str) -> list[ast.expr]:
    """What a function answers that answers with words: one of the same file, or the only one."""
    found = _returned().get(name, {})
    if file in found:
        return found[file]
    elsewhere = [words for words in found.values() if words]
    return elsewhere[0] if len(elsewhere) == 1 else []


@cache
def _returned() -> dict[str, dict[str, list[ast.expr]]]:
    """What functions answer, by their name and file; nothing, if that is not words."""
    found: dict[str, dict[str, list[ast.expr]]] = {}
    for file, nodes in _nodes().items():
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                here = found.setdefault(node.name, {}).setdefault(file, [])
                if node.returns and re.match(r"str|tuple\[str", ast.unparse(node.returns)):
                    inner = [one for one in ast.walk(node) if isinstance(one, ast.Return)]
                    here += [one.value for one in inner if one.value]
    return found


@cache
def _telling() -> frozenset[str]:
    """The names of calls whose arguments are told to somebody."""
    return _errors() | REFUSED | FOUND | ANSWERED | TELLING | {"ValueError", "__init__"}


@cache
def _errors() -> frozenset[str]:
    """The exceptions of ours, whose words are for an operator."""
    bases = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for nodes in _nodes().values()
        for node in nodes
        if isinstance(node, ast.ClassDef)
    }

    def raised(name: str) -> bool:
        return name in ("Exception", "ValueError", "OSError") or any(
            map(raised, bases.get(name, []))
        )

    return frozenset(name for name in bases if raised(name))
