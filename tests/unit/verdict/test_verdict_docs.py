"""What docs/verdict.md says of rules, fields and limits is so."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from forewarn.verdict import clients, complaints, documents, known, trace_lines
from forewarn.verdict.rules import RULES
from forewarn.verdict.verdict import Complaint, Conduct, Course, Verdict

DOCS = Path(__file__).parents[3] / "docs"


def test_every_rule_is_in_the_table_as_it_is() -> None:
    text = (DOCS / "verdict.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.*?) \| (.+) \|$", text, re.MULTILINE)
    assert [row[:3] for row in rows] == [(n, r.severity, r.expects) for n, r in RULES.items()]


@pytest.mark.parametrize("shape", [Complaint, Course, Conduct, Verdict])
def test_every_field_is_explained(shape: type[msgspec.Struct]) -> None:
    text = (DOCS / "verdict.md").read_text().partition("## As JSON")[2]
    assert [f.name for f in msgspec.structs.fields(shape) if f"`{f.name}`" not in text] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_CLIENTS", f"{known.MAX_CLIENTS:,}"),
        ("MAX_HAPPENINGS", f"{known.MAX_HAPPENINGS:,}"),
        ("MAX_COURSES", f"{known.MAX_COURSES:,}"),
        ("MAX_COMPLAINTS", f"{complaints.MAX_COMPLAINTS}"),
        ("MAX_COMPLAINED", f"{complaints.MAX_COMPLAINED:,}"),
        ("MAX_SIGHTS", f"{documents.MAX_SIGHTS}"),
        ("KEPT_INTERVALS", f"{clients.KEPT_INTERVALS}"),
        ("MAX_HEARD_BODY", f"{trace_lines.MAX_HEARD_BODY // 1024**2} MiB"),
    ],
)
def test_every_limit_is_documented(name: str, value: str) -> None:
    assert f"| `{name}` | {value} |" in (DOCS / "settings.md").read_text()


def test_the_test_of_the_page_passes() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "verdict.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    test = names["test_the_agent_approves_in_time"]
    assert callable(test)
    test()
