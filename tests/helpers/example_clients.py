"""The clients that our own pages and examples show, as programs that a scenario can start.

A snippet is taken from its page, never copied. What the page leaves to the reader, such as
`prepare_for`, is replaced by a function that does nothing.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from helpers import languages
from helpers.doc_snippets import FENCE, blocks
from helpers.paths import ROOT

IMPORT = re.compile(r"^from forewarn\.client import .*\b(Async)?Client\b", re.MULTILINE)
LEFT_TO_THE_READER = {
    *("prepare_for", "stop_work", "resume_work", "finish_current_jobs", "save_state"),
}
STUBS = """\
class Done:
    def __await__(self):
        return iter(())


def stub(*_):
    return Done()


{names} = stub

"""
RECIPES = ROOT / "docs" / "test" / "howto" / "pytest.md"
LOOP = """\
import os
import threading
from http.client import HTTPException

from client import approve_own

while True:
    try:
        approve_own(os.environ["FOREWARN_METADATA"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        pass
    threading.Event().wait(1)
"""


class ExampleClient(msgspec.Struct, frozen=True):
    name: str
    argv: tuple[str, ...]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def snippets() -> Iterator[tuple[str, str]]:
    """The place and the text of each snippet that creates a client. A test is not a client."""
    for page in pages():
        text = page.read_text("utf-8")
        for block in FENCE.finditer(text):
            if block["info"].startswith("python") and _is_a_client(block["body"]):
                line = text.count("\n", 0, block.start()) + 1
                yield f"{page.relative_to(ROOT)}:{line}", block["body"]


def _is_a_client(text: str) -> bool:
    return bool(IMPORT.search(text)) and "def test_" not in text


def missing_names(text: str) -> set[str]:
    """The names that a snippet uses and does not define."""
    used: set[str] = set()
    defined = set(dir(builtins))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {(name.asname or name.name).partition(".")[0] for name in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
    return used - defined


def program(text: str) -> str:
    """Return a snippet with stubs for what it leaves to the reader."""
    names = missing_names(text)
    if unknown := names - LEFT_TO_THE_READER:
        raise AssertionError(f"the snippet does not define {sorted(unknown)}")
    return (STUBS.format(names=" = ".join(sorted(names))) if names else "") + text


def example_clients(room: Path) -> list[ExampleClient]:
    """All of them; files that they need are written to `room`. Snippets that are the same program
    are one client."""
    clients: dict[str, ExampleClient] = {}
    for number, (place, text) in enumerate(snippets()):
        file = room / f"snippet_{number}.py"
        file.write_text(program(text))
        same = ast.dump(ast.parse(text))
        earlier = clients[same].name + ", " if same in clients else ""
        clients[same] = ExampleClient(earlier + place, (sys.executable, str(file)))
    return [*clients.values(), *_programs(room)]


def _programs(room: Path) -> Iterator[ExampleClient]:
    examples = ROOT / "examples"
    for script, path in (  # which it is given, another for each process
        (examples / "tutorial" / "worker.py", "$(mktemp -d)/checkpoint"),
        (examples / "batch-on-spot" / "job.py", "$(mktemp -d)"),
    ):
        command = f'export TMPDIR="$2" MACHINE="$FOREWARN_MACHINE"; exec "$0" "$1" "{path}"'
        argv = ("sh", "-c", command, sys.executable, str(script), str(room))
        yield ExampleClient(str(script.relative_to(ROOT)), argv)
    (recipe,) = (
        block.body
        for block in blocks(RECIPES.read_text("utf-8"))
        if block.says.get("file") == "client.py"
    )
    (room / "client.py").write_text(recipe)
    (room / "loop.py").write_text(LOOP)
    yield ExampleClient(str(RECIPES.relative_to(ROOT)), (sys.executable, str(room / "loop.py")))
    for language in filter(languages.are_here, languages.LANGUAGES):
        yield ExampleClient(f"examples/clients/{language}", languages.program(language, room))
