"""Where settings come from, which wins, and what is said when they are wrong."""

from __future__ import annotations

import errno
import os
import re
import socket
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.core.time import SECOND
from forewarn.drivers.command.options import CommandOptions
from forewarn.node.config import Address, ArmListener, Config, LocalConnection, NodeConnections, Tls
from forewarn.node.daemon.reload import LIVE
from forewarn.node.settings import Settings, SettingsError, gather, load
from forewarn.node.settings.toml_lines import lines
from forewarn.node.settings.values import collide
from forewarn.service.access.oidc import Oidc
from helpers.paths import ROOT

EXAMPLE = ROOT / "deploy/forewarn.toml"


def problems(path: Path | None = None, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load(path, environment or {})
    return list(refused.value.problems)


def command(settings: Settings) -> CommandOptions:
    return msgspec.convert(settings.driver_options["command"], CommandOptions)


def written(directory: Path, text: str) -> Path:
    path = directory / "serve.toml"
    path.write_text(text)
    return path


# Which wins.


def test_a_flag_wins_over_the_environment_which_wins_over_the_file_which_wins_over_defaults(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, 'log = "json"\nlog_level = "debug"\ncontrol = "127.0.0.1:1"\n')
    environment = {"FOREWARN_LOG_LEVEL": "error", "FOREWARN_CONTROL": "127.0.0.1:2"}
    output = gather(file, environment, {"control": "127.0.0.1:3", "state": None})
    assert output.settings.history == "90d"
    assert output.settings.log == "json"
    assert output.settings.log_level == "error"
    assert output.settings.control == "127.0.0.1:3"
    origins = {key: str(output.origin(key)) for key in ("history", "log", "log_level", "control")}
    assert origins == {
        "history": "default",
        "log": f"{file}:1",
        "log_level": "environment FOREWARN_LOG_LEVEL",
        "control": "flag --control",
    }


def test_paths_in_the_file_are_relative_to_it_and_others_to_the_working_directory(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, 'state = "a.db"\nrecord = "/abs"\n')
    output = gather(file, {"FOREWARN_FLEET": "fleet.yaml"}).settings
    assert (output.state, output.record, output.fleet) == (
        str(tmp_path / "a.db"),
        "/abs",
        "fleet.yaml",
    )


def test_a_state_is_a_path_unless_it_names_an_engine_which_must_exist(tmp_path: Path) -> None:
    file = written(tmp_path, 'state = "postgresq://secret@db/forewarn"\n')
    assert gather(file, {}).settings.state == "postgresq://secret@db/forewarn"
    (problem,) = problems(file)
    assert re.search("state: .*'postgresq'", problem)
    assert "secret" not in problem
    loaded, config = load(written(tmp_path, 'state = "a:b.db"\n'), {})
    assert loaded.settings.state == str(config.state) == f"{tmp_path}/a:b.db"


def test_a_table_in_the_environment_extends_or_replaces_that_of_the_file(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, '[command]\nprogram = ["sh"]\ntimeout = "1m"\n[gates]\na = ["sh"]\n')
    output = gather(file, {"FOREWARN_COMMAND__TIMEOUT": "2m", "FOREWARN_GATES__b": "true"}).settings
    assert command(output) == CommandOptions(program=["sh"], timeout="2m")
    assert output.gates == {"a": ["sh"], "b": ["true"]}
    whole = {"FOREWARN_COMMAND": '{"program": ["true"]}', "FOREWARN_GATES": '{c = ["sh", "-c"]}'}
    output = gather(file, whole).settings
    assert command(output) == CommandOptions(program=["true"])
    assert output.gates == {"c": ["sh", "-c"]}


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("FOREWARN_THROTTLE", "7", "throttle", 7),
        ("FOREWARN_FRONT", "false", "front", False),
        ("FOREWARN_FRONT", "True", "front", True),
        ("FOREWARN_HISTORY", "", "history", ""),
        ("FOREWARN_CONTROL_NAMES", "a.net, b.net", "control_names", ["a.net", "b.net"]),
        ("FOREWARN_CONTROL_NAMES", '["a,b"]', "control_names", ["a,b"]),
        ("FOREWARN_GATES", '{"a": ["x"]}', "gates", {"a": ["x"]}),
        ("FOREWARN_METADATA", "[::1]:80", "metadata", "[::1]:80"),
        ("FOREWARN_METADATA", "127.0.0.1:1, [::1]:2", "metadata", ["127.0.0.1:1", "[::1]:2"]),
        ("FOREWARN_METADATA", '["127.0.0.1:1", "[::1]:2"]', "metadata", ["127.0.0.1:1", "[::1]:2"]),
        ("FOREWARN_METADATA", "['[::1]:2']", "metadata", ["[::1]:2"]),
    ],
)
def test_a_variable_means_what_the_setting_expects(
    name: str, text: str, key: str, value: Any
) -> None:
    assert getattr(gather(None, {name: text}).settings, key) == value


def test_guests_may_ask_at_several_addresses(tmp_path: Path) -> None:
    file = written(tmp_path, 'metadata = ["169.254.169.254:80", "169.254.169.254:8080"]\n')
    _, made = load(file, {})
    assert list(map(str, made.guest_addresses)) == ["169.254.169.254:80", "169.254.169.254:8080"]
    assert str(made.metadata) == "169.254.169.254:80"
    output, made = load(file, {}, {"metadata": ["127.0.0.1:1", "127.0.0.1:2"]})
    assert list(map(str, made.guest_addresses)) == ["127.0.0.1:1", "127.0.0.1:2"]
    assert str(output.origin("metadata")) == "flag --metadata"
    output, made = load(file, {}, {"metadata": ["127.0.0.1:1"]})
    assert (output.settings.metadata, len(made.guest_addresses)) == ("127.0.0.1:1", 1)
    output, made = load(file, {}, {"metadata": []})
    assert len(made.guest_addresses) == 2


# What is wrong.


def test_all_problems_are_reported_at_once_with_their_place(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'histroy = "1d"\n# a comment\nlog = "jsno"\n\nthrottle = "a"\nsilence = "soon"\n'
        'control_names = [\n  "fine",\n  7,\n]\n[command]\ntimout = "3s"\n'
        '[gates]\nwell = ["./nope"]\n',
    )
    environment = {"FOREWARN_THROTLE": "3", "FOREWARN_TOKEN": "x"}
    environment |= {"FOREWARN_MAX_CONNECTIONS": "many"}
    output = problems(file, environment)
    for line, words in [
        ("1", "histroy: unknown key.*'history'"),
        ("3", "log = 'jsno': .*'json'"),
        ("5", "throttle: .*whole number"),
        ("6", "silence: .*'soon'"),
        ("7", r"control_names\[1\]: .*text"),
        ("12", "command.timout: unknown key.*'timeout'"),
        ("14", f"gate 'well': .*{tmp_path}/nope"),
    ]:
        assert [one for one in output if re.match(f"{file}:{line}: {words}", one)], (words, output)
    assert any(re.match("FOREWARN_THROTLE: .*'FOREWARN_THROTTLE'", problem) for problem in output)
    assert "FOREWARN_MAX_CONNECTIONS: max_connections must be a whole number, not 'many'" in output
    assert len(output) == 9


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"FOREWARN_FRONT": "yes"}, "front must be true or false"),
        ({"FOREWARN_COMMAND__TIMOUT": "1"}, "did you mean 'FOREWARN_COMMAND__TIMEOUT'?"),
        ({"FOREWARN_COMMAND__PROGRAM": "a, b"}, "command.program must be"),
        ({"FOREWARN_GATES": "{a"}, "gates must be written"),
        ({"FOREWARN_GATES__": "x"}, "no such setting"),
        ({"FOREWARN_STATE__X": "x"}, "no such setting"),
        ({"FOREWARN_CONTROL": "nowhere"}, "control: 'nowhere' "),
        ({"FOREWARN_METADATA": "127.0.0.1:1,x"}, "metadata: 'x' "),
        ({"FOREWARN_METADATA": "127.0.0.1:1,10.0.0.1:1"}, "metadata = 10.0.0.1:1: "),
        ({"FOREWARN_METADATA": "[::1]:1,[0::1]:1"}, "metadata: [0::1]:1 overlaps [::1]:1"),
        ({"FOREWARN_MAX_CONNECTIONS": "0"}, "max_connections … at least 1"),
        ({"FOREWARN_SILENCE": "0s"}, "silence = '0s': … at least 1 min"),
        ({"FOREWARN_SILENCE": "59s"}, "silence = '59s': … at least 1 min"),
        ({"FOREWARN_TRACES": "ftp://x"}, "traces = 'ftp://x': "),
        ({"FOREWARN_CONTROL_NAMES": "http://a"}, "'http://a' "),
    ],
)
def test_an_invalid_variable_is_refused(environment: dict[str, str], says: str) -> None:
    (problem,) = problems(None, environment)
    assert all(part in problem for part in says.split("… "))
    assert problem.startswith(next(iter(environment)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = 1\n\nb = x", ":3: Invalid value (column 5)"),
        ("a = [", "Invalid value (at end of document)"),
        ('command = "x"', ":1: command: expected a mapping"),
        ("command = {}", ":1: command: key 'program'"),
        ("gates.a = 3", ":1: gates.a: expected a list"),
        ("[[gates]]", ":1: gates: "),
        ("\xff", "not UTF-8 text (byte 1)"),
        ('"x.timeout" = "1s"', ":1: x.timeout: unknown key"),
        ("metadata = 80", ":1: metadata: expected text"),
        ("metadata = [80]", ":1: metadata[0]: expected text"),
        ("metadata = []", ":1: metadata lists 0"),
        (f"metadata = {['127.0.0.1:0'] * 9}", ":1: metadata lists 9"),
        ('metadata = ["127.0.0.1:1", "127.0.0.1:1"]', ":1: metadata: 127.0.0.1:1 "),
        (
            'metadata = ["127.0.0.1:1", "127.0.0.1:2"]\ncontrol = "127.0.0.1:2"',
            ":2: control = 127.0.0.1:2: ",
        ),
        ('inventory = "folow"', ":1: inventory = 'folow': did you mean 'follow'"),
        ('inventory = "report"\non_crash = "restart"', 'needs inventory = "follow"'),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_bytes(text.encode("latin-1"))
    (problem,) = problems(file)
    assert problem.startswith(str(file))
    assert says in problem


NODES = """nodes = "192.0.2.11:8171"
nodes_certificate = "c.pem"
nodes_key = "c.key"
nodes_authority = "ca.pem"
"""


def test_with_nodes_machines_on_different_hosts_may_have_the_same_address(tmp_path: Path) -> None:
    machine = (
        "- {{name: {0}, kind: standalone, machines: [{{name: {0}, address: {1}, host: {2}}}]}}"
    )
    first, second = machine.format("a", "10.0.0.1", "h1"), machine.format("b", "10.0.0.1", "h2")
    (tmp_path / "fleet.yaml").write_text(f"hosts: [h1, h2]\ngroups:\n{first}\n{second}\n")
    path = tmp_path / "forewarn.toml"
    path.write_text(f'fleet = "fleet.yaml"\n{NODES}')
    assert load(path, {})[1].fleet is not None
    path.write_text('fleet = "fleet.yaml"\n')
    with pytest.raises(SettingsError, match=r"10\.0\.0\.1"):
        load(path, {})


def test_events_of_a_service_last_until_their_machines_are_back(tmp_path: Path) -> None:
    assert load(written(tmp_path, ""), {})[1].rules.until_heard
    assert not Config().rules.until_heard


def test_with_nodes_guests_are_answered_elsewhere(tmp_path: Path) -> None:
    _, config = load(written(tmp_path, NODES), {})
    assert config.guest_addresses == ()
    assert config.nodes == NodeConnections(
        Address("192.0.2.11", 8171),
        Tls(tmp_path / "c.pem", tmp_path / "c.key"),
        tmp_path / "ca.pem",
    )
    assert config.rules.telling > 6 * SECOND  # the promise of a node that is silent
    assert load(written(tmp_path, ""), {})[1].rules.telling == 0


def test_the_node_on_this_host_connects_to_a_path_besides_those_on_other_hosts_or_alone(
    tmp_path: Path,
) -> None:
    path = 'nodes = "/run/nodes.sock"\n'
    _, config = load(written(tmp_path, path + 'nodes_host = "h1"'), {})
    assert (config.nodes, config.local_node) == (
        None,
        LocalConnection(Path("/run/nodes.sock"), "h1"),
    )
    assert config.guest_addresses == ()
    assert config.rules.telling > 6 * SECOND
    both = NODES.replace('"192.0.2.11:8171"', '["/run/nodes.sock", "192.0.2.11:8171"]')
    _, config = load(written(tmp_path, both), {})
    assert config.nodes is not None
    assert config.nodes.address == Address("192.0.2.11", 8171)
    assert config.local_node == LocalConnection(Path("/run/nodes.sock"), socket.gethostname())


def test_only_where_all_nodes_are_on_this_computer_a_guest_may_be_on_it(tmp_path: Path) -> None:
    guest = "machines: [{name: a, address: 127.0.0.1, host: h1}]"
    (tmp_path / "fleet.yaml").write_text(
        f"hosts: [h1]\ngroups: [{{name: a, kind: standalone, {guest}}}]"
    )
    path = 'fleet = "fleet.yaml"\nnodes = "/run/nodes.sock"\n'
    assert load(written(tmp_path, path), {})[1].fleet is not None
    (problem,) = problems(written(tmp_path, f'fleet = "fleet.yaml"\n{NODES}'))
    assert "'127.0.0.1' is a loopback address" in problem


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('nodes = "192.0.2.11:8171"', ":1: nodes needs nodes_certificate, nodes_key"),
        ('nodes_key = "c.key"', "nodes_key is only"),
        ('nodes = "nodes.sock"', ":1: nodes: 'nodes.sock' "),
        ('nodes = ["/a", "/b"]', ":1: nodes: give one address"),
        (f'nodes = "/{"x" * 107}"', ":1: nodes = /xxx"),
        ('nodes_host = "h1"', "nodes_host is only used with a path"),
        ('nodes = "/a"\nnodes_host = "a b"', "nodes_host = 'a b': "),
        ('nodes = "/a"\nnodes_key = "k"', "nodes_key is only used with an address"),
        (f'{NODES}metadata = "127.0.0.1:80"', ":5: metadata cannot"),
        (f'{NODES}metadata = "169.254.169.254:80"', ":5: metadata cannot"),
        (f"{NODES}faults = true", ":5: faults cannot"),
        (f"{NODES}observe = true", ":5: observe cannot"),
        (NODES.replace("192.0.2.11:8171", "0.0.0.0:8170"), ":1: nodes = 0.0.0.0:8170: "),
        (NODES.replace("192.0.2.11:8171", "here"), ":1: nodes: 'here' "),
    ],
)
def test_invalid_settings_for_nodes_are_refused(tmp_path: Path, text: str, says: str) -> None:
    (problem,) = problems(written(tmp_path, text))
    assert says in problem


TLS = 'tls_certificate = "c.pem"\ntls_key = "c.key"\n'


def test_the_api_for_azures_sdks_has_the_certificate_of_the_control_api(tmp_path: Path) -> None:
    _, config = load(written(tmp_path, TLS + 'arm = "127.0.0.1:8171"'), {})
    assert config.arm is not None
    assert config.arm == ArmListener(Address("127.0.0.1", 8171), config.tls)  # type: ignore[arg-type]
    assert load(written(tmp_path, TLS), {})[1].arm is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('arm = "127.0.0.1:8171"', ":1: arm = 127.0.0.1:8171: az "),
        (f'{TLS}arm = "here"', ":3: arm: 'here' "),
        (f'{TLS}arm = "0.0.0.0:8170"', ":3: arm = 0.0.0.0:8170: "),
        (f'{TLS}arm = "169.254.169.254:80"', ":3: arm = 169.254.169.254:80: "),
        (f'{NODES}{TLS}arm = "192.0.2.11:8171"', ":7: arm = 192.0.2.11:8171: "),
    ],
)
def test_an_invalid_address_for_azures_sdks_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    (problem,) = problems(written(tmp_path, text))
    assert says in problem


def test_the_secret_of_machines_identities_is_that_of_a_file(tmp_path: Path) -> None:
    arm = 'arm = "127.0.0.1:8171"\ntls_certificate = "c.pem"\ntls_key = "c.key"\n'
    identities = 'identities = "secret"\n'
    (problem,) = problems(written(tmp_path, arm + identities))
    assert "secret: No such file" in problem
    (tmp_path / "secret").write_text("s" * 31 + "\n")
    (problem,) = problems(written(tmp_path, arm + identities))
    assert "has 31 bytes" in problem
    (tmp_path / "secret").write_text("s" * 32 + "\n")
    assert load(written(tmp_path, arm + identities), {})[1].identities == b"s" * 32
    (problem,) = problems(written(tmp_path, identities))
    assert "set arm" in problem


def test_a_missing_or_too_large_file_is_refused(tmp_path: Path) -> None:
    gone = tmp_path / "gone.toml"
    assert problems(gone) == [f"{gone}: {os.strerror(errno.ENOENT)}"]
    file = written(tmp_path, "#" * (1024 * 1024 + 1))
    [problem] = problems(file)
    assert re.match(f"{file}: .*1,048,576 bytes", problem)


def test_the_secret_in_a_misspelt_variable_is_not_repeated() -> None:
    assert "fw_1_secret" not in " ".join(problems(None, {"FOREWARN_TOKN": "fw_1_secret"}))


# Lines.


def test_every_key_is_found_on_the_line_on_which_it_begins() -> None:
    text = (
        "# a\na = 1\n\nb = '''\n[not.a.table]\nc = 3\n'''\nd = [\n 1, # ]\n 2,\n]\n"
        '[t]\n"e f" = 1\ng.h = 2\ni = {j = 3}\n[[u]]\nv = 1\n[[u]]\nw = 2\n'
    )
    assert lines(text) == {
        ("a",): 2,
        ("b",): 4,
        ("d",): 8,
        ("t",): 12,
        ("t", "e f"): 13,
        ("t", "g"): 14,
        ("t", "g", "h"): 14,
        ("t", "i"): 15,
        ("t", "i", "j"): 15,
        ("u",): 16,
        ("u", "0"): 16,
        ("u", "1"): 18,
    }
    tomllib.loads(text)


# What is shipped, and what is written down.


def test_the_example_names_every_setting_at_its_default() -> None:
    text = EXAMPLE.read_text()
    raw = tomllib.loads(re.sub(r"^#(?=[a-z_]+ = |\[)", "", text, flags=re.MULTILINE))
    table = raw.pop("command")
    raw.pop("gates")
    raw.pop("notify")
    oidc = raw.pop("oidc")
    assert list(msgspec.convert(oidc, Oidc).problems()) == []
    for field in msgspec.structs.fields(Oidc):
        assert (
            field.required
            or field.name == "access"
            or oidc[field.name]
            == (list(field.default) if isinstance(field.default, tuple) else field.default)
        )
    fields = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    assert set(raw) == set(fields) - {"driver_options", "gates", "notify", "oidc"}
    theirs = {"state": "/var/lib/forewarn/forewarn.db"}
    for key, value in raw.items():
        assert value == theirs.get(key, fields[key] if fields[key] is not None else []), key
    defaults = {f.name: f.default for f in msgspec.structs.fields(CommandOptions) if not f.required}
    assert {key: table[key] for key in defaults} == defaults
    assert set(table) == {field.name for field in msgspec.structs.fields(CommandOptions)}


def test_the_example_can_be_used_as_it_is() -> None:
    output, _ = load(EXAMPLE, {})
    assert set(output.origins) == {"state"}


def test_settings_are_documented_as_reloaded_or_not() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()
    section = text.partition("### Reloading")[2].partition("\n## ")[0]
    taken, _, left = section.partition("only by a restart")
    left = left.partition(".")[0]
    every = {f.name for f in msgspec.structs.fields(Settings)} - {"driver_options"}
    of_driver = {f"command.{f.name}" for f in msgspec.structs.fields(CommandOptions)}
    every |= of_driver
    live = {*LIVE, *of_driver}
    assert set(re.findall(r"`([a-z_.]+)`", taken)) & every == live & every
    assert live <= every
    assert set(re.findall(r"`([a-z_.]+)`", left)) & every == every - live


@pytest.mark.parametrize(
    ("metadata", "control", "collides"),
    [
        ("127.0.0.1:80", "127.0.0.1:80", True),
        ("127.0.0.1:80", "localhost:80", True),
        ("0.0.0.0:80", "127.0.0.1:80", True),
        ("[::]:80", "127.0.0.1:80", True),
        ("0.0.0.0:80", "[::1]:80", False),
        ("127.0.0.1:80", "127.0.0.2:80", False),
        ("127.0.0.1:80", "127.0.0.1:81", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
    ],
)
def test_guests_and_operators_have_addresses_of_their_own(
    metadata: str, control: str, collides: bool
) -> None:
    assert collide(Address.parse(metadata), Address.parse(control)) is collides
