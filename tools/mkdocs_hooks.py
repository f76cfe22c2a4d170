"""Hooks of the documentation site."""

from __future__ import annotations

import posixpath
import re
from typing import Any

FENCE = re.compile(r"^( *```\w+) .*$", re.MULTILINE)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((\.\./[^)\s#]*)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt a page, which is written for the repository, to the site.

    Files of the repository that are not part of the site are named instead of linked to. Code
    blocks lose what is written after their language, which is for the tests that run them.
    """
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def plain(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            return link.group()
        return text if path in text else f"{text} (`{path}`)"

    return LINK.sub(plain, FENCE.sub(r"\1", markdown))
