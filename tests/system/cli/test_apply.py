"""`forewarn apply`, as an operator types it: against a service with sockets, dev and serve."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient
from forewarn.control.routes.fleet import MAX_HOST_BYTES
from forewarn.control.schema.fleet import MAX_FLEET_BYTES
from forewarn.testing import Service
from helpers.forked_cli import Forked, run
from helpers.process import Running
from helpers.waiting import LIMIT, until

FOREWARN = [sys.executable, "-m", "forewarn"]
FLEET = """
hosts: [a, {name: b, labels: {rack: r1}}]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    machines:
      - {name: web_0, host: a}
      - {name: web_1, host: b, labels: {ring: canary}}
  - name: jump
    kind: standalone
    machines: [{name: jump}]
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def typed(service: Service, *words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--url", service.control_url])


def response(service: Service, *words: str | Path) -> str:
    result = typed(service, *words)
    assert result.exit_code == 0, result.output
    return result.stdout


def reported(service: Service, *words: str | Path) -> Any:
    return json.loads(response(service, *words, "--json"))


def asked(service: Service, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    data = None if body is None else body.encode()
    headers = {} if data is None else {"Content-Type": "application/yaml"}
    request = urllib.request.Request(service.control_url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_applying_twice_changes_nothing(service: Service, file: Path) -> None:
    file.write_text(FLEET + "  - {name: more, kind: standalone, machines: [{name: more}]}\n")
    lines = response(service, "apply", file).splitlines()
    assert lines[:-1] == ["+ group more", "+ machine more in more"]
    assert lines[-1] == "1 group added, 1 machine added"
    seq = service._session.node.store.seq
    assert response(service, "apply", file) == "nothing to change\n"
    assert service._session.node.store.seq == seq


def test_a_new_machine_is_answered_at_once_and_others_keep_their_addresses(
    service: Service, file: Path
) -> None:
    url = service.url("web_0")
    file.write_text(FLEET.replace("- {name: web_0", "- {name: web_7}\n      - {name: web_0"))
    response(service, "apply", file)
    assert service.url("web_0") == url
    assert service.get("web_7").status == 200
    assert reported(service, "machine", "show", "web_7")["metadata_url"] == service.url("web_7")


def test_a_plan_shows_fields_and_changes_nothing(service: Service, file: Path) -> None:
    seq = service._session.node.store.seq
    file.write_text(FLEET.replace("host: a}", "host: b, spot: true}"))
    page = response(service, "apply", file, "--plan")
    (changed,) = (line for line in page.splitlines() if line.startswith("~ machine web_0 "))
    assert changed.endswith(": host: a → b, spot: False → True")
    assert "would be: 1 machine changed" in page
    assert reported(service, "apply", file, "--plan")["planned"] is True
    assert service._session.node.store.seq == seq


def test_moving_a_machine_to_a_failed_host_is_a_warning(service: Service, file: Path) -> None:
    response(service, "host", "fail", "b", "--yes")
    file.write_text(FLEET.replace("host: a}", "host: b}"))
    (warning,) = reported(service, "apply", file, "--plan")["warnings"]
    assert warning.startswith("host 'b' ")
    assert "web_0" in warning
    assert f"note: {warning}" in typed(service, "apply", file).stderr
    assert reported(service, "apply", file)["warnings"] == []  # nothing to change, nothing to say


def test_an_error_names_file_line_and_field_and_nothing_changes(
    service: Service, file: Path
) -> None:
    seq = service._session.node.store.seq
    machines = "".join(f"      - {{name: more-{n}}}\n" for n in range(1_000))
    file.write_text(
        FLEET
        + "  - name: more\n    kind: availability-set\n    machines:\n"
        + machines
        + "      - {name: last, update_domian: 3}\n"
    )
    result = typed(service, "apply", file)
    line = file.read_text().split("update_domian")[0].count("\n") + 1
    assert result.exit_code == 1
    field = "groups[2].machines[1000].update_domian"
    assert result.stderr.startswith(f"forewarn: {file}:{line}: {field}: ")
    assert result.stderr.endswith("'update_domain'?\n")
    assert service._session.node.store.seq == seq


def test_a_missing_fleet_file_is_one_line_and_exit_code_1(service: Service, file: Path) -> None:
    result = typed(service, "apply", file.with_name("none.yaml"))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"forewarn: {file.with_name('none.yaml')}: No such file ")
    assert typed(service, "apply").exit_code == 2


def test_removing_a_machine_with_an_event_is_refused_unless_forced(
    service: Service, file: Path
) -> None:
    event = service.schedule("Reboot", "web_1")
    file.write_text(FLEET.replace("      - {name: web_1, host: b, labels: {ring: canary}}\n", ""))
    plan = response(service, "apply", file, "--plan")
    assert re.search(rf"^conflict: machine 'web_1' .*: Reboot {event.id}", plan, re.M)
    refused = typed(service, "apply", file)
    assert refused.exit_code == 1
    assert "machine 'web_1'" in refused.stderr
    assert event.id in refused.stderr
    assert "--force" in refused.stderr
    assert service.get("web_1").status == 200
    assert "- machine web_1 " in response(service, "apply", file, "--force")
    assert typed(service, "machine", "show", "web_1").exit_code == 1


def test_a_machine_moves_to_another_group_with_its_address(service: Service, file: Path) -> None:
    url = service.url("jump")
    file.write_text(
        FLEET.replace("name: jump\n    kind: standalone", "name: two\n    kind: availability-set")
    )
    page = response(service, "apply", file)
    assert "> machine jump from jump to two" in page
    assert service.url("jump") == url
    assert reported(service, "machine", "show", "jump")["group"] == "two"


def test_labels_select_machines_and_groups(service: Service) -> None:
    def names(*words: str) -> list[str]:
        return [one["name"] for one in reported(service, *words)]

    assert names("machine", "list", "--label", "ring=canary") == ["web_1"]
    assert names("machine", "list", "--label", "tier=web,!ring") == ["web_0"]
    assert names("machine", "list", "--label", "tier!=web") == ["jump"]
    assert names("group", "list", "--label", "tier") == ["web"]
    wrong = typed(service, "machine", "list", "--label", "a b")
    assert wrong.exit_code == 1
    assert "label" in wrong.stderr
    assert "'a b'" in wrong.stderr


def test_a_fleet_read_from_the_service_can_be_applied_unchanged(
    service: Service, tmp_path: Path
) -> None:
    status, shown = asked(service, "GET", "/v1/fleet")
    assert status == 200
    assert [group["name"] for group in shown["groups"]] == ["web", "jump"]
    path = tmp_path / "back.json"
    path.write_text(json.dumps(shown))
    assert response(service, "apply", path) == "nothing to change\n"


def test_the_schema_comes_with_the_command() -> None:
    printed = json.loads(CliRunner().invoke(app, ["apply", "--schema"]).stdout)
    assert "FleetEntry" in printed["$defs"]


def test_groups_hosts_and_machines_are_put_and_deleted_through_the_api(service: Service) -> None:
    group = "kind: availability-set\nmachines: [{name: n0}, {name: n1, hosts: a}]"
    status, problem = asked(service, "PUT", "/v1/groups/new", group)
    assert (status, problem["line"], problem["did_you_mean"]) == (400, 2, "host")
    assert problem["detail"].startswith("machines[1].hosts: ")
    status, found = asked(service, "PUT", "/v1/groups/new", group.replace("hosts", "host"))
    assert (status, found["machines"]["added"]) == (200, 2)
    assert asked(service, "PUT", "/v1/hosts/c", '{"labels": {"rack": "r2"}}')[0] == 200
    assert asked(service, "DELETE", "/v1/hosts/a")[0] == 409
    assert asked(service, "DELETE", "/v1/machines/n1")[0] == 200
    event = service.schedule("Reboot", "n0")
    status, problem = asked(service, "DELETE", "/v1/groups/new")
    assert status == 409
    assert event.id in problem["detail"]
    assert asked(service, "DELETE", "/v1/groups/new?force=true")[0] == 200
    assert asked(service, "DELETE", "/v1/groups/new")[0] == 404
    assert asked(service, "GET", "/v1/hosts/c")[1]["labels"] == {"rack": "r2"}


def test_a_group_put_alone_keeps_the_place_it_has(service: Service, file: Path) -> None:
    file.write_text("location: north\nresource_group: prod\n" + FLEET)
    reported(service, "apply", file)
    group = "kind: standalone\nmachines: [{name: jump, spot: true}]"
    status, found = asked(service, "PUT", "/v1/groups/jump", group)
    assert (status, found["groups"]["changed"], found["machines"]["changed"]) == (200, 0, 1)
    status, found = asked(service, "PUT", "/v1/groups/jump", f"location: south\n{group}")
    (item,) = found["items"]
    assert item["fields"] == [{"field": "location", "before": "north", "after": "south"}]


def test_removing_a_host_that_only_the_inventory_names_is_refused(service: Service) -> None:
    service.get("web_0")
    service.redeploy("web_0")
    service.clock.advance("1h")
    status, problem = asked(service, "DELETE", "/v1/hosts/a")
    assert status == 409
    assert re.search(r"inventory .*web_0 .*\(host: b\)$", problem["detail"])


def test_deleting_the_last_machine_deletes_its_group(service: Service) -> None:
    status, found = asked(service, "DELETE", "/v1/machines/jump")
    assert (status, found["groups"]["removed"], found["machines"]["removed"]) == (200, 1, 1)
    assert asked(service, "GET", "/v1/groups/jump")[0] == 404


@pytest.mark.parametrize("rest", ["{name: other}", "{name: jump}"])
def test_a_group_that_was_deleted_and_created_again_is_not_enabled(
    service: Service, rest: str
) -> None:
    service.get("jump")
    assert asked(service, "GET", "/v1/groups/jump")[1]["enabled"]
    assert asked(service, "DELETE", "/v1/groups/jump")[0] == 200
    history = ControlClient(service.control_url).history(group="jump", what="disabled")
    assert len(history.records) == 1
    group = f"kind: standalone\nmachines: [{rest}]"
    assert asked(service, "PUT", "/v1/groups/jump", group)[0] == 200
    assert not asked(service, "GET", "/v1/groups/jump")[1]["enabled"]


@pytest.mark.parametrize(
    ("path", "body", "line", "detail"),
    [
        ("/v1/hosts/x", "# no more\n", 1, "empty"),
        ("/v1/groups/x", "\n", 1, "empty"),
        ("/v1/fleet", "\n", 1, "empty"),
        ("/v1/groups/x", "kind: cloud-service\nmachines: []", 2, "machines: "),
    ],
)
def test_an_empty_body_or_group_is_refused_with_its_line(
    service: Service, path: str, body: str, line: int, detail: str
) -> None:
    status, problem = asked(service, "PUT", path, body)
    assert (status, problem["line"]) == (400, line)
    assert detail in problem["detail"]


def test_a_host_of_too_many_bytes_is_refused_before_they_are_sent(service: Service) -> None:
    connection = http.client.HTTPConnection(urlsplit(service.control_url).netloc, timeout=LIMIT)
    try:
        connection.putrequest("PUT", "/v1/hosts/x")
        connection.putheader("Content-Type", "application/yaml")
        connection.putheader("Content-Length", str(MAX_HOST_BYTES + 1))
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 413
        assert f"{MAX_HOST_BYTES:,}" in json.loads(answer.read())["detail"]
    finally:
        connection.close()


def test_a_fleet_file_that_is_not_utf_8_is_refused(service: Service, file: Path) -> None:
    file.write_bytes(b"groups: \xff")
    refused = typed(service, "apply", file)
    assert refused.exit_code == 1
    assert "not UTF-8" in refused.stderr


def test_a_fleet_that_is_too_large_is_refused_by_command_and_service(
    service: Service, file: Path
) -> None:
    with file.open("ab") as grown:
        grown.truncate(MAX_FLEET_BYTES + 1)
    refused = typed(service, "apply", file)
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"forewarn: {file}: ")
    assert f"{MAX_FLEET_BYTES + 1:,}" in refused.stderr
    assert f"{MAX_FLEET_BYTES:,}" in refused.stderr
    parts = urlsplit(service.control_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LIMIT)
    connection.putrequest("PUT", "/v1/fleet")
    connection.putheader("Content-Type", "application/yaml")
    connection.putheader("Content-Length", str(MAX_FLEET_BYTES + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert f"{MAX_FLEET_BYTES:,}" in json.load(answer)["detail"]
    connection.close()


def test_polls_and_approvals_go_on_while_a_large_fleet_is_applied(
    service: Service, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held in the middle by the test: whatever is asked then is answered, a second apply not."""
    fleet_apply = service._session.node.fleet_apply
    reached, go_on = threading.Event(), threading.Event()
    decided = fleet_apply._decided

    def held(*arguments: Any) -> Any:
        reached.set()
        assert go_on.wait(LIMIT)
        return decided(*arguments)

    monkeypatch.setattr(fleet_apply, "_decided", held)
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    machines = "".join(f"      - {{name: many-{n}}}\n" for n in range(5_000))
    file.write_text(f"{FLEET}  - name: many\n    kind: availability-set\n    machines:\n{machines}")
    result: list[Result] = []
    thread = threading.Thread(target=lambda: result.append(typed(service, "apply", file)))
    thread.start()
    try:
        assert reached.wait(LIMIT)
        progress = asked(service, "GET", "/v1/fleet/progress")[1]
        assert progress["stage"]
        assert 0 < progress["fraction"] < 1
        assert [e["EventId"] for e in service.document("web_1")["Events"]] == [event.id]
        assert service.approve("web_1", event).status == 200
        assert service.document("web_1")["Events"][0]["EventStatus"] == "Started"
        status, problem = asked(service, "PUT", "/v1/fleet", FLEET)
        assert status == 409
        assert "another fleet" in problem["detail"]
    finally:
        go_on.set()
        thread.join()
    assert result[0].exit_code == 0, result[0].output
    assert "5000 machines added" in result[0].stdout
    assert "\n+ … 5000 machines" in result[0].stdout
    assert len(result[0].stdout.splitlines()) < 30
    assert service.document("web_1")["Events"][0]["EventStatus"] == "Started"
    assert service.get("many-4999").status == 200
    assert asked(service, "GET", "/v1/fleet/progress")[1] == {"stage": "", "fraction": 0.0}


def test_on_a_terminal_a_bar_shows_how_far_it_is(service: Service, file: Path) -> None:
    file.write_text(FLEET.replace("web_1", "web_2"))
    ours, theirs = pty.openpty()
    argv = [*FOREWARN, "apply", str(file), "--url", service.control_url]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=theirs, text=True, timeout=LIMIT)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while some := os.read(ours, 65_536):
            shown += some
    os.close(ours)
    assert done.returncode == 0
    assert b"sending" in shown
    assert "1 machine added, 1 machine removed" in done.stdout


def test_without_a_terminal_there_is_no_progress_bar(service: Service, file: Path) -> None:
    done = _run(service.control_url, "apply", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing to change\n", "")


def test_the_command_needs_no_packages_of_a_server(file: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('yaml', 'litestar', 'sqlalchemy', 'uvicorn', 'structlog'):\n"
        "    sys.modules[name] = None\n"
        "from typer.testing import CliRunner\n"
        "from forewarn.cli.app import app\n"
        "made = CliRunner().invoke(app, ['apply', '--schema'])\n"
        "assert made.exit_code == 0, made.output\n"
        f"asked = CliRunner().invoke(app, ['apply', {str(file)!r}, '--url', 'http://127.0.0.1:1'])\n"
        "assert 'no service answers' in asked.output, asked.output\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr


def _serve(*words: str | Path) -> Running:
    argv = [*FOREWARN, "serve", *map(str, words)]
    argv += ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    return Running(
        Forked(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ),
        argv,
    )


def _control(running: Running) -> str:
    control: str = json.loads(running.line().removeprefix("ready "))["control"]
    return control


def _run(control: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return run(
        [*FOREWARN, *map(str, words), "--url", control],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def _typed(control: str, *words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--url", control])


def test_serve_without_a_fleet_keeps_what_was_applied(tmp_path: Path, file: Path) -> None:
    state = tmp_path / "state.db"
    running = _serve("--state", state)
    try:
        control = _control(running)
        until(lambda: "no machines yet" in "".join(running.stderr))
        assert _typed(control, "apply", file).exit_code == 0
    finally:
        running.stop()
    again = _serve("--state", state)
    try:
        assert _typed(_control(again), "apply", file).stdout == "nothing to change\n"
    finally:
        again.stop()


def test_serve_keeps_the_stored_inventory_if_its_fleet_is_refused(
    tmp_path: Path, file: Path
) -> None:
    state = tmp_path / "state.db"
    running = _serve("--state", state, "--fleet", file)
    try:
        assert _typed(_control(running), "event", "schedule", "Reboot", "jump").exit_code == 0
    finally:
        running.stop()
    file.write_text(FLEET.split("  - name: jump")[0])
    again = _serve("--state", state, "--fleet", file)
    try:
        control = _control(again)
        assert _typed(control, "machine", "show", "jump").exit_code == 0
        assert _typed(control, "apply", file, "--force").exit_code == 0
    finally:
        again.stop()
    warning = [line for line in again.stderr if "is not applied" in line]
    assert len(warning) == 1
    assert "machine 'jump'" in warning[0]
    assert f"forewarn apply {file} --plan" in warning[0]
