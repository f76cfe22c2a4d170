"""`forewarn config`: the command itself, and what it finds on the machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core.registry import ConfigurationPut
from forewarn.core.windows.model import MaintenanceConfiguration, Window
from forewarn.node.listening.unix_socket import open_unix_socket
from forewarn.node.preflight import machine
from forewarn.node.settings import LoadedSettings, Settings, config
from forewarn.store.port import Batch
from forewarn.store.sqlite.engine import SqliteStore
from helpers import forked_cli as forking
from helpers.certificates import Authority
from helpers.next_version import NEXT, THIS, write_state
from helpers.node_beside_control import socket_path
from helpers.serve_process import FOREWARN, environment, write_settings

RUNNER = CliRunner()


def run(*argv: str, env: dict[str, str] | None = None) -> Any:
    clean = {name: None for name in os.environ if name.startswith("FOREWARN_")}
    return RUNNER.invoke(app, ["config", *argv], env={**clean, **(env or {})})


def findings(**settings: Any) -> list[str]:
    """With what is wrong marked as such."""
    addresses = {"metadata": "127.0.0.1:0", "control": "127.0.0.1:0"}
    output = LoadedSettings(Settings(**addresses | settings))
    found = machine.findings(output, config(output), None)
    return [f"{'!' if one.grade == 'problem' else '?'} {one}" for one in found]


@pytest.fixture
def state(tmp_path: Path) -> str:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    return str(directory / "forewarn.db")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return certificate(tmp_path_factory.mktemp("pair"), days=365)


def certificate(directory: Path, days: int, begins: int = -1) -> tuple[str, str]:
    """Signed by somebody whose own certificate is not at hand."""
    key, signer = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "forewarn")])
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
    now = datetime.now(UTC)  # noqa: TID251 - certificates are about real time
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begins))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("a.example")]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    files = directory / "cert.pem", directory / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    files[1].chmod(0o600)
    return str(files[0]), str(files[1])


# The command.


def test_checking_usable_settings_succeeds_and_leaves_nothing(tmp_path: Path) -> None:
    """As a process: nothing is started, and nothing is left."""
    settings = write_settings(tmp_path)
    checked = forking.run(
        [*FOREWARN, "config", "check", "--config", settings],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.count("\n") == 1
    assert list((tmp_path / "state").iterdir()) == []


def test_problems_are_exit_code_1_and_warnings_are_not(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, 'histroy = "1d"\n')
    checked = run("check", "--config", str(settings))
    assert checked.exit_code == 1
    assert checked.stderr.startswith(f"forewarn: {settings}:6: histroy: ")
    assert checked.stderr.endswith("'history'?\n")
    settings = write_settings(tmp_path)
    settings.chmod(0o666)
    checked = run("check", "--config", str(settings))
    assert checked.exit_code == 0
    assert checked.stderr.startswith(f"warning: {settings}: can be written")


def test_the_report_of_a_check_is_available_as_json(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, 'tls_key = "k"\nthrottle = -1\n')
    checked = run("check", "--config", str(settings), "--json")
    assert checked.exit_code == 1
    reported = json.loads(checked.stdout)
    assert (reported["usable"], reported["warnings"], len(reported["problems"])) == (False, [], 2)


def test_every_setting_is_shown_with_where_it_comes_from(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, '[gates]\nwell = ["sh"]\n')
    env = {
        "FOREWARN_TRACES": "http://me:secret@collector:4318/v1",
        "FOREWARN_CONFIG": str(settings),
    }
    shown = run("show", "--json", env=env)
    assert shown.exit_code == 0
    found = {one["key"]: (one["value"], one["from"]) for one in json.loads(shown.stdout)}
    assert found["state"] == (str(tmp_path / "state/forewarn.db"), f"{settings}:3")
    assert found["gates.well"] == (["sh"], f"{settings}:7")
    assert found["history"] == ("90d", "default")
    assert found["traces"] == ("http://***@collector:4318/v1", "environment FOREWARN_TRACES")
    assert set(found) | {"gates", "driver_options"} >= set(Settings.__struct_fields__)
    table = run("show", env=env).stdout
    assert "secret" not in table + shown.stdout
    assert "history" in table


def test_an_unreadable_setting_is_named_and_nothing_is_shown(tmp_path: Path) -> None:
    shown = run("show", env={"FOREWARN_THROTTLE": "x"})
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "throttle" in shown.stderr


# The machine.


def test_directories_must_be_there_and_belong_to_the_service(tmp_path: Path, state: str) -> None:
    assert findings(state=state) == []
    (gone,) = findings(state=f"{tmp_path}/gone/x.db")
    assert gone.startswith(f"! state: the directory {tmp_path}/gone does ")
    (gone,) = findings(state=state, record=f"{tmp_path}/gone/x")
    assert gone.startswith(f"! record: the directory {tmp_path}/gone does ")
    (is_one,) = findings(state=str(tmp_path / "state"))
    assert is_one.startswith("! state:")
    Path(state).touch(0o644)
    assert any(
        line.startswith(f"? state: {state} can be read") and line.endswith(f": chmod 600 {state}")
        for line in findings(state=state)
    )
    Path(state).unlink()
    Path(state).parent.chmod(0o777)
    (writable,) = findings(state=state)
    assert "can be written" in writable


@pytest.mark.usefixtures("next_version")
def test_an_unusable_state_is_found_without_opening_it(state: str) -> None:
    write_state(THIS, Path(state))
    before = sorted(Path(state).parent.iterdir())
    (old,) = findings(state=state)
    assert old.startswith(f"! state: {state} has schema {THIS}, this version has {NEXT}")
    assert "forewarn upgrade" in old
    Path(state).write_text("something else")
    (other,) = findings(state=state)
    assert other.startswith(f"! state: {state}")
    assert sorted(Path(state).parent.iterdir()) == before  # it was only looked at


def test_the_certificate_for_nodes_must_be_of_their_authority(tmp_path: Path, state: str) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair = authority.issue("127.0.0.1")

    def found(authority: Path) -> list[str]:
        return findings(
            state=state,
            metadata=Settings().metadata,
            nodes="127.0.0.1:0",
            nodes_certificate=str(pair.certificate),
            nodes_key=str(pair.key),
            nodes_authority=str(authority),
        )

    assert found(authority.path) == []
    (other_issuer,) = found(other.path)
    assert other_issuer.startswith(f"! nodes_certificate: {pair.certificate} ")
    assert other_issuer.endswith(str(other.path))


def test_a_certificate_must_fit_its_key_and_be_valid(
    tmp_path: Path, state: str, pair: tuple[str, str]
) -> None:
    def found(certificate: str, key: str, **more: Any) -> list[str]:
        return findings(state=state, tls_certificate=certificate, tls_key=key, **more)

    assert found(*pair) == []
    (tmp_path / "other").mkdir()
    other = certificate(tmp_path / "other", days=3)
    (mismatch,) = found(pair[0], other[1])
    assert mismatch.startswith(f"! tls_certificate: {other[1]} is not ")
    assert mismatch.endswith(pair[0])
    (soon,) = found(*other)
    assert soon == f"? tls_certificate: {other[0]} expires in 2 days"
    (tmp_path / "old").mkdir()
    old = certificate(tmp_path / "old", days=-1, begins=-9)
    (expired,) = found(*old)
    assert expired.startswith(f"? tls_certificate: {old[0]} has expired")
    (tmp_path / "new").mkdir()
    new = certificate(tmp_path / "new", days=90, begins=9)
    (early,) = found(*new)
    assert early.startswith(f"? tls_certificate: {new[0]} is not valid")
    (missing,) = found(pair[0], f"{tmp_path}/gone")
    assert missing.startswith(f"! tls_certificate: {tmp_path}/gone: ")
    (tmp_path / "nonsense").write_text("nonsense")
    (nonsense,) = found(str(tmp_path / "nonsense"), pair[1])
    assert "cannot be used" in nonsense
    Path(pair[1]).chmod(0o640)  # the service's group may read it
    assert found(*pair) == []
    Path(other[1]).chmod(0o644)
    assert any(
        line.startswith("? tls_key: ") and line.endswith(f"chmod o= {other[1]}")
        for line in found(*other)
    )
    (name,) = found(*pair, control_names=["a.example", "b.example"])
    assert re.search(r"not valid for 'b\.example', .*a\.example", name)


def test_windows_in_unknown_time_zones_are_a_warning(state: str) -> None:
    assert findings(state=state) == []
    lost = Window(text="22:00-04:00 Mars/Base", opens=22 * 60, closes=4 * 60, zone="Mars/Base")
    put = ConfigurationPut(MaintenanceConfiguration(name="nights", windows=(lost,)))

    async def store_it() -> None:
        store = SqliteStore(Path(state))
        await store.open()
        await store.transact(lambda _: Batch(at=1, lost=0, puts=(put,)))
        await store.close()

    asyncio.run(store_it())
    (closed,) = findings(state=state)
    assert closed.startswith(f"? state: the window '{lost.text}' ")
    assert "'nights'" in closed
    assert "'Mars/Base'" in closed


def test_programs_writable_by_others_are_a_warning(tmp_path: Path, state: str) -> None:
    program = tmp_path / "carry"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    (warned,) = findings(state=state, gates={"well": [str(program)]})
    assert warned.startswith(f"? gate 'well': {program} can be written")


def test_addresses_the_machine_does_not_have_are_a_warning(state: str) -> None:
    output = LoadedSettings(Settings(state=state, metadata="169.254.1.2:80", control="127.0.0.1:0"))
    (warned, *_) = machine.findings(output, config(output), None)
    assert "add 169.254.1.2/32 dev lo" in warned.message


def test_an_arm_address_in_use_is_a_warning(state: str, pair: tuple[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arm = f"127.0.0.1:{taken.getsockname()[1]}"
        found = findings(state=state, arm=arm, tls_certificate=pair[0], tls_key=pair[1])
    assert [line for line in found if line.startswith(f"? arm: {arm} is in use")]


def test_every_metadata_address_is_checked_and_shown(state: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        second = f"127.0.0.1:{taken.getsockname()[1]}"
        addresses = ["127.0.0.1:0", second]
        output = LoadedSettings(Settings(state=state, metadata=addresses, control="127.0.0.1:0"))
        (warned,) = machine.findings(output, config(output), None)
    assert f"{second} is in use" in warned.message
    words = [word for address in addresses for word in ("--metadata", address)]
    shown = {row["key"]: row for row in json.loads(run("show", "--json", *words).stdout)}
    assert shown["metadata"]["value"] == addresses
    assert shown["metadata"]["from"] == "flag --metadata"
    (line,) = [at for at in run("show", *words).stdout.splitlines() if at.startswith("metadata ")]
    assert json.dumps(addresses, separators=(",", ":")) in line
    wrong = run("check", "--metadata", second, "--metadata", second)
    assert (wrong.exit_code, f"metadata: {second} is listed twice" in wrong.stderr) == (1, True)


def test_more_connections_than_open_files_are_a_warning(state: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        most = 1 << 30
    (warned,) = findings(state=state, max_connections=most)
    assert warned.startswith(f"? max_connections: {most} connections need")


def test_the_path_for_the_node_on_this_host_is_looked_at(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(path: Path) -> list[str]:
        output = LoadedSettings(Settings(state=state, control="127.0.0.1:0", nodes=str(path)))
        return [
            f"{'!' if one.grade == 'problem' else '?'} {one}"
            for one in machine.findings(output, config(output), None)
        ]

    with socket_path() as path:
        assert found(path) == []
        with open_unix_socket(path, "nodes"):
            assert found(path) == []
        assert found(path) == []  # it was left behind, and is replaced
        (other,) = found(path.parent)
        assert other.startswith(f"! nodes: nodes = {path.parent}: ")
        path.unlink()
        own = os.access
        monkeypatch.setattr(
            os, "access", lambda file, mode: file != path.parent and own(file, mode)
        )
        (closed,) = found(path)
        assert closed.startswith(f"? nodes: {path} cannot be created")
