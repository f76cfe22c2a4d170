"""What is published: what is in the wheel and in the source distribution, and how PyPI shows it."""

from __future__ import annotations

import email
import email.message
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from helpers.paths import ROOT
from helpers.waiting import LIMIT

LINK = re.compile(r'(?:href|src)="([^"]*)"')
LINKED = re.compile(r"\[((?:[^\[\]\n]|\[[^\[\]\n]*\])+)\]\([^)\s]+\)")
PICTURE = re.compile(r"!\[[^\]\n]*\]\([^)\s]+\)")
TARGET = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    (sdist,) = dist.glob("forewarn-*.tar.gz")
    return sdist


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def described(metadata: email.message.Message) -> str:
    payload = metadata.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files(*directories: str) -> set[str]:
    found = (file for name in directories for file in (ROOT / name).rglob("*") if file.is_file())
    return {str(f.relative_to(ROOT)) for f in found if "__pycache__" not in f.parts}


def test_the_wheel_contains_the_package_and_nothing_else(wheel: Path) -> None:
    package = {name for name in names(wheel) if name.startswith("forewarn/")}
    assert package == {name.removeprefix("src/") for name in files("src")}
    others = {re.sub(r"^forewarn-[^/]*?\.(dist-info|data)/.*", r"\1", n) for n in names(wheel)}
    assert others - package <= {"dist-info", "data"}


def test_the_source_distribution_contains_what_it_is_made_of_and_what_there_is_to_read(
    sdist: Path,
) -> None:
    with tarfile.open(sdist) as archive:
        contents = {name.partition("/")[2] for name in archive.getnames()}
    pictures = files("docs/images")
    assert files("src", "docs", "examples", "deploy") - pictures <= contents
    assert pictures
    assert contents.isdisjoint(pictures)
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO"} <= contents
    tops = {name.partition("/")[0] for name in contents}
    assert tops.isdisjoint({".ci", "bench", "tests", "tools", "requirements", ".venv"})


def test_the_source_distribution_gives_the_same_wheel(
    wheel: Path, sdist: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # of Python 3.11.4
        archive.extractall(tmp_path)
    (source,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {i.filename: i.CRC for i in one.infolist()} == {
            i.filename: i.CRC for i in other.infolist()
        }


def test_no_link_of_the_description_depends_on_where_it_is_shown(
    metadata: email.message.Message,
) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = described(metadata)
    assert "# forewarn" in description
    assert [link for link in TARGET.findall(description) if not _absolute(link)] == []
    shown = import_module("readme_renderer.markdown").render(description)  # as PyPI shows it
    assert shown is not None
    assert [link for link in LINK.findall(shown) if not _absolute(link)] == []


def test_the_description_is_the_readme_but_for_its_links_and_pictures(
    metadata: email.message.Message,
) -> None:
    readme = PICTURE.sub("", (ROOT / "README.md").read_text())
    assert len([link for link in TARGET.findall(readme) if not _absolute(link)]) > 20

    def words(text: str) -> str:
        return " ".join(LINKED.sub(r"\1", text).split())

    assert words(described(metadata)) == words(readme)


def test_the_addresses_of_the_project_are_published_and_links_lead_there(
    metadata: email.message.Message,
) -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert urls
    assert metadata.get_all("Project-URL") == [f"{name}, {url}" for name, url in urls.items()]
    if source := urls.get("Source"):  # unless it has no address yet
        linked = TARGET.findall(described(metadata))
        readme = TARGET.findall(PICTURE.sub("", (ROOT / "README.md").read_text()))
        relative = [link for link in readme if not _absolute(link)]
        assert len([link for link in linked if link.startswith(source)]) >= len(relative)


def test_every_extra_is_published_with_what_it_needs(metadata: email.message.Message) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(metadata.get_all("Provides-Extra") or []) == set(project["optional-dependencies"])
    assert metadata["Requires-Python"] == project["requires-python"]
    assert (ROOT / "LICENSE").is_file()
    assert metadata.get_all("License-File") == ["LICENSE"]


def _absolute(link: str) -> bool:
    return link.startswith(("https://", "http://", "#", "mailto:"))
