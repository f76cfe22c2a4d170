"""Which stored files belong to a released version, and are never made again."""

from __future__ import annotations

import subprocess
from pathlib import Path

from helpers.paths import ROOT


def refuse_released(file: Path, otherwise: str) -> None:
    """End the program if a tag has this file, saying what to do instead."""
    path = file.relative_to(ROOT)
    for tag in _git("tag", "--list", "v*", "--sort=version:refname").stdout.split():
        if _git("cat-file", "-e", f"{tag}:{path}").returncode == 0:
            raise SystemExit(f"{path} is part of {tag} and is not made again: {otherwise}")


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
