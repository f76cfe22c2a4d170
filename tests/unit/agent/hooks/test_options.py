"""What a configuration may say of ready-made hooks, and what their program is given."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.agent.hooks import KINDS, __main__, contract, stages_of
from forewarn.agent.hooks.options import Notify, Systemd, Webhook, seconds

SECRET = "open-sesame"
CALL = {
    "hook": "mine",
    "stage": "prepare",
    "machine": "web_0",
    "seconds_left": 10.0,
    "event": {"id": "E", "type": "Reboot"},
}


def read(kind: str, options: dict[str, Any]) -> Any:
    return msgspec.convert(options, KINDS[kind].options)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("systemd", {"units": []}, "units is empty"),
        ("systemd", {"units": ["--force"]}, "'--force'"),
        ("systemd", {"units": ["app*"]}, "'app*'"),
        ("systemd", {"units": ["app", "app.service"]}, "twice"),
        ("systemd", {"units": ["app"], "timeout": "soon"}, "'soon'"),
        ("systemd", {"units": ["app"], "timeout": -1}, "number of seconds"),
        ("systemd", {"units": ["app"], "unit": "x"}, "unknown field `unit`"),
        ("haproxy", {"server": "web1"}, "'web1'"),
        ("haproxy", {"server": []}, "server is empty"),
        ("haproxy", {"server": "web/a; shutdown x"}, "not a server"),
        ("haproxy", {"server": "web/{name}"}, "only {machine} and {resource}"),
        ("haproxy", {"server": "web/a", "socket": "admin.sock"}, "absolute path"),
        ("haproxy", {"server": "web/a", "socket": "127.0.0.1:0"}, "127.0.0.1:9999"),
        ("haproxy", {"server": "web/a", "then": "stop"}, "'stop'"),
        ("kubernetes", {"taint": "forewarn/maintenance"}, "not a taint"),
        ("kubernetes", {"taint": "a=b:NoRun"}, "not a taint"),
        ("kubernetes", {"server": "http://h"}, "https://10.0.0.1:6443"),
        ("kubernetes", {"server": "https://me:secret@h"}, "not a server"),
        ("kubernetes", {"conditions": "all"}, "'all'"),
        ("kubernetes", {"wait_ready": "soon"}, "'soon'"),
        ("log", {"identifier": "my agent"}, "1 to 48"),
        ("log", {"address": "192.0.2.1:514"}, 'needs to = "syslog"'),
        ("log", {"stages": ["done"]}, "'done'"),
        ("webhook", {"url": f"ftp://{SECRET}"}, "valid URL"),
        ("webhook", {"url": f"http://h/{SECRET}\r\nX: y"}, "valid URL"),
        ("webhook", {"url": "http://h/", "headers": {"X": f"{SECRET}\r\n"}}, "not valid"),
        ("webhook", {"url": "http://h/", "headers": {"Host": SECRET}}, "sets itself"),
        ("webhook", {"url": "http://h/", "ca": "/ca.pem"}, "url with https"),
        ("webhook", {"url": "http://h/", "timeout": 0}, "more than 0"),
        ("notify", {}, "either urls or urls_file"),
        ("notify", {"urls": [SECRET], "urls_file": "/x"}, "either urls or urls_file"),
    ],
)
def test_invalid_options_are_refused_without_repeating_secrets(
    kind: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        read(kind, options)
    assert says in str(refused.value)
    assert SECRET not in str(refused.value)


def test_options_have_sensible_defaults() -> None:
    units = Systemd(units=["app", "db@1", "x.timer"])
    assert units.names() == ["app.service", "db@1.service", "x.timer"]
    assert units.scope == "system"
    haproxy = read("haproxy", {"server": "web/{machine}", "socket": "[::1]:9999"})
    assert (seconds(haproxy.drain), haproxy.then) == (30.0, "maint")
    assert seconds(2.5) == 2.5


def test_stages_are_those_of_the_kind_unless_the_options_name_others() -> None:
    changing = {"prepare", "undo"}
    reporting = {"prepare", "started", "finished", "withdrawn"}
    found = {name: set(kind.stages) for name, kind in KINDS.items()}
    expected = {
        "haproxy": changing,
        "kubernetes": reporting | changing | {"announced"},
        "systemd": changing,
        "log": reporting,
        "notify": reporting,
        "webhook": reporting,
    }
    assert found | expected == found
    assert stages_of("log", read("log", {"stages": ["undo"]})) == {"undo"}
    assert stages_of("webhook", Webhook(url="http://h/")) == reporting


def test_the_kinds_are_known_without_what_they_need() -> None:
    script = (
        "import sys, forewarn.agent.hooks; heavy = {'typer', 'rich', 'asyncio', 'ssl', 'socket',"
        " 'subprocess', 'http', 'urllib', 'apprise'}; print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, check=True)
    assert json.loads(found.stdout.decode().replace("'", '"')) in ([], ["urllib"])  # of pathlib


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, output: str
) -> tuple[int, str]:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(output.encode())))
    return __main__.main([kind]), capsys.readouterr().out


def test_an_invalid_call_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = json.dumps(CALL)
    status, message = run(monkeypatch, capsys, "smtp", good)
    assert (status, message.count("\n")) == (2, 1)
    assert ", ".join(sorted(KINDS)) in message
    monkeypatch.setenv("FOREWARN_OPTIONS", '{"urls":["x"],"url":1}')
    status, message = run(monkeypatch, capsys, "notify", good)
    assert (status, message.count("\n")) == (2, 1)
    assert re.match("FOREWARN_OPTIONS .*notify: .*`url`", message)
    monkeypatch.setenv("FOREWARN_OPTIONS", "{}")
    for wrong in ("", "[]", '{"hook":"mine"}', json.dumps(CALL | {"stage": "later"})):
        status, message = run(monkeypatch, capsys, "log", wrong)
        assert (status, message.count("\n")) == (2, 1)
        assert message.startswith("standard input ")
    monkeypatch.setenv("FOREWARN_OPTIONS", '{"units":["app"]}')
    status, message = run(monkeypatch, capsys, "systemd", json.dumps(CALL | {"stage": "started"}))
    assert status == 0
    assert message.endswith(" at started\n")


def test_an_internal_error_names_its_place_and_no_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from forewarn.agent.hooks import webhook

    def broken(*given: Any) -> list[str]:
        raise LookupError(SECRET)

    monkeypatch.setattr(webhook, "act", broken)
    monkeypatch.setenv("FOREWARN_OPTIONS", '{"url":"http://h/"}')
    status, message = run(monkeypatch, capsys, "webhook", json.dumps(CALL))
    assert (status, message.count("\n")) == (1, 1)
    assert "LookupError in " in message
    assert SECRET not in message


def test_without_a_state_directory_undo_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FOREWARN_STATE", raising=False)
    monkeypatch.setenv("FOREWARN_OPTIONS", '{"units":["app"]}')
    status, message = run(monkeypatch, capsys, "systemd", json.dumps(CALL | {"stage": "undo"}))
    assert status == 2
    assert "FOREWARN_STATE" in message


def test_saved_values_are_loaded_until_forgotten(tmp_path: Path) -> None:
    call = msgspec.convert(CALL, contract.Call)
    first, second = (
        contract.Run(call, b"", {"FOREWARN_STATE": str(tmp_path), "FOREWARN_SECONDS_LEFT": left})
        for left in ("3600", "")
    )
    assert second.load("x", list[str]) is None
    first.save("x", ["a"])
    assert second.load("x", list[str]) == ["a"]
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(contract.Failure, match="is damaged"):
        second.load("x", list[str])
    second.forget("x")
    assert first.load("x", list[str]) is None
    assert 3_000 < first.left() <= 3_599  # the environment says until when the command may run
    assert 0 < second.left() <= 9  # else the call; a second is left for saying what happened


def test_the_key_is_the_same_for_every_attempt_at_a_stage() -> None:
    def key(**other: Any) -> str:
        return contract.Run(msgspec.convert(CALL | other, contract.Call), b"", {}).key()

    assert key(attempt=1) == key(attempt=2)
    different = [{"stage": "started"}, {"machine": "b"}, {"hook": "b"}]
    event = {"event": {"id": "F", "type": "Reboot"}}
    assert len({key(), *(key(**other) for other in different), key(**event)}) == 5


def test_a_missing_apprise_is_reported_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    [problem] = KINDS["notify"].check(Notify(urls=["json://127.0.0.1/"]))
    assert "pip install 'forewarn[notify]'" in problem


def test_a_machine_without_systemd_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [problem] = KINDS["systemd"].check(Systemd(units=["app"]))
    assert problem.startswith("systemctl ")
