"""The examples of docs/reference/api.md, run as they stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from forewarn.testing import SAMPLE, Service
from helpers.paths import ROOT
from helpers.waiting import LIMIT

TEXT = (ROOT / "docs" / "reference" / "api.md").read_text()
EXAMPLES = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)[
    1:
]  # the first says where the service is


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        yield service


def run(service: Service, text: str) -> str:
    if shutil.which("curl") is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("the examples need curl: apt-get install curl")
    done = subprocess.run(
        ["sh", "-eu", "-c", text],
        env={**os.environ, "FOREWARN_URL": service.control_url, "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split("\n")[0][:60])
def test_an_example_does_what_it_says(service: Service, text: str) -> None:
    output = run(service, text)
    promised = re.findall(r"^# (.*)$", text, re.MULTILINE)
    for line in promised:
        assert line.rstrip("…") in output
    if not promised:
        problem = json.loads(output)
        assert not isinstance(problem, dict) or "/docs#problem" not in problem.get("type", "")


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 7
