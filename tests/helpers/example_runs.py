"""Plays an example of examples/ as somebody would who types what its README says, and compares what
is said with what the README shows. Looks afterwards whether anything was left behind."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.doc_snippets import blocks, differs, plain
from helpers.paths import ROOT
from helpers.process import Running
from helpers.waiting import LIMIT

# What differs from one time to another, beside ids, times and ports.
BOOTS = re.compile(r"\bboot [0-9a-f]{8}, now it is [0-9a-f]{8}\b")
PASSING = "running "  # whoever watches a rollout may look away for a moment
VARIES = (
    (re.compile(r"\bno session open after \d+\.\d+ s\b"), "no session open"),  # if it took time
    (re.compile(r"\b\d+\.\d+ s\b"), "<seconds>"),
    (re.compile(r"(?<![-_.:\w])[1-9]\d*\b(?![.:]\d)"), "<some>"),
)


def play(example: str, *options: str) -> tuple[int, str]:
    """The exit code and all that was said, which has to be what the README shows."""
    command = shlex.join([f"examples/{example}/run", *options])
    shown = _shown(example, command)
    with tempfile.TemporaryDirectory(prefix="f x'-") as directory:
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": directory,
            "LANG": "C.UTF-8",
            "TMPDIR": directory,
        }
        process = subprocess.Popen(
            [ROOT / "examples" / example / "run", *options],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running = Running(process, [command])
        try:
            code = running.wait(LIMIT)
        finally:
            running.stop()
        output = "".join([*running.stdout, *running.stderr])
        assert list(Path(directory).iterdir()) == [], "files were left behind"
        assert _running(directory) == [], "processes were left behind"
    missing = differs(_plain(shown), _plain(output))
    assert not missing, f"$ {command}\nshould say\n{missing}\nand says\n{output}"
    return code, output


def _shown(example: str, command: str) -> str:
    page = (ROOT / "examples" / example / "README.md").read_text("utf-8")
    for block in blocks(page):
        first, _, rest = block.body.partition("\n")
        if first == f"$ {command}":
            return rest
    raise AssertionError(f"the README of {example} does not show {command}")


def _plain(text: str) -> str:
    """Boots before anything else: one may look like a number, or like an id."""
    text = BOOTS.sub("boot <one>, now it is <another>", text)
    lines = [plain(line) for line in text.splitlines()]
    text = "\n".join(line for line in lines if not line.startswith(PASSING))
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return text


def _running(directory: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if directory.encode() in words:
            found.append(words.decode(errors="replace"))
    return found
