"""The tutorial, the how-tos and the pages for newcomers do what they say: every snippet of theirs
is executed, in order, by `snippets.py`; and a snippet that is broken does not go unnoticed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from forewarn.service.faults.kinds import FaultKind
from forewarn.testing import scenarios
from helpers.doc_snippets import Broken, Reader, blocks, commands, differs, edited, ids
from helpers.netns import require
from helpers.paths import ROOT

DOCS = ROOT / "docs" / "test"
TUTORIAL = DOCS / "tutorial.md"
EXAMPLE = ROOT / "examples" / "tutorial"
PAGES = (
    "../operate/two-hosts.md",
    "spot-eviction.md",
    "howto/pytest.md",
    "howto/unittest.md",
    "coming-from/microsoft-mock.md",
)


def test_the_tutorial_leads_to_the_example(tmp_path: Path) -> None:
    Reader(tmp_path).read(TUTORIAL)
    for name in ("worker.py", "test_worker.py"):
        assert (tmp_path / name).read_text() == (EXAMPLE / name).read_text(), name


@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_of_a_page_gives_the_shown_output(page: str, tmp_path: Path) -> None:
    file = DOCS / page
    if "$ curl" in file.read_text("utf-8"):
        require(shutil.which("curl"), "curl: apt-get install curl")
    Reader(tmp_path).read(file)


def test_the_tutorials_workflow_runs_what_the_tutorial_has_run() -> None:
    found = list(blocks(TUTORIAL.read_text("utf-8")))
    (workflow,) = (yaml.safe_load(block.body) for block in found if block.language == "yaml")
    shown = [block.body for block in found if block.language == "console"]
    typed = {command for body in shown for command, _ in commands(body)}
    steps = [step["run"] for step in workflow["jobs"]["maintenance"]["steps"] if "run" in step]
    assert len(steps) == 3
    assert {step for step in steps if not step.startswith("pip install")} <= typed


@pytest.mark.parametrize("page", ["tutorial.md", *PAGES])
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    file = DOCS / page
    for target in re.findall(r"\]\((?!https?:)([^)#]*)", file.read_text("utf-8")):
        assert (file.parent / target).exists(), target


@pytest.mark.parametrize("page", ["tutorial.md", *PAGES])
def test_commands_and_scenarios_that_are_only_named_exist(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    known = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    for command in re.findall(r"`forewarn ([a-z]+(?: [a-z][a-z-]+)?)", text):
        assert f"| `forewarn {command}" in known, command
    named = re.findall(r"scenarios? (`[a-z-]+`(?:, `[a-z-]+`)*)", text)
    assert {name for names in named for name in re.findall(r"[a-z-]+", names)} <= set(
        scenarios.names()
    )


def test_the_recipes_name_every_kind_of_fault() -> None:
    text = (DOCS / "howto" / "pytest.md").read_text("utf-8")
    (reported,) = re.findall(r"^\[All kinds\].*$", text, re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", reported)) == {kind.value for kind in FaultKind}


BROKEN = {
    "a command that fails": "```console\n$ false\n```\n",
    "a command that should fail": "```console exit=1\n$ true\n```\n",
    "another output": "```console\n$ echo two\none\n```\n",
    "more output": "```console\n$ printf 'one\\ntwo\\n'\none\n```\n",
    "less output": "```console\n$ echo one\none\ntwo\n```\n",
    "a file that is no Python": "```python file=a.py\n1 +\n```\n",
    "a file that fails": "```python file=a.py\n1 / 0\n```\n```console\n$ python a.py\n```\n",
    "a test that fails": "```python\ndef test_it():\n    assert False\n```\n",
    "no test at all": "```python\nvalue = 1\n```\n",
    "an edit of nothing": "```python file=a.py\na = 1\n```\n```python edit=a.py\nb = 2\n```\n",
    "a file that is no YAML": "```yaml file=a.yaml\na: [\n```\n",
    "a block of no kind": "```\nanything\n```\n",
    "a block that nobody executes": "```sh\nls\n```\n",
    "no command": "```console\necho one\n```\n",
    "a fence that is not closed": "```console\n$ true\n",
    "a service that does not start": "```console background\n$ false\n```\n",
}


@pytest.mark.parametrize("page", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_snippet_fails(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    room = tmp_path / "room"
    room.mkdir()
    with pytest.raises(AssertionError):
        Reader(room).read(tmp_path / "page.md")


def test_a_broken_snippet_is_named_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A page\n\n```console\n$ echo two\none\n```\n")
    with pytest.raises(Broken, match=r"^page.md:3: \$ echo two\nshould say\none\nand says\ntwo"):
        Reader(tmp_path).read(tmp_path / "page.md")


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        ("one …\n…\nlast", "one two\nthree\nfour\nlast\n"),
        (
            "…\nReboot 0B643F63 at 2027-01-15 08:00:00Z",
            "x\nReboot 12345678 at 2030-02-01 09:10:11Z",
        ),
        ("http://127.0.1.1:8169  a", "http://127.0.1.1:41234   a"),
        ("1 passed in 0.12s", "1 passed in 13.40s"),
    ],
)
def test_ids_times_and_ports_may_differ_from_the_page(shown: str, output: str) -> None:
    assert differs(shown, output) == ""
    assert differs(shown.replace("a", "b").replace("o", "u"), output) != ""


def test_other_differences_from_the_page_are_found() -> None:
    assert differs("2 passed in 0.12s", "3 passed in 0.12s") == "2 passed in 0.12s"
    assert differs("Reboot 0B643F63 of web_0", "Reboot 0B643F63 of web_1")
    assert "'more'" in differs("…\nlast", "one\nlast\nmore")


def test_an_id_of_a_page_stands_for_the_one_that_came() -> None:
    assert ids("…\nevent 12345678  web_0", "new\nevent AB0CE559 web_0") == {"12345678": "AB0CE559"}


def test_an_edit_takes_the_place_of_what_has_its_name() -> None:
    source = "import b\n\nN = 1\n\n\nclass A:\n    x = 1\n\n    def f(self):\n        return 1\n"
    change = "import a\n\nN = 2\n\n\nclass A:\n    def f(self):\n        return 2\n"
    expected = source.replace("import b", "import a\nimport b")
    expected = expected.replace("N = 1", "N = 2").replace("return 1", "return 2")
    assert edited(source, change) == expected


def test_commands_may_go_on_in_the_next_line() -> None:
    assert list(commands("$ echo a \\\n    b\na b\n$ true\n")) == [
        ("echo a \\\n    b", "a b"),
        ("true", None),
    ]
