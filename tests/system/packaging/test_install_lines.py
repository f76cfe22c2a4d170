"""Every line of the documentation that installs forewarn does so, as it is written: today in a
checkout, and where it is published."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.empty_environment import EmptyEnvironment
from helpers.paths import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted(
        page for name in ("docs", "examples", "deploy") for page in (ROOT / name).rglob("*.md")
    ),
]
LINE = re.compile(r"(?<![\w-])(pipx? install\b[^`\n]*)")
PROJECT = re.compile(r"(?P<source>forewarn|\.)(?:\[(?P<extras>[\w,]+)\])?")
LOCK = "requirements/server.lock"
# What is installed here; test_extras.py installs the others, and everything else is made of these.
# For the rest, everything is found and resolved, but not copied.
INSTALLED = {
    (".", frozenset({"test"})),
    ("forewarn", frozenset({"notify"})),
    ("forewarn", frozenset({"otel"})),
}
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
CHECKOUT = ("pyproject.toml", "README.md", "LICENSE", "src", "packaging", "requirements")
# One package of each extra, which nothing else installs.
IMPORTED = {
    "test": "time_machine",
    "server": "litestar",
    "otel": "opentelemetry",
    "notify": "apprise",
}


class Line(NamedTuple):
    text: str
    source: str  # forewarn, a checkout (.), or a lock
    extras: frozenset[str]
    flags: frozenset[str]

    def __str__(self) -> str:
        return self.text


def lines() -> list[Line]:
    """Return every different line that installs forewarn."""
    texts = {
        found.partition(" #")[0].strip()
        for page in PAGES
        for found in LINE.findall(page.read_text())
    }
    found = []
    for text in sorted(texts):
        words = shlex.split(text)[2:]
        flags = frozenset(word for word in words if word.startswith("-"))
        for word in words:
            if word == LOCK:
                found.append(Line(text, LOCK, frozenset(), flags))
            elif match := PROJECT.fullmatch(word):
                extras = frozenset((match["extras"] or "").split(",")) - {""}
                found.append(Line(text, match["source"], extras, flags))
    return found


LINES = lines()
# The shortest of those that install the same of forewarn.
DIFFERENT = list(
    {line[1:]: line for line in sorted(LINES, key=lambda line: -len(line.text))}.values()
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a checkout has that is needed to install from it."""
    directory = tmp_path_factory.mktemp("checkout")
    for name in CHECKOUT:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, directory / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, directory / name)
    (directory / "requirements.txt").touch()  # that of whoever's tests these are
    return directory


@pytest.fixture(scope="module")
def environments(
    make_environment: Callable[[str], EmptyEnvironment],
) -> Callable[[str], EmptyEnvironment]:
    """One for the lines of each source. Nothing that one of them installs is asked of another."""
    return functools.cache(make_environment)


@pytest.mark.parametrize("line", [line for line in DIFFERENT if line[1:3] in INSTALLED], ids=str)
def test_a_line_installs_what_it_says(
    line: Line, checkout: Path, environments: Callable[[str], EmptyEnvironment]
) -> None:
    environment = environments("checkout" if line.source == "." else "published")
    environment.done("pip", *arguments(line), cwd=checkout)
    assert "forewarn" in environment.packages()
    assert (environment.bin / "forewarn").exists()
    imports = "; ".join(f"import {IMPORTED[extra]}" for extra in sorted(line.extras))
    environment.done("python", "-c", f"import forewarn.client, forewarn.cli.app; {imports}")


@pytest.mark.parametrize(
    "lines",
    [
        [line for line in DIFFERENT if (line.source, line.flags) == kind]
        for kind in dict.fromkeys((line.source, line.flags) for line in DIFFERENT)
    ],
    ids=lambda lines: str(lines[0]),
)
def test_lines_of_the_same_kind_can_be_installed(
    lines: list[Line], checkout: Path, make_environment: Callable[[str], EmptyEnvironment]
) -> None:
    """Lines that differ only in their extras are resolved together."""
    environment = make_environment("lines")
    together = dict.fromkeys(word for line in lines for word in arguments(line))
    environment.done("pip", *together, "--dry-run", cwd=checkout)


def arguments(line: Line) -> list[str]:
    program, *words = shlex.split(line.text)
    assert program in ("pip", "pipx")  # which calls pip, in an environment of its own
    return words


def test_the_pages_that_people_start_with_say_how_to_install_from_a_checkout() -> None:
    for page in ("README.md", "docs/index.md", "docs/install.md", "docs/test/kit.md"):
        assert re.search(r"pip install (?:pytest )?'\.\[test\]'", (ROOT / page).read_text()), page
    assert {line.source for line in LINES} == {"forewarn", ".", LOCK}
    assert {frozenset(), frozenset({"test"}), frozenset({"server"})} <= {
        line.extras for line in LINES if line.source == "forewarn"
    }


def test_pip_installs_the_wheel_of_a_checkout_as_if_it_were_published(
    checkout: Path, tmp_path: Path, make_environment: Callable[[str], EmptyEnvironment]
) -> None:
    page = (ROOT / "docs/install.md").read_text()
    (block,) = re.findall(r"```\n([^`]*PIP_FIND_LINKS[^`]*)```", page)
    environment = make_environment("pip")
    environment.done("pip", "install", ".[test]", *BUILD, cwd=checkout)
    environment.done("sh", "-c", "rm -r lib/python*/site-packages/forewarn* bin/forewarn")
    environment.use_pip()
    script = f"set -eu\n{block}cd {tmp_path}\npip install 'forewarn[test]' --report report\n"
    environment.done("sh", "-c", script, cwd=checkout)
    (item,) = json.loads((tmp_path / "report").read_text())["install"]
    assert item["download_info"]["url"].startswith((checkout / "dist").as_uri())
    assert item["requested_extras"] == ["test"]
    assert environment.done("forewarn", "--version").startswith("forewarn 0.")
