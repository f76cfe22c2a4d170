"""The settings of a node: what is required, what they share with a service, and what is wrong."""

from __future__ import annotations

import re
import socket
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.node.config import Address, Tls
from forewarn.node.daemon.run_host_node import LIVE
from forewarn.node.settings import Settings, SettingsError
from forewarn.node.settings.host_node import SHARED, NodeSettings, load_node
from helpers.paths import ROOT

LEAST = """control = ["c1.example.net:8171", "192.0.2.12:8171"]
certificate = "node.pem"
key = "node.key"
authority = "/etc/ca.pem"
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "node.toml"
    path.write_text(text)
    return path


def problems(directory: Path, text: str, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load_node(written(directory, text), environment or {})
    return list(refused.value.problems)


def test_control_and_certificates_are_all_that_is_required(tmp_path: Path) -> None:
    config = load_node(written(tmp_path, LEAST), {"FOREWARN_LOG": "x", "HOME": "/"}).config
    assert config.host == socket.gethostname()
    assert config.control == (Address("c1.example.net", 8171), Address("192.0.2.12", 8171))
    assert config.tls == Tls(tmp_path / "node.pem", tmp_path / "node.key")
    assert config.authority == Path("/etc/ca.pem")
    assert config.journal == Path("/var/lib/forewarn-node")
    assert config.status == Address("127.0.0.1", 8172)
    assert config.endpoint.guest_addresses == (Address("169.254.169.254", 80),)


def test_control_on_the_same_host_needs_no_certificates(tmp_path: Path) -> None:
    config = load_node(written(tmp_path, 'control = "/run/nodes.sock"'), {}).config
    assert config.control == (Path("/run/nodes.sock"),)
    assert (config.tls, config.authority) == (None, None)
    both = LEAST.replace("192.0.2.12:8171", "/run/nodes.sock")
    config = load_node(written(tmp_path, both), {}).config
    assert config.control == (Address("c1.example.net", 8171), Path("/run/nodes.sock"))
    assert config.tls is not None


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, LEAST + 'host = "h1"\nlog_level = "error"\nthrottle = 3\n')
    environment = {"FOREWARN_NODE_HOST": "h2", "FOREWARN_NODE_CONTROL": "a:1, b:2"}
    environment |= {"FOREWARN_NODE_CONFIG": "/elsewhere", "FOREWARN_NODE_STATUS": ""}
    loaded = load_node(file, environment, {"host": "h3", "metadata": ["127.0.0.1:0"]})
    assert loaded.config.host == "h3"
    assert loaded.config.control == (Address("a", 1), Address("b", 2))
    assert loaded.config.status is None
    assert loaded.config.endpoint.guest_addresses == (Address("127.0.0.1", 0),)
    assert loaded.config.endpoint.limits.throttle == 3
    assert loaded.settings.log_level == "error"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "control must list 1 to 16"),
        ("", "certificate must be set"),
        (LEAST + 'contrl = "x"', ":5: contrl: unknown key; did you mean 'control'"),
        (LEAST + "throttle = true", ":5: throttle: "),
        (LEAST + "throttle = -1", ":5: throttle must not"),
        (LEAST + 'metadata = "10.0.0.1:80"', ":5: metadata = 10.0.0.1:80: "),
        (LEAST + 'status = "169.254.169.254:80"', ":5: status = 169.254.169.254:80: "),
        (LEAST + 'status = "here"', ":5: status: 'here' "),
        (LEAST + 'host = "a b"', ":5: host = 'a b': "),
        ('control = "/run/c"\nkey = "k"', ":2: key is only used with an address"),
        (f'control = "/{"x" * 107}"', ":1: control = /xxx"),
        (LEAST.replace("192.0.2.12:8171", "x"), ":1: control: 'x' "),
        (LEAST.replace("192.0.2.12:8171", ""), ":1: control must list"),
        (LEAST + 'log = "xml"', ":5: log = 'xml'"),
    ],
)
def test_problems_are_reported_with_their_place(tmp_path: Path, text: str, says: str) -> None:
    assert any(says in problem for problem in problems(tmp_path, text))


def test_an_invalid_variable_is_refused(tmp_path: Path) -> None:
    (unknown,) = problems(tmp_path, LEAST, {"FOREWARN_NODE_HOTS": "h1"})
    assert re.match("FOREWARN_NODE_HOTS: .*'FOREWARN_NODE_HOST'", unknown)
    (wrong,) = problems(tmp_path, LEAST, {"FOREWARN_NODE_FRONT": "yes"})
    assert re.match("FOREWARN_NODE_FRONT: front .*'yes'", wrong)


def test_what_it_shares_with_a_service_has_the_same_defaults() -> None:
    own, service = NodeSettings(), Settings()
    shared: dict[str, Any] = {key: getattr(own, key) for key in SHARED}
    assert shared == {key: getattr(service, key) for key in SHARED}


def test_every_setting_is_documented_and_which_are_reloaded() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    page = page.partition("## Settings of a node")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", page))
    fields = {field.name for field in msgspec.structs.fields(NodeSettings)}
    limits = {field for field in fields if field.startswith("max_")}
    assert fields - limits - {"throttle"} <= named
    assert set(LIVE) <= fields


def test_the_example_names_every_setting_at_its_default_and_can_be_used() -> None:
    example = ROOT / "deploy/node/node.toml"
    text = re.sub(r"^#(?=[a-z_]+ = )", "", example.read_text(), flags=re.MULTILINE)
    raw = tomllib.loads(text)
    fields = {field.name: field.default for field in msgspec.structs.fields(NodeSettings)}
    required = {"control", "certificate", "key", "authority"}
    assert {key: raw[key] for key in raw.keys() - required} == {
        key: fields[key] for key in fields.keys() - required
    }
    assert set(load_node(example, {}).endpoint.origins) == required
