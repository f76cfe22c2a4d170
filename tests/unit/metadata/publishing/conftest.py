"""For tests of workers: what is waited for is short."""

from __future__ import annotations

import pytest

from forewarn.metadata.publishing import hub, publisher, remote_upstream


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "RECONNECT_PATIENCE", 0.3)
    monkeypatch.setattr(hub, "CONFIRM_TIMEOUT", 0.3)
    monkeypatch.setattr(publisher, "CHECK_EVERY", 0.05)
    monkeypatch.setattr(remote_upstream, "MAX_HOLD", 1.0)
