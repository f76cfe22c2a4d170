"""`forewarn driver check`: the certificate, the directory, and the driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from helpers.certificates import Authority

SETTINGS = """
host = "h1"
control = "127.0.0.1:8171"
certificate = "{certificate}"
key = "{key}"
authority = "authority.pem"
directory = "fences"
driver = "command"
[command]
program = ["{program}"]
"""


def check(
    directory: Path, *names: str, program: str = "true", options: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Check settings with a certificate for these names; return the exit status and the output."""
    pair = Authority(directory).issue(*names)
    file = directory / "driver.toml"
    text = SETTINGS.format(certificate=pair.certificate, key=pair.key, program=program)
    file.write_text(text)
    ran = CliRunner().invoke(app, ["driver", "check", "--config", str(file), *options])
    return ran.exit_code, ran.output


def test_settings_that_fit_the_host_are_valid(tmp_path: Path) -> None:
    status, output = check(tmp_path, "forewarn:driver:h1", "forewarn:driver:h2")
    assert (status, output) == (0, "the settings are valid\n")
    assert not (tmp_path / "fences").exists()


@pytest.mark.parametrize("name", ["forewarn:driver:h2", "forewarn:node:h1", "h1"])
def test_a_certificate_for_another_host_is_refused(tmp_path: Path, name: str) -> None:
    status, output = check(tmp_path, name)
    assert status == 1
    assert "is not for the driver process of h1; it lacks URI:forewarn:driver:h1" in output


def test_programs_read_what_is_found_as_json(tmp_path: Path) -> None:
    status, output = check(tmp_path, "forewarn:driver:h2", options=("--json",))
    found = json.loads(output)
    assert (status, found["usable"], found["warnings"]) == (1, False, [])
    assert "URI:forewarn:driver:h1" in found["problems"][0]


def test_a_driver_that_lacks_something_is_refused(tmp_path: Path) -> None:
    status, output = check(tmp_path, "forewarn:driver:h1", program="no-such-program")
    assert status == 1
    assert "no-such-program" in output


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fences").write_text("")
    assert check(tmp_path, "forewarn:driver:h1")[0] == 1


def test_a_file_that_is_not_there_is_refused_by_both(tmp_path: Path) -> None:
    for words in (["driver"], ["driver", "check"]):
        ran = CliRunner().invoke(app, [words[0], "--config", str(tmp_path / "gone"), *words[1:]])
        assert ran.exit_code == 1
        assert f"{tmp_path}/gone: No such file or directory" in ran.output
