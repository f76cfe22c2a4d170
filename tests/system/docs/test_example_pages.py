"""The READMEs of the examples show of their files what stands there, and name all of them."""

from __future__ import annotations

import pytest

from helpers.doc_snippets import blocks
from helpers.paths import ROOT

EXAMPLES = ("web-behind-haproxy", "batch-on-spot", "primary-and-replica")


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_a_readme_shows_of_a_file_stands_there(example: str) -> None:
    folder = ROOT / "examples" / example
    files = [_lines(path.read_text("utf-8")) for path in folder.iterdir() if path.is_file()]
    page = folder / "README.md"
    shown = [block for block in blocks(page.read_text("utf-8")) if block.language != "console"]
    assert shown
    for block in shown:
        found = [text for text in files if _lines(block.body) in text]
        assert len(found) >= 2, f"{page}:{block.line} is in no file but this page"


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_readme_names_every_file_of_its_folder(example: str) -> None:
    folder = ROOT / "examples" / example
    page = (folder / "README.md").read_text("utf-8")
    files = {path.name for path in folder.iterdir() if path.is_file()} - {"README.md"}
    assert sorted(name for name in files if f"]({name})" not in page) == []


def _lines(text: str) -> str:
    """However far it is indented."""
    return "\n".join(line.strip() for line in text.strip().splitlines())
