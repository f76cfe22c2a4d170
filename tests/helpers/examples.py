"""What `make check` leaves out, and `make test` does not."""

from __future__ import annotations

import os

PROFILE = "HYPOTHESIS_PROFILE"
CHECK = "check"  # the profile of `make check`
FEWER, LEAST = 10, 10


def in_check() -> bool:
    return os.environ.get(PROFILE) == CHECK


def examples(count: int) -> int:
    """So many examples of a property, or a tenth of them under `make check`."""
    if in_check():
        return max(LEAST, count // FEWER)
    return count
