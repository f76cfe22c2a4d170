"""What docs/test/verdict.md says of rules, fields and limits is so."""

from __future__ import annotations

import re

from forewarn.traces import exchanges
from forewarn.verdict import complaints, observed
from forewarn.verdict.rules import RULES
from helpers.paths import ROOT

DOCS = ROOT / "docs"


def test_every_rule_is_in_the_table_as_it_is() -> None:
    text = (DOCS / "test" / "verdict.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.*?) \| (.+) \|$", text, re.MULTILINE)
    assert [row[:3] for row in rows] == [(n, r.severity, r.expects) for n, r in RULES.items()]


def test_the_limits_are_those_of_the_code() -> None:
    text = (DOCS / "test" / "verdict.md").read_text().partition("\n## Limits\n")[2]
    rows = re.findall(r"^\| (.+?) \| ([0-9].*?) \|$", text.partition("\n## ")[0], re.MULTILINE)
    assert dict(rows) == {
        "Machines": f"{observed.MAX_CLIENTS:,}",
        "Events, and as many unannounced ones": f"{observed.MAX_EVENTS:,}",
        "Courses of machines through events": f"{observed.MAX_COURSES:,}",
        "Complaints in all": f"{complaints.MAX_COMPLAINTS_IN_ALL:,}",
        "Complaints of one rule about one machine; further ones are counted": str(
            complaints.MAX_COMPLAINTS
        ),
        "Size of a request's or answer's body that is examined": (
            f"{exchanges.MAX_BODY // 1024**2} MiB"
        ),
    }


def test_the_test_of_the_page_passes() -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", (DOCS / "test" / "verdict.md").read_text(), re.DOTALL
    )
    names: dict[str, object] = {}
    exec(code, names)
    test = names["test_the_agent_approves_in_time"]
    assert callable(test)
    test()
