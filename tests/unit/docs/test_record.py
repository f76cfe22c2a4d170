"""docs/test/record.md tells the truth about what can be reached mechanically."""

from __future__ import annotations

import re
import subprocess
import sys

from forewarn.cli.commands import record as command
from forewarn.testing.recording import (
    answer_faults,
    endpoint,
    json_documents,
    reader,
    recorder,
)
from forewarn.testing.scenarios import parse
from forewarn.testing.scenarios.file.shapes import MAX_STEPS
from forewarn.wire import server_clock
from helpers.paths import ROOT

TEXT = (ROOT / "docs" / "test" / "record.md").read_text("utf-8")
MIB = 1024 * 1024


def test_every_limit_is_that_of_the_code() -> None:
    for limit, value in (
        ("size of an answer that is read", f"{endpoint.MAX_ANSWER // MIB} MiB"),
        ("time between two polls", f"at least {command.MIN_EVERY:g} s"),
        ("size of a recording that is made a scenario of", f"{reader.MAX_RECORDING // MIB} MiB"),
        ("size of a file with documents", f"{json_documents.MAX_TEXT // MIB} MiB"),
        ("lines of a scenario", f"{MAX_STEPS:,}"),
    ):
        assert f"| {limit} | {value} |" in TEXT
    assert f"the first {recorder.MAX_REPEATED} in a row" in TEXT
    assert f"at least {recorder.FIRST_ANSWER:g} s" in TEXT
    assert f"`--timeout {recorder.TIMEOUT:g}s`" in TEXT
    assert f"took more than {answer_faults.SLOW:g} s" in TEXT
    assert f"by more than {server_clock.STEP:g} s" in TEXT


def test_the_scenario_in_it_can_be_played() -> None:
    found = re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    scenario = parse(found[1])
    assert [step.verb for step in scenario.steps] == ["schedule"]


def test_recording_and_reading_need_no_server_package() -> None:
    names = [f"recording.{name}" for name in ("recorder", "file", "live_text", "reader")]
    names.append("scenarios.from_recording")
    imports = "".join(f"import forewarn.testing.{name}\n" for name in names)
    heavy = ("uvicorn", "sqlalchemy", "litestar", "structlog", "yaml")
    program = f"{imports}import sys\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
