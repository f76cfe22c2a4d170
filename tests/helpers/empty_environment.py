"""Virtual environments in which there is nothing but what a test installs there.

Packages come from the directory in which `make` has kept what it fetched for the project's own
environment; where there is none, from where pip finds them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(sys.executable).parents[1]  # the environment in which the tests run
FETCHED = PROJECT / "wheels"
PATIENCE = 300.0  # real seconds for one command; one that hangs is named


class EmptyEnvironment:
    """A virtual environment whose `pip` looks for forewarn among the given packages."""

    def __init__(self, directory: Path, packages: Path) -> None:
        self.directory = directory
        self.bin = directory / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", directory], check=True, timeout=PATIENCE
        )
        pip = self.bin / "pip"  # as if it were there: to install it takes longer than all the rest
        pip.write_text(f'#!/bin/sh\nexec {PROJECT}/bin/pip --python {self.bin}/python "$@"\n')
        pip.chmod(0o755)
        places = [packages, FETCHED] if FETCHED.is_dir() else [packages]
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "FOREWARN_", "PYTEST_", "VIRTUAL_ENV"))
        }
        self.environ = inherited | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PIP_FIND_LINKS": " ".join(map(str, places)),
            "PIP_NO_COMPILE": "1",
            "PIP_QUIET": "1",
        }
        if FETCHED.is_dir():
            self.environ |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}

    def run(
        self,
        *argv: str | Path,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of this environment, and return how it ended and what it printed."""
        return subprocess.run(
            argv,
            cwd=cwd or self.directory,
            env={**self.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def done(self, *argv: str | Path, cwd: Path | None = None) -> str:
        """Return what a command printed, once it has succeeded."""
        ended = self.run(*argv, cwd=cwd)
        assert ended.returncode == 0, (argv, ended.stdout, ended.stderr)
        return ended.stdout + ended.stderr

    def packages(self) -> set[str]:
        """Return the names of all installed packages."""
        found = self.directory.glob("lib/python*/site-packages/*.dist-info")
        return {path.name.partition("-")[0].replace("_", "-").lower() for path in found}
