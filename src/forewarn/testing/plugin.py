"""pytest's side of the test kit: the fixture `forewarn`.

pytest imports this at every start, whether a test uses it or not; so it imports nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from forewarn.testing import Service


@pytest.fixture
def forewarn() -> Iterator[Service]:
    """The service, in process, without machines, on a virtual clock."""
    from forewarn.testing import Service

    with Service() as service:
        yield service
