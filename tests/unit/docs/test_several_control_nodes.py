"""What operators are told to look for when something fails is what is printed."""

from __future__ import annotations

import re

import pytest

from helpers.paths import ROOT

PAGES = {
    "nodes": "## What happens when something fails\n",
    "several-control-nodes": "## What happens when something fails\n",
    "postgresql": "### If no standby is left\n",
}


def sources() -> str:
    """Return all of the code, with texts over several lines joined and values left out."""
    files = (ROOT / "src/forewarn").rglob("*.py")
    joined = (re.sub(r"['\"]\s*\n\s*f?['\"]", "", file.read_text()) for file in files)
    return "\n".join(re.sub(r"\{[^{}]*\}", "…", text) for text in joined)


SOURCES = sources()


def messages(page: str, heading: str) -> list[str]:
    text = (ROOT / f"docs/operate/{page}.md").read_text()
    section = text.partition(heading)[2].partition("\n## ")[0]
    return [quoted for quoted in re.findall(r"`([^`]+)`", section) if len(quoted.split()) > 3]


@pytest.mark.parametrize(("page", "heading"), PAGES.items())
def test_messages_in_the_page_are_those_of_the_service(page: str, heading: str) -> None:
    found = messages(page, heading)
    assert found
    pieces = {piece.strip() for message in found for piece in message.split("…")} - {"", "s"}
    commands = {piece for piece in pieces if re.match(r"(forewarn|/opt/\S+|systemctl) ", piece)}
    assert [piece for piece in pieces - commands if piece not in SOURCES] == []
