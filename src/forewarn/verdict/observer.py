"""Hears the lines of a trace one by one and keeps what a verdict needs of them, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.verdict.report import Verdict


class Observer:
    def hear(self, line: Mapping[str, Any]) -> None:
        """One line of a trace, as it happens."""

    def verdict(self) -> Verdict:
        """As things stand now."""
        return Verdict()
