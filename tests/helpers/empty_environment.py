"""Virtual environments in which there is nothing but what a test installs there.

pip finds packages as it would on PyPI: in an index. The index is made of what `make` has fetched
for the project's own environment, and of forewarn itself if it is to be published there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from helpers.waiting import LIMIT

PROJECT = Path(sys.executable).parents[1]  # the environment in which the tests run
FETCHED = PROJECT / "wheels"
_PIP = Path(sysconfig.get_path("purelib")) / "pip" / "__pip-runner__.py"


def make_index(directory: Path, packages: Iterable[Path]) -> str:
    """Make an index (PEP 503) of these packages; return its URL."""
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for package in packages:
        files[re.sub(r"[-_.]+", "-", package.name.partition("-")[0]).lower()].append(package)
    for name, found in files.items():
        page = directory / name / "index.html"
        page.parent.mkdir(parents=True)
        links = (f'<a href="{file.as_uri()}">{file.name}</a>' for file in found)
        page.write_text(f"<!DOCTYPE html><html><body>{' '.join(links)}</body></html>")
    return directory.as_uri()


class EmptyEnvironment:
    """A virtual environment whose `pip` knows one index."""

    def __init__(self, directory: Path, index: str) -> None:
        self.directory = directory
        self.bin = directory / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", directory], check=True, timeout=LIMIT
        )
        # That of the project, as `pip --python` would run it: to install another takes longer than
        # all the rest.
        pip = self.bin / "pip"
        pip.write_text(f'#!/bin/sh\nexec "{self.bin}/python" "{_PIP}" "$@"\n')
        pip.chmod(0o755)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PIP_", "FOREWARN_", "PYTEST_", "VIRTUAL_ENV"))
        }
        self.environ = inherited | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_INDEX_URL": index,
            "PIP_NO_COMPILE": "0",  # pip reads this one as the value of `compile`
            "PIP_QUIET": "1",
        }

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
