"""What the owner of a group may postpone, as it is written."""

from __future__ import annotations

import pytest

from forewarn.core.time import DAY, HOUR, MINUTE
from forewarn.core.windows.may_postpone import MayPostpone, parse_may_postpone


@pytest.mark.parametrize(
    ("text", "allowed", "shown"),
    [
        ("2h, twice", MayPostpone(2 * HOUR, 2), "2h, twice"),
        ("30m", MayPostpone(30 * MINUTE), "30m, once"),
        ("1d, 3 times", MayPostpone(DAY, 3), "1d, 3 times"),
        ("1d1h1m, once", MayPostpone(DAY + HOUR + MINUTE), "90060s, once"),
    ],
)
def test_may_postpone_is_read_and_written(text: str, allowed: MayPostpone, shown: str) -> None:
    assert parse_may_postpone(text) == allowed
    assert str(allowed) == shown
    assert parse_may_postpone(shown) == allowed


@pytest.mark.parametrize(
    "text", ["", "often", "2h, often", "2h twice", "0s", "40d", "2h, 99 times"]
)
def test_an_invalid_may_postpone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"postponed|how often"):
        parse_may_postpone(text)
