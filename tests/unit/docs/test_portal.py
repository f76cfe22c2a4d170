"""The portal is documented, and shown as it is: every page, with its address and its picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.paths import ROOT

DOCS = ROOT / "docs"
PORTAL = DOCS / "operate" / "portal.md"
PICTURES = DOCS / "images" / "portal"
MAIN = ROOT / "src" / "forewarn" / "portal" / "main.js"
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
NARROW, WIDE = 375, 1080  # pixels
MOST_BYTES = 1_500_000  # of all pictures


def _pages(table: str) -> list[str]:
    """The first parts of addresses, as the portal has them."""
    (entries,) = re.findall(rf"^const {table} = \{{(.*)\}};$", MAIN.read_text(), re.MULTILINE)
    return [entry.partition(":")[0].strip().strip('"') for entry in entries.split(",")]


ADDRESSES = [
    *(f"`/ui/{name}`" for name in _pages("LISTS")),
    *(
        f"`/ui/{name}/{'ID' if name in ('events', 'rollouts') else 'NAME'}`"
        for name in _pages("DETAILS")
    ),
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_page_of_the_portal_is_documented_with_a_picture(address: str) -> None:
    paragraphs = re.split(r"\n(?=#|`/ui/)", PORTAL.read_text())
    (paragraph,) = [text for text in paragraphs if text.startswith(address)]
    assert "images/portal/" in paragraph


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda p: p.name
)
def test_every_picture_of_a_page_exists_and_is_described(page: Path) -> None:
    for description, target in IMAGE.findall(page.read_text("utf-8")):
        assert description, target
        assert (page.parent / target).is_file(), target


def test_pictures_are_those_that_the_documentation_uses_and_the_program_makes() -> None:
    files = {file.name for file in PICTURES.iterdir()}
    used = re.findall(r"images/portal/([^)\s]+)\)", PORTAL.read_text())
    program = (ROOT / "tests" / "helpers" / "write_pictures.py").read_text()
    assert files == set(used)
    assert files == {f"{name}.png" for name in re.findall(r'Picture\("([^"]+)"', program)}


def test_pictures_are_small() -> None:
    pictures = {file: file.read_bytes() for file in PICTURES.iterdir()}
    for file, content in pictures.items():
        assert content.startswith(b"\x89PNG\r\n\x1a\n"), file
        assert NARROW <= int.from_bytes(content[16:20], "big") <= WIDE, file
    assert sum(map(len, pictures.values())) < MOST_BYTES
