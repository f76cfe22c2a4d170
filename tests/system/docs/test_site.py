"""`make docs`: the site can be built, its links are valid, and it loads nothing from elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from helpers.paths import ROOT


class Loads(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in ("script", "img", "iframe", "audio", "video", "source", "embed"):
            self.addresses.append(attributes.get("src") or "")
        elif tag == "link" and attributes.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(attributes.get("href") or "")


def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text("utf-8"))
        assert loads.addresses
        assert [a for a in loads.addresses if a.startswith(("http:", "https:", "//"))] == [], page


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text("utf-8")
    pages = [path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))]
    assert [page for page in pages if page != "index.md" and f"({page})" not in index] == []
