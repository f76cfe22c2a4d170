"""What lies beside a state file: its log, its index, its lock, and copies that are kept."""

from __future__ import annotations

from pathlib import Path


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
