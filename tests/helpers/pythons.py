"""Other versions of Python that this machine has."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def find_python(minor: str) -> Path | None:
    """Return a Python of this version, such as 3.12: the distribution's, one that is installed
    beside the one that runs the tests (tool caches), or pyenv's. Directories that this user cannot
    read contain none."""
    own = Path(sys.base_prefix)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    beside = [
        place / "bin" / f"python{minor}"
        for parent in (own.parent, own.parent.parent, pyenv)
        if os.access(parent, os.R_OK | os.X_OK)
        for pattern in (f"{minor}.*", f"{minor}.*/*")
        for place in sorted(parent.glob(pattern))
    ]
    candidates = [Path(f"/usr/bin/python{minor}"), Path(f"/usr/local/bin/python{minor}"), *beside]
    return next((path for path in candidates if os.access(path, os.X_OK)), None)
