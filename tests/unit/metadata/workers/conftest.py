"""For tests of workers: what is waited for is short."""

from __future__ import annotations

import pytest

from forewarn.metadata.workers import hub, remote_upstream


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "GATHER", 0.3)
    monkeypatch.setattr(hub, "HEARD_WITHIN", 0.3)
    monkeypatch.setattr(remote_upstream, "HOLD_MOST", 1.0)
