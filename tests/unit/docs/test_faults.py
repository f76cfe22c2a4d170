"""What docs/test/faults.md shows is so: its tests pass, and every kind is in its table."""

from __future__ import annotations

import re

from forewarn.service.faults.kinds import KINDS
from helpers.paths import ROOT

PAGE = (ROOT / "docs" / "test" / "faults.md").read_text()


def test_the_tests_of_the_page_pass() -> None:
    passed = []
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        names: dict[str, object] = {}
        exec(code, names)
        for name, test in names.items():
            if name.startswith("test_"):
                assert callable(test)
                test()
                passed.append(name)
    assert passed == ["test_the_service_has_a_bad_day", "test_the_first_answer_takes_two_minutes"]


def test_every_kind_is_in_the_table_with_what_it_meets() -> None:
    rows = re.findall(r"^\| .+? \| `([a-z-]+)` \| (.+?) \| .+ \|$", PAGE, re.MULTILINE)
    assert rows == [
        (kind.value, "an event" if nature.of_events else ", ".join(nature.methods))
        for kind, nature in KINDS.items()
    ]
