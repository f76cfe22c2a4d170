"""`forewarn config check` and `forewarn serve` agree: what is fatal to the one is refused by the
other, and what the unit makes right is fatal to neither. And `config show` keeps secrets.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.node.preflight import machine
from forewarn.node.settings import LoadedSettings, Settings, config
from helpers.certificates import Authority
from helpers.forked_cli import run
from helpers.serve_process import FOREWARN, environment, running_service, write_settings
from helpers.waiting import LIMIT

RUNNER = CliRunner()


def typed(*argv: object, env: dict[str, str] | None = None) -> Any:
    clean = {name: None for name in os.environ if name.startswith("FOREWARN_")}
    return RUNNER.invoke(app, [str(word) for word in argv], env={**clean, **(env or {})})


def findings(**settings: Any) -> list[str]:
    printed = LoadedSettings(
        Settings(**{"metadata": "127.0.0.1:0", "control": "127.0.0.1:0", **settings})
    )
    found = machine.findings(printed, config(printed), None)
    return [f"{'!' if one.grade == 'problem' else '?'} {one}" for one in found]


def both(tmp_path: Path, settings: Path) -> tuple[str, str]:
    """What each says, refusing."""
    printed = []
    for words in (["config", "check"], ["serve"]):
        ran = run(
            [*FOREWARN, *words, "--config", settings],
            capture_output=True,
            text=True,
            env=environment(tmp_path),
            timeout=LIMIT,
        )
        assert ran.returncode == 1, ran
        printed.append(ran.stderr)
    return printed[0], printed[1]


@contextlib.contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# What both refuse.


def test_operators_beyond_loopback_need_a_token_in_the_state(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, "allow_plain_control = true\n")
    settings.write_text(settings.read_text().replace('control = "127.0.0.1', 'control = "0.0.0.0'))
    state = tmp_path / "state/forewarn.db"
    for says in both(tmp_path, settings):
        assert "reached from other machines" in says
        assert f"--role admin --state {state}" in says
    created = typed("token", "create", "a", "--role", "admin", "--state", state)
    assert created.exit_code == 0, created.output
    checked = typed("config", "check", "--config", settings)
    assert (checked.exit_code, checked.stderr) == (0, "")
    revoked = typed("token", "revoke", "a", "--state", state, "--force")
    assert revoked.exit_code == 0, revoked.output
    checked = typed("config", "check", "--config", settings)
    assert checked.exit_code == 0
    assert "valid admin token" in checked.stderr


def test_azures_sdks_beyond_loopback_need_a_token_in_the_state(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("127.0.0.1")
    tls = f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
    settings = write_settings(tmp_path, tls + 'arm = "0.0.0.0:0"\n')
    check, serve = both(tmp_path, settings)
    for says in (check, serve):
        assert "arm" in says
        assert f"--role admin --state {tmp_path}/state/forewarn.db" in says


def test_guests_and_operators_do_not_share_an_address(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    with listening() as port:
        pass
    text = settings.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}")
    settings.write_text(text)
    check, serve = both(tmp_path, settings)
    assert check == serve
    assert f"control = 127.0.0.1:{port}: " in check


def test_machines_on_loopback_are_refused_where_guests_come_from_elsewhere(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    text = settings.read_text().replace('metadata = "127.0.0.1:0"', 'metadata = "169.254.1.2:80"')
    settings.write_text(text)
    check, serve = both(tmp_path, settings)
    assert check == serve
    for line, address in ((5, "127.0.0.1"), (6, "127.0.0.2")):
        assert f"fleet.yaml:{line}: groups[0].machines" in check
        assert f"'{address}'" in check


def test_a_damaged_state_is_found_unless_a_service_is_at_work_on_it(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    state = tmp_path / "state/forewarn.db"
    with running_service(tmp_path, settings):
        checked = typed("config", "check", "--config", settings)
        assert (checked.exit_code, checked.stderr) == (0, "")
    with state.open("r+b") as file:  # the root of some table, on a page of its own
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)
    check, serve = both(tmp_path, settings)
    assert f"{state} is damaged (" in check
    assert check.partition("state: ")[2] == serve.removeprefix("forewarn: ")


def test_a_file_of_another_kind_in_place_of_a_setting_is_refused(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, f'record = "{tmp_path}/state"\n')
    check, serve = both(tmp_path, settings)
    assert f"{tmp_path}/state is a directory" in check
    assert f"{tmp_path}/state: " in serve


# What may be as it is meant to be.


def test_a_port_in_use_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    with listening() as port:
        (warned,) = findings(state=f"{tmp_path}/state/x.db", control=f"127.0.0.1:{port}")
    assert warned.startswith(f"? control: 127.0.0.1:{port} is in use.")
    assert findings(state=f"{tmp_path}/state/x.db", control=f"127.0.0.1:{port}") == []


def test_a_port_in_use_by_the_service_itself_is_no_warning(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    with running_service(tmp_path, settings) as service:
        control = service.control.removeprefix("http://")
        checked = typed("config", "check", "--config", settings, "--control", control)
    assert (checked.exit_code, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("settings", "mark"),
    [
        ({"state": "/var/lib/forewarn-nowhere/forewarn.db"}, "?"),
        ({"state": "/var/lib/forewarn-nowhere/deeper/forewarn.db"}, "!"),
        ({"state": "/nowhere/forewarn.db"}, "!"),
        ({"state": "/run/forewarn-nowhere/forewarn.db"}, "!"),
        ({"record": "/run/forewarn-nowhere/record"}, "!"),
    ],
)
def test_missing_directories_that_the_unit_creates_are_only_a_warning(
    tmp_path: Path, settings: dict[str, Any], mark: str
) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (found,) = findings(**{"state": f"{tmp_path}/state/x.db", **settings})
    key = next(iter(settings))
    assert found.startswith(f"{mark} {key}: the directory /")
    assert ("systemd unit" in found) is (mark == "?")


# Flags.


def test_check_and_show_take_what_serve_takes(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    flags = ("--control", "nowhere", "--state", "x.db")
    checked = typed("config", "check", "--config", settings, *flags)
    assert checked.exit_code == 1
    assert "--control: control: 'nowhere' " in checked.stderr
    shown = typed("config", "show", "--config", settings, *flags, "--json")
    found = {one["key"]: (one["value"], one["from"]) for one in json.loads(shown.stdout)}
    assert found["control"] == ("nowhere", "flag --control")
    assert found["state"] == ("x.db", "flag --state")
    assert found["log"] == ("json", f"{settings}:5")


# Secrets.


SECRETS = """\
driver = "command"
[command]
program = ["sh", "--password", "hush-1", "--key=hush-2"]
[gates]
well = ["sh", "-c", "curl http://x/?token=hush-3"]
"""


def test_arguments_of_programs_are_shown_only_on_request(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, SECRETS)
    for form in ((), ("--json",)):
        shown = typed("config", "show", "--config", settings, *form)
        assert shown.exit_code == 0, shown.output
        assert "hush" not in shown.output
        assert "command.program" in shown.output
        more = typed("config", "show", "--config", settings, "--arguments", *form).output
        assert "hush-1" in more
        assert "hush-2" in more
        assert "hush-3" not in more  # what stands in an address never is
    values = {one["key"]: one["value"] for one in json.loads(shown.stdout)}
    assert values["command.program"] == ["sh", "***", "***", "***"]
    assert values["gates.well"] == ["sh", "***", "***"]


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("http://collector:4318/v1", "http://collector:4318/v1"),
        ("http://a:hush@collector:4318/v1", "http://***@collector:4318/v1"),
        ("http://a:hu@sh@collector/v1", "http://***@collector/v1"),
        ("http://a:hu/sh@collector/v1", "http://***@collector/v1"),
        ("http://c/v1?api-key=hush&tenant=hush", "http://c/v1?api-key=***&tenant=***"),
        ("http://c/v1?hush", "http://c/v1?***"),
        ("http://c/v1?k=hush#hush", "http://c/v1?k=***#***"),
    ],
)
def test_secrets_in_urls_are_never_shown(printed: str, shown: str) -> None:
    ran = typed("config", "show", "--json", "--arguments", env={"FOREWARN_TRACES": printed})
    values = {one["key"]: one["value"] for one in json.loads(ran.stdout)}
    assert values["traces"] == shown


def test_an_unreadable_command_in_the_environment_is_not_repeated() -> None:
    for name in ("FOREWARN_COMMAND__PROGRAM", "FOREWARN_GATES__well"):
        refused = typed("config", "check", env={name: "curl, hush"})
        assert refused.exit_code == 1
        assert name in refused.stderr
        assert "hush" not in refused.output
