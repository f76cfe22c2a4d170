"""The network rules of a host: files of the package, at the places that the documentation names."""

from __future__ import annotations

import sys
from pathlib import Path

from forewarn.node import install_rules
from helpers.paths import ROOT

SOURCE = ROOT / "deploy/network"
CONFIG = Path("/etc/forewarn/node.toml")


def test_files_of_the_package_are_installed_and_none_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "etc/forewarn").mkdir(parents=True)
    (tmp_path / "etc/forewarn/ports").write_text("host 10.0.0.1\n")
    (tmp_path / "etc/forewarn/forewarn.nft").write_text("# edited\n")
    assert install_rules.problem(SOURCE, tmp_path) == ""
    new = {
        str(path.relative_to(tmp_path)) for path in install_rules.install(CONFIG, SOURCE, tmp_path)
    }
    assert "usr/local/sbin/forewarn-guests" in new
    assert "etc/forewarn/forewarn.nft" not in new
    assert (tmp_path / "etc/forewarn/forewarn.nft").read_text() == "# edited\n"
    assert (tmp_path / "usr/local/sbin/forewarn-ports").stat().st_mode & 0o111
    assert str(CONFIG) in (tmp_path / install_rules.ENVIRONMENT).read_text()
    assert install_rules.install(CONFIG, SOURCE, tmp_path) == []


def test_nothing_is_installed_that_would_cut_guests_off(tmp_path: Path) -> None:
    assert "does not exist" in install_rules.problem(SOURCE, tmp_path)
    assert "not installed" in install_rules.problem(tmp_path, tmp_path)


def test_what_the_page_installs_is_what_is_installed() -> None:
    """The table of docs/operate/networking.md names the same places."""
    page = (ROOT / "docs/operate/networking.md").read_text()
    table = page.partition("| file | install to |")[2].partition("\n\n")[0].splitlines()
    for directory, names in install_rules.FILES.items():
        for name in names:
            (row,) = (line for line in table if f"`{name}`" in line)
            assert f"`/{directory}/" in row, name


def test_the_first_command_that_fails_is_named() -> None:
    fails = (sys.executable, "-c", "raise SystemExit('no')")
    assert install_rules.run([(sys.executable, "-c", "")]) == ""
    assert install_rules.run([fails, ("/nowhere",)]).endswith("no")
    assert "/nowhere" in install_rules.run([("/nowhere",)])
