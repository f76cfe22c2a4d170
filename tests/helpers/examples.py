"""How many examples a property is tried with."""

from __future__ import annotations

import os

PROFILE = "HYPOTHESIS_PROFILE"
CHECK = "check"  # the profile of `make check`
FEWER, LEAST = 10, 10


def examples(count: int) -> int:
    """So many, or a tenth of them under `make check`; `make test` tries all."""
    if os.environ.get(PROFILE) == CHECK:
        return max(LEAST, count // FEWER)
    return count
