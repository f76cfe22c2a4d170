"""The tests on real hypervisors and on a real API server say so where they cannot be run, and fail
where nothing may be skipped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.paths import ROOT
from helpers.waiting import LIMIT


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
@pytest.mark.parametrize("arguments", [["test-hosts", ".", "there"], ["test-kubernetes"]])
def test_what_is_missing_is_a_failure_in_ci_only(
    tmp_path: Path, arguments: list[str], ci: str, status: int
) -> None:
    """Of Debian's programs, there are none."""
    realpath = shutil.which("realpath")
    assert realpath
    (tmp_path / "realpath").symlink_to(realpath)
    tool, *rest = arguments
    words = ["/bin/sh", str(ROOT / "tools" / tool), *rest, "/bin/sh", "-c", "echo run"]
    ended = subprocess.run(
        words,
        env={"PATH": str(tmp_path), "CI": ci, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (status, "")
    assert tool in ended.stderr
