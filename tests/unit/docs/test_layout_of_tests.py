"""Tests are where CONTRIBUTING.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.paths import ROOT, TESTS

UNIT, SOURCE = TESTS / "unit", ROOT / "src" / "forewarn"
UNREACHABLE = ("docs", "packaging")  # about documents and shipped files, not about modules
SECTION = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Tests\n")[2]
SECTION = SECTION.partition("\n## ")[0]


def test_every_unit_test_is_named_after_a_module_beside_it() -> None:
    """`a/test_b.py` or `a/test_b_subject.py` for `a/b.py`, or for `a` itself if that is `b`."""
    files = [
        file.relative_to(UNIT)
        for file in sorted(UNIT.rglob("test_*.py"))
        if file.relative_to(UNIT).parts[0] not in UNREACHABLE
    ]
    assert len(files) > 100
    assert [str(file) for file in files if not _has_module(file)] == []


def _has_module(file: Path) -> bool:
    words = file.stem.removeprefix("test_").split("_")
    names = {"_".join(words[:end]) for end in range(1, len(words) + 1)}
    folder = SOURCE / file.parent
    modules = {module.stem for module in folder.glob("*.py")}
    packages = {package.parent.name for package in folder.glob("*/__init__.py")}
    return bool(names & (modules | packages | {folder.name}))


@pytest.fixture(scope="module")
def packages_in_table() -> set[Path]:
    rows = SECTION.partition("| package |")[2].partition("\n\n")[0].splitlines()[2:]
    return {Path(name) for row in rows for name in re.findall("`(.+?)`", row.split("|")[1])}


def test_every_package_is_in_the_table(packages_in_table: set[Path]) -> None:
    """By itself, or else with a parent, which is enough only if it has tests in tests/unit."""
    packages = {file.parent.relative_to(SOURCE) for file in SOURCE.glob("*/**/*.py")}
    assert [str(package) for package in packages_in_table - packages] == []
    assert len(packages) > 50

    def is_found(package: Path) -> bool:
        rows = packages_in_table.intersection((package, *package.parents))
        has_unit_tests = any((UNIT / package).rglob("test_*.py"))
        return package in rows or any(has_unit_tests or len(row.parts) > 1 for row in rows)

    assert sorted(str(package) for package in packages if not is_found(package)) == []


def test_every_folder_with_tests_is_named_and_exists() -> None:
    named = {ROOT / name for name in re.findall(r"`(tests/[\w/]+)`", SECTION)}
    assert sorted(str(folder) for folder in named if not folder.is_dir()) == []
    above = (TESTS, TESTS / "integration", TESTS / "system")
    folders = {
        folder for parent in above for folder in parent.iterdir() if any(folder.rglob("*.py"))
    }
    assert sorted(str(folder) for folder in folders - named) == []
