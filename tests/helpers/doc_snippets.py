"""Pages whose snippets are executed: each block of a page in its order, in a directory of its own.

    ```python file=worker.py      is written to that file; also yaml, json, toml, text
    ```python edit=worker.py      its definitions take the place of those with the same name there
    ```python                     is a test, or several: kept, and run with pytest at the end
    ```console exit=1             commands ($ …) with what they say; the last one exits with 1
    ```console background         a service: started, awaited (its ready line), ended with the page;
                                  `forewarn dev` on free ports, which later commands are given

What is shown is compared with what comes: ids, times and ports are any, `…` is whatever there is,
and where nothing is shown nothing is compared. A later command that names an id of the page is
given the one that came in its place. Anything else in a page is refused.
How it is found out what differs is here; which pages there are is in test_tutorial.py.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import yaml

from helpers.forked_path import forked_bin
from helpers.process import Running
from helpers.waiting import LIMIT

FILES = ("python", "yaml", "json", "toml", "text", "ini")
# Plug-ins that happen to be installed here, which say and cost more than they matter.
UNUSED_PLUGINS = ("cacheprovider", "schemathesis", "faker", "hypothesispytest")
ID = re.compile(r"\b[0-9A-F]{8}\b")  # all of a short one, the beginning of a long one
PORTS = ("8169", "8170")  # of `forewarn dev`, as pages name them
IMPORTS = ("import ", "from ")
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)

# What is never the same twice. Applied to what is shown and to what comes.
ANY = (
    (re.compile(r"\b[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}\b"), "<id>"),
    (ID, "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r"\b\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"), "<time>"),
    (re.compile(r"(\b127\.\d+\.\d+\.\d+|localhost):\d+"), r"\1:<port>"),
    (re.compile(r"\b\d+\.\d+s\b"), "<seconds>"),
    (re.compile(r"[ \t]+"), " "),
)

# In unittest, asyncio prints which steps took more than a tenth of a second, as on a busy machine.
SLOW_STEP = re.compile(r"^Executing <.*> took [0-9.]+ seconds\n", re.MULTILINE)


class Block(msgspec.Struct, frozen=True):
    language: str
    says: dict[str, str]
    body: str
    line: int


class Broken(AssertionError):
    """A snippet that does not do what its page says."""


def blocks(page: str) -> Iterator[Block]:
    """All fenced blocks of a page, in order."""
    for found in FENCE.finditer(page):
        language, *words = shlex.split(found["info"]) or [""]
        says = {key: value for key, _, value in (word.partition("=") for word in words)}
        line = page.count("\n", 0, found.start()) + 1
        yield Block(language, says, found["body"], line)
    left = FENCE.sub("", page)
    if "```" in left:
        raise Broken("a fence is not closed, or is indented")


class Reader:
    """Somebody who does what a page says, step by step."""

    def __init__(self, room: Path, path: str = "", env: Mapping[str, str] | None = None) -> None:
        self.room = room
        self._tests: list[str] = []
        self._services: list[Running] = []
        self._ports: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._env = {
            "PATH": f"{forked_bin()}:{path or Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(room),
            "XDG_RUNTIME_DIR": str(room),
            "LANG": "C.UTF-8",
            "PYTEST_ADDOPTS": " ".join(f"-p no:{name}" for name in UNUSED_PLUGINS),
            **(env or {}),
        }

    def read(self, page: Path) -> None:
        """All of it; raises Broken at the first snippet that does not do what is said."""
        try:
            for block in blocks(page.read_text("utf-8")):
                try:
                    self.do(block)
                except Broken as broken:
                    raise Broken(f"{page.name}:{block.line}: {broken}") from None
            if self._tests:
                self._run(shlex.join(["pytest", "-q", "-W", "error", *self._tests]), None, 0)
        finally:
            for service in self._services:
                service.stop()

    def do(self, block: Block) -> None:
        match block:
            case Block("console", {"background": _}):
                self._start(block.body)
            case Block("console", says):
                steps = list(commands(block.body))
                if not steps:
                    raise Broken("no command: a line that begins with '$ '")
                for n, (command, shown) in enumerate(steps, 1):
                    status = int(says.get("exit", 0)) if n == len(steps) else 0
                    self._run(command, shown, status)
            case Block("python", {"edit": name}):
                file = self.room / name
                file.write_text(edited(file.read_text("utf-8"), block.body), "utf-8")
            case Block("python", {"append": name}):
                file = self.room / name
                file.write_text(f"{file.read_text('utf-8')}\n\n{block.body}", "utf-8")
            case Block(language, {"file": name}) if language in FILES:
                self._write(name, block)
            case Block("python", {}):
                self._tests.append(f"test_line_{block.line}.py")
                self._write(self._tests[-1], block)
            case _:
                raise Broken(
                    f"a block {block.language!r} is nothing that can be executed;"
                    " it is python or console, or says file=NAME"
                )

    def _write(self, name: str, block: Block) -> None:
        file = self.room / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.body, "utf-8")
        try:
            if block.language == "yaml":
                yaml.safe_load(block.body)
            if block.language == "python":
                compile(block.body, name, "exec")
        except (yaml.YAMLError, SyntaxError) as error:
            raise Broken(f"{name} is no {block.language}: {error}") from None

    def _run(self, command: str, shown: str | None, status: int) -> None:
        for port, real in self._ports.items():
            command = command.replace(f":{port}", f":{real}")
        command = ID.sub(lambda id: self._ids.get(id[0], id[0]), command)
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.room,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise Broken(f"$ {command}\nhas not ended within {LIMIT:g} s") from None
        output = SLOW_STEP.sub("", output)
        if process.returncode != status:
            raise Broken(f"$ {command}\nexits with {process.returncode}, not {status}:\n{output}")
        if shown is not None and (missing := differs(shown, output)):
            raise Broken(f"$ {command}\nshould say\n{missing}\nand says\n{output}")
        self._ids |= ids(shown or "", output)

    def _start(self, body: str) -> None:
        [(command, shown)] = commands(body)
        elsewhere = " --metadata 127.0.0.1:0 --control 127.0.0.1:0"  # others run here, too
        full = command + elsewhere if command.startswith("forewarn dev") else command
        argv = ["bash", "-c", f"exec {full} 2>&1"]  # all of it, in the order in which it is said
        process = subprocess.Popen(
            argv,
            cwd=self.room,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        service = Running(process, argv)
        self._services.append(service)
        while not (line := service.line(LIMIT)).startswith("ready "):
            pass
        for port, url in zip(PORTS, msgspec.json.decode(line[6:]).values(), strict=True):
            self._ports[port] = url.rpartition(":")[2]
        output = "".join(service.stdout)
        if shown is not None and (missing := differs(shown, output)):
            raise Broken(f"$ {command}\nshould say\n{missing}\nand says\n{output}")


def commands(body: str) -> Iterator[tuple[str, str | None]]:
    """Each command, and what is shown below it; None if nothing is."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = next(n for n, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield "\n".join(lines[:length]), "\n".join(lines[length:]).strip("\n") or None


def differs(shown: str, output: str) -> str:
    """The first part of what is shown that does not come; empty if all of it does, in order."""
    came = [plain(line) for line in output.strip("\n").splitlines()]
    at, skipping = 0, False
    for line in shown.splitlines():
        wanted = plain(line)
        if wanted == "…":
            skipping = True
            continue
        pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        reach = range(at, len(came)) if skipping else range(at, min(at + 1, len(came)))
        place = next((n for n in reach if pattern.fullmatch(came[n])), None)
        if place is None:
            return line
        at, skipping = place + 1, False
    if at < len(came) and not skipping:
        return f"nothing after that, but {came[at]!r}"
    return ""


def ids(shown: str, output: str) -> dict[str, str]:
    """The ids of a page, and those that came in the same lines."""
    came = {plain(line): ID.findall(line) for line in output.splitlines()}
    lines = ((ID.findall(line), came.get(plain(line), [])) for line in shown.splitlines())
    return {old: new for olds, news in lines for old, new in zip(olds, news, strict=False)}


def plain(line: str) -> str:
    for pattern, word in ANY:
        line = pattern.sub(word, line)
    return line.strip()


def edited(source: str, change: str) -> str:
    """The source with each definition of the change in the place of the one that has its name:
    functions, methods and values. Imports that are not there yet are added to those that are."""
    there = _defined(change)
    if not there:
        raise Broken("there is no definition that could take another one's place")
    for name, start, end in there:
        lines, new = source.splitlines(), change.splitlines()[start:end]
        places = [place for place in _defined(source) if place[0] == name]
        if not places and name.startswith(IMPORTS):
            imports = [place for place in _defined(source) if place[0].startswith(IMPORTS)]
            before = [place for place in imports if _order(place[0]) < _order(name)]
            first = last = before[-1][2] if before else imports[0][1]
        elif len(places) == 1:
            ((_, first, last),) = places
        else:
            raise Broken(f"{name} is to be replaced, and is there {len(places)} times")
        lines[first:last] = new
        source = "\n".join(lines) + "\n"
    return source


def _order(name: str) -> tuple[bool, str]:
    """Where an import belongs: modules first, then names of modules, each by the alphabet."""
    return name.startswith("from "), name


def _defined(source: str) -> list[tuple[str, int, int]]:
    """Name and lines of each definition; of a class, those of its methods and the values in it."""
    found: list[tuple[str, int, int]] = []

    def look(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                look(node.body, f"{prefix}{node.name}.")
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = node.name
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
            elif isinstance(node, ast.Import | ast.ImportFrom):
                name = ast.unparse(node).partition(" import ")[0]
            else:
                continue
            found.append((prefix + name, node.lineno - 1, node.end_lineno or node.lineno))

    look(ast.parse(source).body, "")
    return found
