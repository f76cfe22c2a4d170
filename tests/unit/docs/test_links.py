"""Every link of every page leads somewhere, also to a heading."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from helpers.paths import ROOT

# Not the directories that tools make: there are many files in them, and few of ours.
DIRECTORIES = [entry for entry in ROOT.iterdir() if entry.name[0] != "." and entry.name != "dist"]
PAGES = sorted([*ROOT.glob("*.md"), *(page for top in DIRECTORIES for page in top.rglob("*.md"))])
FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
HEADING = re.compile(r"^#+ +(.*?) *#*$", re.MULTILINE)


@cache
def text(page: Path) -> str:
    return FENCED.sub("", page.read_text("utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub and the documentation site link to them."""
    names: set[str] = set()
    for heading in HEADING.findall(text(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        number = 1
        name = slug
        while name in names:
            name, number = f"{slug}-{number}", number + 1
        names.add(name)
    return names | set(re.findall(r'<a (?:id|name)="([^"]+)"', text(page)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(text(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = page if not path else page.parent / path
        if not file.exists() or (
            fragment and file.suffix == ".md" and fragment not in anchors(file.resolve())
        ):
            broken.append(target)
    assert broken == []
