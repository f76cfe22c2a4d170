"""What is waited for is short."""

from __future__ import annotations

import pytest

from forewarn.metadata.publishing import node_upstream, publisher


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "CHECK_EVERY", 0.05)
    monkeypatch.setattr(node_upstream, "MAX_HOLD", 1.0)
