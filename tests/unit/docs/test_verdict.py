"""What docs/test/verdict.md says of rules, fields and limits is so."""

from __future__ import annotations

import re

from forewarn.verdict import complaints, observed
from forewarn.verdict.rules import RULES
from helpers.paths import ROOT

DOCS = ROOT / "docs"


def test_every_rule_is_in_the_table_as_it_is() -> None:
    text = (DOCS / "test" / "verdict.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.*?) \|$", text, re.MULTILINE)
    assert rows == [(n, r.severity, r.expects) for n, r in RULES.items()]


def test_the_limits_are_those_of_the_code() -> None:
    text = (DOCS / "test" / "verdict.md").read_text().partition("\n## Limits\n")[2]
    assert f"at most {observed.MAX_CLIENTS:,} machines and {observed.MAX_EVENTS:,} events" in text
    assert complaints.MAX_COMPLAINTS == 20


def test_the_test_of_the_page_passes() -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", (DOCS / "test" / "verdict.md").read_text(), re.DOTALL
    )
    names: dict[str, object] = {}
    exec(code, names)
    test = names["test_the_agent_approves_in_time"]
    assert callable(test)
    test()
