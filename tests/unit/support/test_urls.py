"""URLs are shown without what must stay secret."""

from __future__ import annotations

import pytest

from forewarn.support.urls import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/d", "postgresql://h/d"),
        (
            "postgresql://u@h1,h2:5433/d?sslmode=require",
            "postgresql://u@h1,h2:5433/d?sslmode=require",
        ),
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://:p@h/d", "postgresql://:***@h/d"),
        ("postgresql://u:p@x/y:z@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p?x@h/d", "postgresql://u:***@h/d"),
        ("postgresql://h/d?password=p&a=b", "postgresql://h/d?password=***&a=b"),
        ("postgresql://h/d?a=b&sslpassword=p", "postgresql://h/d?a=b&sslpassword=***"),
        ("postgresql://h/d?pass%77ord=p", "postgresql://h/d?pass%77ord=***"),
        ("/var/lib/forewarn/forewarn.db", "/var/lib/forewarn/forewarn.db"),
    ],
)
def test_passwords_are_hidden(url: str, shown: str) -> None:
    assert without_password(url) == shown
