"""Virtual environments in which there is nothing but what a test installs there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from helpers.paths import ROOT
from helpers.waiting import LIMIT

PROJECT = Path(sys.executable).parents[1]  # the environment in which the tests run
_PIP = Path(sysconfig.get_path("purelib")) / "pip" / "__pip-runner__.py"


class EmptyEnvironment:
    """A virtual environment whose `pip` finds forewarn as if it were published.

    It is uv, which takes the versions that the locks name from its cache, where `make` has put
    them, in a fraction of the time that pip needs.
    """

    def __init__(self, directory: Path, dist: Path) -> None:
        self.directory = directory
        self.bin = directory / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", directory], check=True, timeout=LIMIT
        )
        self._write_pip(
            f'exec "{ROOT}/tools/uv-pip" "$@" --find-links "{dist}"'
            f' --constraint "{ROOT}/requirements/dev.lock"'
            f' --build-constraint "{ROOT}/requirements/build.lock"'
        )
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "FOREWARN_", "PYTEST_"))
        }
        self.environ = inherited | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(directory),
        }

    def use_pip(self) -> None:
        """Make `pip` the real one from now on, without an index: what it needs is installed."""
        self._write_pip(f'exec "{self.bin}/python" "{_PIP}" "$@"')
        self.environ = {k: v for k, v in self.environ.items() if not k.startswith("PIP_")} | {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one as the value of `isolation`
            "PIP_NO_INDEX": "1",
            "PIP_QUIET": "1",
        }

    def _write_pip(self, command: str) -> None:
        pip = self.bin / "pip"
        pip.write_text(f"#!/bin/sh\n{command}\n")
        pip.chmod(0o755)

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
            timeout=LIMIT,
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
