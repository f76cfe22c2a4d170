"""The commands, as an operator or developer types them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient
from forewarn.core.events import EventType, Source
from forewarn.testing import SAMPLE, Service
from helpers.forked_cli import Forked, run
from helpers.process import Running
from helpers.waiting import LIMIT

FOREWARN = [sys.executable, "-m", "forewarn"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        yield service


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        yield service


def typed(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--url", service.control_url])


def reported(service: Service, *words: str) -> Any:
    result = typed(service, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_machine_list_has_the_metadata_url_of_each_machine(shared: Service) -> None:
    machines = reported(shared, "machine", "list")
    assert len(machines) == 11
    first = machines[0]
    assert (first["name"], first["group"]) == ("jumpbox", "jumpbox")
    assert first["metadata_url"] == shared.url("jumpbox")
    for machine in machines:
        url = f"{machine['metadata_url']}/metadata/instance/compute/name"
        request = urllib.request.Request(
            f"{url}?api-version=2021-02-01&format=text", headers={"Metadata": "true"}
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.read().decode() == machine["name"]


@pytest.mark.parametrize(
    "words",
    [
        ("machine", "list"),
        ("machine", "show", "web_0"),
        ("group", "list"),
        ("group", "show", "web"),
        ("event", "list"),
        ("event", "list", "--all"),
        ("clock", "show"),
    ],
)
def test_every_listing_is_available_as_text_and_as_json(
    shared: Service, words: tuple[str, ...]
) -> None:
    page = typed(shared, *words)
    assert page.exit_code == 0
    assert page.stdout
    assert "{" not in page.stdout
    reported(shared, *words)


def test_an_event_is_followed_from_schedule_to_its_end(service: Service) -> None:
    service.get("web_0")
    event = reported(
        service,
        *("event", "schedule", "Freeze", "web_0", "web_2", "--notice", "20m"),
        *("--description", "Host server is undergoing maintenance.", "--duration", "9"),
    )
    assert (event["status"], event["machines"]) == ("Scheduled", ["web_0", "web_2"])
    (shown,) = service.document("web_1")["Events"]
    assert shown["DurationInSeconds"] == 9
    explained = typed(service, "event", "explain", event["id"]).stdout
    assert "- notice: " in explained
    assert "seen by web_1" in explained
    approved = reported(service, "event", "approve", event["id"][:8], "--yes")
    assert approved["status"] == "Started"
    reported(service, "clock", "advance", "5m")
    over = reported(service, "event", "show", event["id"])
    assert (over["status"], over["ending"]) == ("Finished", "carried out")
    assert reported(service, "event", "list") == []
    assert [e["id"] for e in reported(service, "event", "list", "--all")] == [event["id"]]


def test_not_before_may_be_an_absolute_time(service: Service) -> None:
    words = ("event", "schedule", "Reboot", "web_0", "--not-before", "2027-01-16T00:00:00Z")
    assert reported(service, *words)["not_before"] == "2027-01-16T00:00:00Z"


def test_restart_and_redeploy_raise_events_of_source_user(service: Service) -> None:
    service.get("sql-0")
    for verb, type in (("restart", "Reboot"), ("redeploy", "Redeploy")):
        event = reported(service, "machine", verb, "sql-0")
        assert (event["type"], event["source"]) == (type, "User")
        assert (event["status"], event["duration"]) == ("Scheduled", -1)


def test_a_restart_in_a_group_that_is_not_enabled_is_unannounced(service: Service) -> None:
    result = typed(service, "machine", "restart", "sql-1")
    assert "not enabled" in result.stderr
    assert "unannounced" in result.stderr
    (event,) = reported(service, "event", "list", "--group", "sql")
    assert (event["status"], event["unannounced"], event["listed"]) == ("Started", True, False)
    service.get("sql-1")
    assert "Started, unannounced" in typed(service, "event", "list").stdout
    assert "Started, unannounced" in typed(service, "event", "show", event["id"]).stdout
    explained = typed(service, "event", "explain", event["id"]).stdout
    assert "unannounced: " in explained


def test_cancel_withdraws_an_event(service: Service) -> None:
    service.get("web_0")
    event = reported(service, "event", "schedule", "Reboot", "web_0")
    assert reported(service, "event", "cancel", event["id"])["status"] == "Withdrawn"
    assert service.document("web_0")["Events"] == []


def test_a_group_can_be_disabled_on_request(service: Service) -> None:
    service.get("web_0")
    assert reported(service, "group", "show", "web")["enabled"] is True
    assert reported(service, "group", "disable", "web")["enabled"] is False
    assert service.document("web_0")["DocumentIncarnation"] == 1


def test_an_evicted_machine_is_listed_as_gone_and_can_be_restored(service: Service) -> None:
    reported(service, "event", "schedule", "Preempt", "web_2")
    reported(service, "clock", "advance", "2m")
    assert reported(service, "machine", "show", "web_2")["gone"] == "evicted"
    assert service.get("web_2").status == 404
    assert reported(service, "machine", "restore", "web_2")["gone"] == ""
    assert service.get("web_2").status == 200


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("event schedule Reboot web_9", "'web_9'"),
        ("event schedule Reboot web_0 sql-0", "one group"),
        ("event schedule Reboot web_0 web_1", "one update domain"),
        ("event schedule Reboot web_0 web_0", "'web_0' twice"),
        ("event schedule Explode web_0", ", ".join(type.value for type in EventType)),
        ("event schedule Reboot web_0 --notice 5m", "--short-notice"),
        ("event schedule Reboot web_0 --notice 1000d", "(90 d)"),
        ("event schedule Reboot web_0 --not-before 2020-01-01T00:00:00Z", "in the past"),
        ("event schedule Reboot web_0 --not-before 2099-01-01T00:00:00Z", "too far"),
        ("event schedule Reboot web_0 --notice 1h --not-before 2027-01-16T00:00:00Z", "not both"),
        ("event schedule Reboot web_0 --duration -2", "at least -1"),
        ("event schedule Reboot web_0 --source Aliens", ", ".join(one.value for one in Source)),
        ("event schedule Freeze web_0 --source User", "Reboot or Redeploy"),
        ("event schedule Reboot web_0 --source User --duration 5", "duration"),
        (f"event schedule Reboot web_0 --description {'x' * 1025}", "at most 1024"),
        ("event show nope", "no event 'nope'"),
        ("event cancel nope", "no event 'nope'"),
        ("event approve nope", "no event 'nope'"),
        ("event explain nope", "no event 'nope'"),
        ("machine show nope", "no machine 'nope'"),
        ("machine restart nope", "no machine 'nope'"),
        ("machine restore web_0", "evicted or deleted"),
        ("group show wep", "did you mean 'web'?"),
        ("group disable nope", "no group 'nope'"),
        ("machine list --group wbe", "no group 'wbe'; "),
        ("event list --group wbe", "no group 'wbe'; "),
        ("event list --group wbe --all", "no group 'wbe'; "),
    ],
)
def test_a_refused_command_prints_one_line_and_changes_nothing(
    shared: Service, words: str, says: str
) -> None:
    before = reported(shared, "event", "list", "--all"), reported(shared, "machine", "list")
    result = typed(shared, *words.split())
    assert result.exit_code == 1
    assert result.stdout == ""
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert (
        reported(shared, "event", "list", "--all"),
        reported(shared, "machine", "list"),
    ) == before


def test_an_event_that_is_over_can_be_neither_approved_nor_cancelled(service: Service) -> None:
    event = reported(service, "event", "schedule", "Reboot", "web_0")
    reported(service, "event", "cancel", event["id"])
    for verb in ("approve", "cancel"):
        result = typed(service, "event", verb, event["id"])
        assert result.exit_code == 1
        assert "is over (cancelled by operator" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        "event schedule",
        "event schedule Reboot",
        "group scale-in web",
        "group scale-in web --count 1 --to 1",
        "event schedule Reboot web_0 --notice soon",
        "event schedule Reboot web_0 --not-before soon",
        "event show",
        "clock advance",
        "clock advance backwards",
        "nonsense",
    ],
)
def test_wrong_usage_is_exit_code_2(shared: Service, words: str) -> None:
    result = CliRunner().invoke(app, words.split(), env={"FOREWARN_URL": shared.control_url})
    assert result.exit_code == 2


def test_a_group_that_is_no_more_keeps_its_past_events(service: Service) -> None:
    event = reported(service, "event", "schedule", "Reboot", "jumpbox")
    reported(service, "event", "cancel", event["id"])
    client = ControlClient(service.control_url)
    fleet = client.apply(b"groups: [{name: g, kind: standalone, machines: [{name: m}]}]")
    assert fleet.groups.removed
    past = reported(service, "event", "list", "--group", "jumpbox", "--all")
    assert [one["id"] for one in past] == [event["id"]]
    assert "no group 'jumpbox'" in typed(service, "event", "list", "--group", "jumpbox").stderr


def test_lists_and_single_objects_show_the_same_fields(service: Service) -> None:
    for machine in ("web_0", "web_2", "jumpbox"):
        reported(service, "event", "schedule", "Reboot", machine)
    host = next(host["name"] for host in reported(service, "host", "list") if host["machines"])
    reported(service, "host", "maintain", host)
    for what in ("machine", "host"):
        listed = reported(service, what, "list")
        assert any(one["events"] for one in listed)
        assert listed == [reported(service, what, "show", one["name"]) for one in listed]


HOSTILE = "a\x1b[2J\nb\x9bc\u202ed"


def test_control_characters_in_texts_are_escaped(service: Service) -> None:
    event = reported(service, "event", "schedule", "Reboot", "web_0", "--description", HOSTILE)
    assert event["description"] == HOSTILE
    reported(service, "event", "cancel", event["id"])
    host = reported(service, "host", "list")[0]["name"]
    reported(service, "host", "degrade", host, "--note", HOSTILE)
    pages = ["event show " + event["id"], "host show " + host, "history"]
    shown = [typed(service, *page.split()).output for page in pages]
    assert all(r"a\x1b[2J\nb\x9bc\u202ed" in page for page in shown)
    shown += [typed(service, "machine", "show", HOSTILE).output]
    shown += [typed(service, *page.split(), "--json").output for page in pages]
    assert not {"\x1b", "\x9b", "\u202e"} & set("".join(shown))
    assert r"no machine 'a\x1b[2J\nb\x9bc\u202ed'" in shown[3]


@pytest.mark.parametrize("words", ["machine list", "machine list --json", "history --json"])
def test_output_to_a_full_disk_fails_with_one_line(shared: Service, words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(
            [*FOREWARN, *words.split(), "--url", shared.control_url],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert os.strerror(errno.ENOSPC) in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_service_a_command_names_the_url_or_forewarn_dev(tmp_path: Path) -> None:
    alone = {"XDG_RUNTIME_DIR": str(tmp_path)}
    result = CliRunner().invoke(app, ["machine", "list"], env=alone)
    assert result.exit_code == 1
    assert "forewarn dev" in result.stderr
    result = CliRunner().invoke(app, ["machine", "list", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "http://127.0.0.1:1" in result.stderr


def started(*words: str, env: dict[str, str] | None = None) -> Running:
    process = Forked(
        [*FOREWARN, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    return Running(process, words)


def urls(running: Running) -> dict[str, str]:
    ready, _, rest = running.line().partition(" ")
    assert ready == "ready"
    found: dict[str, str] = json.loads(rest)
    return found


ANY_PORT = ("--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0")


def test_dev_is_found_by_other_commands_and_prints_every_visible_change(tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    dev = started("dev", "--clock", "virtual", "--as", "web_1", *ANY_PORT, env=env)
    found = urls(dev)

    def run(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"], env=env)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    where = f"{found['metadata']}/metadata/instance/compute/name?api-version=2021-02-01&format=text"
    request = urllib.request.Request(where, headers={"Metadata": "true"})
    with urllib.request.urlopen(request) as answer:
        assert answer.read() == b"web_1"
    for type, machine in (("Reboot", "web_0"), ("Freeze", "web_1")):
        run("event", "approve", run("event", "schedule", type, machine)["id"], "--yes")
    run("clock", "advance", "30m")
    assert run("event", "list") == []
    assert dev.stop() == 0
    printed = "".join(dev.stderr)
    assert "curl -H Metadata:true 'http://127.0.1.9:" in printed
    for status in ("Scheduled", "Started", "Finished"):
        assert f"{status} Reboot of web_0" in printed
    assert re.search("Freeze of web_1 .*operator, .*wait", printed)
    assert list((tmp_path / "forewarn").iterdir()) == []


def test_a_sped_up_service_prints_its_speed_and_warns_of_short_notices(tmp_path: Path) -> None:
    dev = started("dev", "--speed", "60", *ANY_PORT, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    control = urls(dev)["control"]
    result = CliRunner().invoke(app, ["event", "list", "--url", control])
    assert "speed 60: " in result.stderr
    second = run(
        [
            *FOREWARN,
            "dev",
            "--metadata",
            "127.0.0.1:0",
            "--control",
            control.removeprefix("http://"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert second.returncode == 1
    assert f"(process {dev.process.pid})" in second.stderr
    result = CliRunner().invoke(app, ["event", "schedule", "Preempt", "web_2", "--url", control])
    assert "notice is only" in result.stderr
    assert dev.stop() == 0
    printed = "".join(dev.stderr)
    assert "speed 60: " in printed
    assert "Preempt has only 0.5 s" in printed
    assert "Reboot has only" not in printed


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("dev --speed 0", 2, "from 0.01 to"),
        ("dev --clock lunar", 2, "'real' or 'virtual'"),
        ("dev --clock virtual --speed 2", 2, "with a virtual clock"),
        ("dev --as nobody", 1, "unknown machine"),
        ("dev --fleet /nowhere.yaml", 1, "/nowhere.yaml"),
        ("dev --metadata 10.1.2.3:80", 1, "loopback"),
        ("dev --metadata nowhere", 2, "not HOST:PORT"),
        ("serve --fleet /nowhere.yaml", 1, "/nowhere.yaml"),
        ("serve --config /nowhere.toml", 1, "/nowhere.toml"),
    ],
)
def test_a_service_that_cannot_start_names_the_option_or_file(
    words: str, status: int, says: str
) -> None:
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == status
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["dev", "--metadata", f"127.0.0.1:{port}", "--control", "127.0.0.1:0"]
        done = run([*FOREWARN, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is in use" in done.stderr
    assert done.stdout == ""


FLEET = "groups: [{name: jump, kind: standalone, machines: [{name: jump, address: 127.0.0.1}]}]"


def test_serve_knows_guests_by_their_source_address(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        'fleet = "fleet.yaml"\nstate = "state.db"\nrecord = "trace.jsonl"\n'
        'metadata = "127.0.0.1:0"\ncontrol = "127.0.0.1:0"\n'
    )
    serving = started("serve", "--config", str(settings), env={"XDG_RUNTIME_DIR": str(tmp_path)})
    found = urls(serving)
    port = int(found["metadata"].rpartition(":")[2])
    target = "/metadata/scheduledevents?api-version=2020-07-01"
    for source, status in (("127.0.0.1", b"200"), ("127.0.0.2", b"404")):
        with socket.create_connection(("127.0.0.1", port), source_address=(source, 0)) as guest:
            guest.sendall(f"GET {target} HTTP/1.0\r\nMetadata: true\r\n\r\n".encode())
            assert guest.recv(4096).split()[1] == status
    second = run(
        [*FOREWARN, "serve", "--config", str(settings)], capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert f"process {serving.process.pid}" in second.stderr
    serving.process.send_signal(signal.SIGINT)
    assert serving.wait() == 0
    judged = CliRunner().invoke(app, ["conformance", str(tmp_path / "trace.jsonl")])
    assert judged.exit_code == 0, judged.output
    assert "no promise broken" in judged.stdout


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('metadata = "0.0.0.0:80"', "allow_other_addresses"),
        ('control = "192.168.1.1:80"', "tls_certificate"),
        ('fleat = "x"', "'fleet'?"),
        ('silence = "soon"', "silence: 'soon'"),
        ("throttle = -1", "throttle"),
        ("= 1", "Invalid"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "forewarn.toml").write_text(f'fleet = "fleet.yaml"\n{line}\n')
    result = CliRunner().invoke(app, ["serve", "--config", str(tmp_path / "forewarn.toml")])
    assert result.exit_code == 1
    assert says in result.stderr


def test_judge_reports_what_was_broken(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    record = {
        "kind": "exchange",
        "asked": 1.0,
        "t": 2.0,
        "machine": "m",
        "method": "GET",
        "target": "/metadata/scheduledevents?api-version=2020-07-01",
        "headers": [["Metadata", "true"]],
        "status": 200,
        "answer": '{"DocumentIncarnation":"1","Events":[]}',
    }
    trace.write_text(json.dumps(record) + "\n")
    result = CliRunner().invoke(app, ["conformance", str(trace)])
    assert result.exit_code == 1
    assert "incarnation-form" in result.stdout
    listed = CliRunner().invoke(app, ["conformance", str(trace), "--json"])
    assert json.loads(listed.stdout)["findings"][0]["rule"] == "incarnation-form"
    assert CliRunner().invoke(app, ["conformance", str(tmp_path / "none")]).exit_code == 1
    assert "early-start" in CliRunner().invoke(app, ["conformance", "--rules"]).stdout


SERVER_PACKAGES = {"litestar", "sqlalchemy", "alembic", "uvicorn", "uvloop", "structlog", "yaml"}
USED_BY_TYPER = {"pydantic"}  # to convert values of types that `cli/values.py` does not know


@pytest.mark.parametrize(
    ("words", "others"),
    [
        ("--version", {"rich", "msgspec", "http.client", "forewarn.cli.output"}),
        ("--help", {"forewarn.cli.commands.event", "forewarn.core.deciding.decide"}),
        (
            "event list --limit 5 --url http://127.0.0.1:1",
            {"rich", "asyncio", "forewarn.core.deciding"},
        ),
        ("machine list --url http://127.0.0.1:1", {"rich", "forewarn.verdict"}),
        ("conformance --rules", {"asyncio"}),
    ],
)
def test_a_command_imports_nothing_that_it_does_not_need(words: str, others: set[str]) -> None:
    script = (
        "import json, sys, forewarn.cli.app\n"
        "try: forewarn.cli.app.app()\n"
        "finally: sys.stderr.write(f'\\n{json.dumps(list(sys.modules))}')\n"
    )
    argv = [sys.executable, "-c", script, *words.split()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    imported = set(json.loads(done.stderr.splitlines()[-1]))
    assert "typer" in imported
    assert not imported & (SERVER_PACKAGES | USED_BY_TYPER | others)


def test_the_control_api_answers_local_programs_only(shared: Service) -> None:
    for headers, status in (
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
    ):
        request = urllib.request.Request(f"{shared.control_url}/v1/status", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request)
        assert refusal.value.code == status
        refusal.value.close()


def on_terminal(columns: int, *words: str) -> str:
    """Run a command on a terminal of this width, and return what it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen([*FOREWARN, *words], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while some := os.read(ours, 65_536):
            shown += some
    os.close(ours)
    assert process.wait(LIMIT) == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 60])
def test_in_a_narrow_terminal_ids_and_times_are_whole(service: Service, columns: int) -> None:
    event = service.schedule("Reboot", "web_0")
    shown = on_terminal(columns, "event", "list", "--url", service.control_url)
    lines = shown.splitlines()
    assert all(len(line) <= columns for line in lines[1:]), shown  # the head is in bold
    (row,) = (line for line in lines if line.startswith(event.id))
    assert row.endswith(f"{event.not_before:%Y-%m-%d %H:%M:%SZ}")
    for value in ("Reboot", "web_0", "Scheduled", "Platform"):
        assert value in shown


def test_an_encoding_without_symbols_gets_similar_ones() -> None:
    """In the middle of the output a command must not fail because of a check mark."""
    done = subprocess.run(  # not forked: Python reads the variable when it starts
        [*FOREWARN, "scenario", "run", "user-reboot", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.returncode == 1
    assert "scenario user-reboot: failed" in done.stdout
    assert "\n  x the command " in done.stdout
    assert "Traceback" not in done.stderr
