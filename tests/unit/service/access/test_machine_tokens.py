"""Tokens of machines; what becomes of them at the endpoint is in tests/ports/test_upstream.py."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.service.access import machine_tokens
from forewarn.service.access.machine_tokens import LEAST_KEY, MachineTokens


def test_what_signs_tokens_is_imported_before_the_first_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(machine_tokens, "import_module", imported.append)
    index: Any = None
    MachineTokens(bytes(LEAST_KEY), index)
    assert imported == ["jwt"]
