"""A unit test is found where the path of what it tests says."""

from __future__ import annotations

from pathlib import Path

from helpers.paths import ROOT, TESTS

UNIT, SOURCE = TESTS / "unit", ROOT / "src" / "forewarn"
APART = ("docs", "packaging")  # about documents and shipped files, not about modules


def test_every_unit_test_is_named_after_a_module_beside_it() -> None:
    """`a/test_b.py` or `a/test_b_subject.py` for `a/b.py`, or for `a` itself if that is `b`."""
    files = [
        file.relative_to(UNIT)
        for file in sorted(UNIT.rglob("test_*.py"))
        if file.relative_to(UNIT).parts[0] not in APART
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
