"""What is installed names no file that is not installed with it: neither messages, nor help, nor
docstrings. They name a page of the documentation by its title."""

from __future__ import annotations

import re

from helpers.paths import ROOT

SOURCE = ROOT / "src/forewarn"
FILES = [file for file in sorted(SOURCE.rglob("*")) if file.is_file() and file.suffix != ".pyc"]
# The directories of the project that the wheel does not contain.
DIRECTORIES = [entry.name for entry in ROOT.iterdir() if entry.is_dir()]
ELSEWHERE = {name for name in DIRECTORIES if name[0] != "."} - {"src", "build", "dist", "site"}
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(sorted(ELSEWHERE))})/[\w.-]+")
PAGE = re.compile(r'"([^"\n]+(?:\n[^"\n]+)?)"\s+in\s+the\s+documentation')


def test_no_path_of_the_project_is_named() -> None:
    assert {"docs", "deploy", "examples"} <= ELSEWHERE
    assert PATH.search("see docs/test/faults.md")
    named = [
        f"{file.relative_to(ROOT)}: {found.group()}"
        for file in FILES
        for found in PATH.finditer(file.read_text("utf-8", "replace"))
    ]
    assert named == []


def test_every_page_that_is_named_is_one() -> None:
    titles = {
        page.read_text().splitlines()[0].removeprefix("# ")
        for page in (ROOT / "docs").rglob("*.md")
    }
    joined = {
        file: re.sub(r"['\"]\s*\n\s*f?['\"]", "", file.read_text())  # texts over several lines
        for file in FILES
        if file.suffix == ".py"
    }
    named = {
        (str(file.relative_to(ROOT)), " ".join(title.split()))
        for file, source in joined.items()
        for title in PAGE.findall(source)
    }
    assert len({title for _, title in named}) > 5
    assert {entry for entry in named if entry[1] not in titles} == set()
