"""The settings of a driver process: what is required, and what is wrong."""

from __future__ import annotations

import re
import socket
import tomllib
from pathlib import Path

import msgspec
import pytest

from forewarn.drivers.command.options import CommandOptions
from forewarn.node.config import Address, Tls
from forewarn.node.settings import SettingsError
from forewarn.node.settings.driver_process import DriverSettings, load_driver
from helpers.paths import ROOT

LEAST = """
control = ["c1.example.net:8171", "192.0.2.12:8171"]
certificate = "driver.pem"
key = "driver.key"
authority = "/etc/ca.pem"
driver = "simulated"
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "driver.toml"
    path.write_text(text)
    return path


def problems(directory: Path, text: str) -> str:
    with pytest.raises(SettingsError) as refused:
        load_driver(written(directory, text))
    return "\n".join(refused.value.problems)


def test_control_certificates_and_a_driver_are_all_that_is_required(tmp_path: Path) -> None:
    config = load_driver(written(tmp_path, LEAST)).config
    assert config.hosts == (socket.gethostname(),)
    assert config.control == (Address("c1.example.net", 8171), Address("192.0.2.12", 8171))
    assert config.tls == Tls(tmp_path / "driver.pem", tmp_path / "driver.key")
    assert config.directory == Path("/var/lib/forewarn-driver")
    assert config.driver.name == "simulated"


def test_a_driver_has_the_table_that_it_has_at_a_service(tmp_path: Path) -> None:
    (tmp_path / "carry").symlink_to("/bin/true")
    text = f'{LEAST}hosts = ["h1", "h2"]\n[command]\nprogram = ["./carry", "x"]\n'
    config = load_driver(written(tmp_path, text.replace("simulated", "command"))).config
    assert config.hosts == ("h1", "h2")
    assert isinstance(config.driver.options, CommandOptions)
    assert config.driver.options.program == [str(tmp_path / "carry"), "x"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('host = "h1"\nhosts = ["h2"]', "host and hosts cannot be combined"),
        ('host = "h 1"', "hosts"),
        ("at_once = 0", "at_once must be 1 to 256, not 0"),
        ('at_once = "many"', "at_once"),
        ('metadata = "127.0.0.1:80"', "metadata: unknown key"),
        ('hots = ["h1"]', "hots: unknown key; did you mean 'hosts'"),
        ('log = "loud"', "log = 'loud'"),
        ("[command]\nprogram = ['x']", '[command] is only used with driver = "command"'),
        ("[rack]\nurl = 'x'", "rack: unknown key"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, more: str, problem: str
) -> None:
    output = problems(tmp_path, LEAST + more)
    assert problem in output
    assert re.match(rf"{tmp_path}/driver.toml:\d+: ", output)


@pytest.mark.parametrize(
    ("driver", "problem"),
    [
        ('driver = "hosts"', "is for control"),
        ('driver = "simulate"', "unknown driver; did you mean 'simulated'"),
        ('driver = "command"', "needs a table [command] with"),
        ('driver = "command"\n[command]\nprogram = []', "command.program"),
        ('driver = "command"\n[command]\nprogram = ["true"]\ntimeout = "soon"', "command.timeout"),
        ("", "driver must be set"),
    ],
)
def test_a_driver_that_cannot_be_used_is_refused_in_one_sentence(
    tmp_path: Path, driver: str, problem: str
) -> None:
    output = problems(tmp_path, LEAST.replace('driver = "simulated"', driver))
    assert problem in output
    assert "\n" not in output


def test_what_is_missing_and_a_path_as_control_are_refused(tmp_path: Path) -> None:
    output = problems(tmp_path, 'control = "/run/nodes.sock"')
    assert "a driver process needs HOST:PORT" in output
    for key in ("certificate", "key", "authority", "driver"):
        assert f"{key} must be set" in output
    assert "control must list 1 to 16 addresses" in problems(tmp_path, "")


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    page = page.partition("## Settings of a driver process")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", page))
    assert {field.name for field in msgspec.structs.fields(DriverSettings)} <= named


def test_the_example_names_every_setting_at_its_default() -> None:
    example = (ROOT / "deploy/driver/driver.toml").read_text()
    raw = tomllib.loads(re.sub(r"^#(?=[a-z_]+ = )", "", example, flags=re.MULTILINE))
    fields = {field.name: field.default for field in msgspec.structs.fields(DriverSettings)}
    assert raw.pop("command")
    required = {"control", "certificate", "key", "authority", "driver", "hosts"}
    assert raw.pop("hosts") == []
    assert {key: raw[key] for key in raw.keys() - required} == {
        key: fields[key] for key in fields.keys() - required
    }
