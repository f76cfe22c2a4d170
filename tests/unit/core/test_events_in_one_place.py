"""Which types of events there are is written where it is decided, and nowhere else: a type that is
added there is known to the API, Azure Resource Manager, the commands and the portal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from forewarn.wire.versions import TYPE_NAMES
from helpers.paths import ROOT

SOURCE = ROOT / "src" / "forewarn"
ALLOWED = {
    "core/events.py": "the table of what a type means",
    "wire/versions.py": "the table of what guests are shown, which is a promise of its own",
    "judge": "it takes nothing from what it judges",
    "control/operations/hosts.py": "the default of a command, which has no core to read",
    "agent/hooks/kubernetes_node.py": "sentences for people, with another for any other type",
    "client/events.py": "type checkers need literals; a test compares them",
    "testing/names.py": "editors need literals; a test compares them",
    "testing/kit": "editors show defaults as they are written; type checkers compare them",
}
QUOTED = re.compile(rf"[\"'`>]({'|'.join(TYPE_NAMES)})[\"'`<]")
LABEL = "label: "  # of a button, which is a verb


def test_types_of_events_are_named_in_the_tables_alone() -> None:
    named = [*_in_python(), *_in_the_portal()]
    allowed = {place: one for place in named for one in ALLOWED if place.startswith(one)}
    assert [place for place in named if place not in allowed] == []
    assert set(allowed.values()) == set(ALLOWED)


def test_a_type_is_found_in_a_script() -> None:
    script = 'x = ["Freeze"]; html`<option>Reboot</option>`; { label: "Redeploy" }'
    assert [*_types_in_script(script)] == ["Freeze", "Reboot"]


def _in_python() -> Iterator[str]:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if not QUOTED.search(text):
            continue
        tree = ast.parse(text)
        examples = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.keyword) and node.arg == "example"  # of a request, for people
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in examples:
                continue
            if node.value in TYPE_NAMES:
                yield f"{_name(path)}:{node.lineno} {node.value}"


def _in_the_portal() -> Iterator[str]:
    for path in SOURCE.rglob("*.js"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for found in _types_in_script(line):
                yield f"{_name(path)}:{number} {found}"


def _types_in_script(text: str) -> Iterator[str]:
    for found in QUOTED.finditer(text):
        if not text[: found.start()].endswith(LABEL):
            yield found[1]


def _name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()
