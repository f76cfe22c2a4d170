"""The table [libvirt] of the settings: what it may contain, and where that is documented."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.drivers import registry
from forewarn.node.settings import SettingsError, load
from forewarn_libvirt.options import LibvirtOptions
from helpers.certificates import Authority
from helpers.paths import ROOT

PAGE = (ROOT / "docs/operate/libvirt.md").read_text()
SETTINGS = """
host = "h1"
control = "127.0.0.1:8171"
certificate = "{certificate}"
key = "{key}"
authority = "authority.pem"
directory = "fences"
driver = "libvirt"
[libvirt]
uri = "{uri}"
"""


@pytest.mark.parametrize("field", msgspec.structs.fields(LibvirtOptions), ids=lambda f: f.name)
def test_every_option_is_documented_with_its_default(field: msgspec.structs.FieldInfo) -> None:
    default = field.default if isinstance(field.default, bool | int | str) else ""
    shown = f"`{str(default).lower()}`" if default != "" else "none"
    assert f"| `libvirt.{field.name}` | {shown} |" in PAGE


def test_the_driver_is_found_by_its_name() -> None:
    assert "libvirt" in registry.names()
    assert registry.load("libvirt").options is LibvirtOptions


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ('freeze = "1s"', 'for example uri = "qemu+tls://{host}/system"'),
        ('uri = "h1"', "libvirt.uri: 'h1' is not a URI of libvirt"),
        ('uri = "qemu:///system"\nuris = {h1 = ""}', "libvirt.uris.h1: '' is not a URI"),
        ('uri = "qemu:///system"\nshutdown = "soon"', "libvirt.shutdown: 'soon' is not a duration"),
        ('uri = "qemu:///system"\nat_once = 0', "libvirt.at_once: must be at least 1"),
        ('uri = "qemu:///system"\nshared = ["disks"]', "'disks' is not an absolute path"),
        ('uri = "qemu:///system"\nwork = ["/nowhere"]', "libvirt.work: "),
        ('uri = "qemu:///system"\nmachines = "none.toml"', "none.toml' cannot be used: "),
        ('uri = "qemu:///system"\nmachines = "serve.toml"', "serve.toml' cannot be used: "),
        ('uri = "qemu:///system"\npostcopy = true', "libvirt.postcopy: unknown key"),
    ],
)
def test_options_that_cannot_be_used_are_named(tmp_path: Path, options: str, problem: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(f'driver = "libvirt"\n[libvirt]\n{options}\n')
    with pytest.raises(SettingsError) as error:
        load(file, {})
    assert problem in "\n".join(error.value.problems)


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("test:///default", ""),
        ("qemu:///nowhere", "the libvirt of h1 cannot be reached: "),
        ("qemu+unix:///system?socket=/nowhere", "the libvirt of h1 cannot be reached: "),
    ],
)
def test_the_check_of_a_driver_process_tries_to_reach_its_libvirt(
    tmp_path: Path, uri: str, problem: str
) -> None:
    pair = Authority(tmp_path).issue("forewarn:driver:h1")
    file = tmp_path / "driver.toml"
    file.write_text(SETTINGS.format(certificate=pair.certificate, key=pair.key, uri=uri))
    ran = CliRunner().invoke(app, ["driver", "check", "--config", str(file)])
    assert ran.exit_code == bool(problem)
    assert problem in ran.output
