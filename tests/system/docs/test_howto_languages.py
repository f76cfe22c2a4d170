"""The how-tos for clients in other languages: what they show is what stands in the examples, and
what they tell one to type is typed, in a copy of the example: its tests, a scenario, and the same
program at 169.254.169.254."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from helpers.doc_snippets import Block, Reader, blocks
from helpers.languages import EXAMPLES, GO_ENVIRONMENT, LANGUAGES, tools
from helpers.netns import needs_root, require
from helpers.paths import ROOT

PAGES = ROOT / "docs" / "test" / "howto"


def strays(page: str, fence: str, example: Path) -> Iterator[str]:
    """Blocks of code that stand in no file of the example, or say of none that they do."""
    for block in blocks(page):
        if block.language == "console":
            continue
        file = example / block.says.get("from", "")
        if block.language != fence or not file.is_file():
            yield f"line {block.line} says of no file that it is from there"
        elif block.body not in file.read_text("utf-8"):
            yield f"line {block.line} is not what stands in {file.name}"


class Follower(Reader):
    """A reader that has the example: code need not be written down any more, commands are typed."""

    def __init__(self, room: Path, places: Mapping[str, str | None]) -> None:
        bin = room.with_name("bin")
        bin.mkdir()
        for tool, place in places.items():
            (bin / tool).symlink_to(str(place))
        super().__init__(room, path=f"{bin}:{Path(sys.executable).parent}", env=GO_ENVIRONMENT)

    def do(self, block: Block) -> None:
        if block.language == "console":
            super().do(block)


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_on_the_page_is_in_the_example(language: str) -> None:
    page = (PAGES / f"{language}.md").read_text("utf-8")
    assert list(strays(page, LANGUAGES[language].fence, EXAMPLES / language)) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_commands_on_the_page_print_what_it_shows(language: str, tmp_path: Path) -> None:
    needs_root()
    places = tools(language)
    require(all(places.values()), LANGUAGES[language].needs)
    room = tmp_path / "room"
    shutil.copytree(EXAMPLES / language, room)
    Follower(room, places).read(PAGES / f"{language}.md")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_link_leads_somewhere(language: str) -> None:
    text = (PAGES / f"{language}.md").read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]*)", text):
        assert (PAGES / target).exists(), target


@pytest.mark.parametrize(
    "page",
    [
        "```js from=drain.js\nconst nothing = 1;\n```\n",
        "```js from=no-such.js\n// a\n```\n",
        "```js\n// a\n```\n",
        "```sh\nls\n```\n",
    ],
)
def test_code_that_is_in_no_example_is_found(page: str) -> None:
    assert len(list(strays(page, "js", EXAMPLES / "node"))) == 1
