"""`tools/release`: what is built, committed and tagged, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from helpers.clean_root import needed
from helpers.paths import ROOT
from helpers.waiting import BUILD_LIMIT, LIMIT

FILES = (
    *("src", "tools", "docs/*.md", "docs/*.json", "examples", "deploy", "packages", "packaging"),
    "requirements",
    *("pyproject.toml", "CHANGELOG.md", "LICENSE", "README.md", ".gitignore"),
)
ENTRY = "### Added\n\n- Something new."


def git(repository: Path, *arguments: str) -> str:
    command = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost", *arguments)
    done = subprocess.run(
        command, cwd=repository, check=True, capture_output=True, text=True, timeout=LIMIT
    )
    return done.stdout.strip()


def release(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["tools/release", *arguments],
        cwd=repository,
        env={**os.environ, "DEB_COMPRESSION": "0"},  # nobody gets what is built here
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT,
    )


def write_changelog(repository: Path, entry: str) -> None:
    text = f"# Changelog\n\n## Unreleased\n\n{entry}\n\n## 0.1.0 - 2026-01-01\n\n- The first.\n"
    (repository / "CHANGELOG.md").write_text(text)
    git(repository, "commit", "--quiet", "--all", "--message", "Change the changelog")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The files of this checkout, committed, and version 0.1.0 released."""
    made = tmp_path / "forewarn"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *FILES],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, made / name)
    (made / ".venv").symlink_to(ROOT / ".venv")
    git(made, "init", "--quiet", "--initial-branch", "main")
    git(made, "config", "user.name", "A maintainer")
    git(made, "config", "user.email", "maintainer@localhost")
    git(made, "add", "--all", ":!.venv")
    git(made, "commit", "--quiet", "--message", "Begin")
    git(made, "tag", "v0.1.0")
    write_changelog(made, ENTRY)
    return made


def check_sums(directory: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=directory, check=True)


def test_a_release_is_built_committed_and_tagged_and_a_checkout_of_its_tag_builds_the_same(
    repository: Path, tmp_path: Path
) -> None:
    before, out, again = git(repository, "rev-parse", "HEAD"), tmp_path / "out", tmp_path / "again"
    done = release(repository, "0.2.0", "--parts", "dist", "--directory", str(out))
    assert done.returncode == 0, done.stderr
    assert git(repository, "rev-parse", "v0.2.0^{}", "HEAD^") == git(
        repository, "rev-parse", "HEAD", before
    )
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""
    assert ENTRY in git(repository, "tag", "--list", "--format=%(contents)", "v0.2.0")
    changelog = (repository / "CHANGELOG.md").read_text()
    assert (
        changelog.index("## Unreleased") < changelog.index("## 0.2.0 - 2") < changelog.index(ENTRY)
    )
    page, manual = "docs/operate/install.md", "packaging/share/man/man1/forewarn.1"
    description = "docs/reference/openapi.json"
    for name, named in ((page, "forewarn_0.2.0-1_"), (manual, "forewarn 0.2.0"), (description, "")):
        text = (repository / name).read_text()
        assert named in text
        assert "0.1.0" not in text.replace("10.1.0.0", "")
    files = {file.name for file in out.iterdir()}
    assert files == {"forewarn-0.2.0-py3-none-any.whl", "forewarn-0.2.0.tar.gz", "SHA256SUMS"}
    with zipfile.ZipFile(out / "forewarn-0.2.0-py3-none-any.whl") as wheel:
        assert b'__version__ = "0.2.0"' in wheel.read("forewarn/__init__.py")

    git(repository, "commit", "--allow-empty", "--quiet", "--message", "Go on")
    git(repository, "checkout", "--quiet", "v0.2.0")
    subprocess.run(
        ["tools/build-dist", ".venv", str(again)],
        cwd=repository,
        env={name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"},
        check=True,
        capture_output=True,
    )
    shutil.copy(out / "SHA256SUMS", again)
    check_sums(again)


def test_what_cannot_be_released_is_refused_and_changes_nothing(
    repository: Path, tmp_path: Path
) -> None:
    def refused(version: str) -> str:
        before = git(repository, "rev-parse", "HEAD")
        out = tmp_path / "out"
        done = release(repository, version, "--parts", "dist", "--directory", str(out))
        assert done.returncode == 1
        assert git(repository, "rev-parse", "HEAD") == before
        assert git(repository, "tag") == "v0.1.0"
        assert not out.exists()
        return done.stderr

    assert "0.2" in refused("0.2")
    assert "0.1.0" in refused("0.1.0")
    write_changelog(repository, "")
    assert "CHANGELOG.md" in refused("0.2.0")
    (repository / "README.md").write_text("changed")
    assert "README.md" in refused("0.2.0")


def test_a_dry_run_builds_everything_and_keeps_neither_commit_nor_tag(
    repository: Path, tmp_path: Path
) -> None:
    needed("dpkg-deb")
    before, out = git(repository, "rev-parse", "HEAD"), tmp_path / "out"
    built = release(
        repository, "0.2.0", "--parts", "dist,deb", "--directory", str(out), "--dry-run"
    )
    assert built.returncode == 0, built.stderr
    assert git(repository, "rev-parse", "HEAD") == before
    assert git(repository, "tag") == "v0.1.0"
    check_sums(out)
    listed = (out / "SHA256SUMS").read_text()
    for package in ("forewarn", "forewarn-node", "forewarn-agent"):
        (file,) = out.glob(f"{package}_0.2.0-1_*.deb")
        assert file.name in listed
