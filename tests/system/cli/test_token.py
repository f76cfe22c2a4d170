"""Tokens as an operator types them: made, piped, used, listed, revoked; through the service, or on
a state file while none runs; and a service that is not to be reached without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.core.access import Role
from forewarn.core.time import DAY
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.testing import Service
from helpers.forked_cli import Forked, run
from helpers.process import Running
from helpers.token_api import FLEET, Api, api_with_token
from helpers.waiting import LIMIT

FOREWARN = [sys.executable, "-m", "forewarn"]
SECRET = re.compile(r"fw_[0-9a-f]{8}_[A-Za-z0-9]{43}")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(FLEET, sockets=True, state=tmp_path / "state.db") as service:
        yield service


def typed(service: Service, *words: str, token: str = "", **env: str) -> Result:
    """In an environment without anything of whoever runs the tests."""
    printed = {"FOREWARN_TOKEN": token, "FOREWARN_TOKEN_FILE": "", "FOREWARN_CA": "", **env}
    return CliRunner().invoke(
        app, list(words), env={**printed, "FOREWARN_URL": service.control_url}
    )


def made(result: Result) -> str:
    """The token, which is all that a command says on its standard output."""
    assert result.exit_code == 0, result.output
    assert SECRET.fullmatch(result.stdout.rstrip("\n"))
    return result.stdout.strip()


def refused(result: Result) -> str:
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("forewarn: ")
    return line


def test_a_token_is_made_used_listed_and_revoked(service: Service) -> None:
    result = typed(service, "token", "create", "alice", "--role", "admin")
    admin = made(result)
    assert f"token {admin[3:11]} for 'alice', admin, " in result.stderr
    assert admin not in result.stderr
    assert "needs a token" in refused(typed(service, "machine", "list"))
    assert typed(service, "machine", "list", token=admin).exit_code == 0
    bot = made(
        typed(
            *(service, "token", "create", "bot", "--role", "operator", "--group", "web"),
            *("--label", "tier=web", "--expires", "90d"),
            token=admin,
        )
    )
    listed = json.loads(typed(service, "token", "list", "--json", token=admin).stdout)
    listed.sort(key=lambda one: one["name"])  # on a virtual clock both are of the same moment
    assert [(t["name"], t["role"], t["groups"], t["label"]) for t in listed] == [
        ("alice", "admin", [], ""),
        ("bot", "operator", ["web"], "tier=web"),
    ]
    assert listed[1]["expires_at"].startswith("2027-04-15")
    table = typed(service, "token", "list", token=admin).stdout
    assert re.search("operator .*web, tier=web", table)
    assert SECRET.search(table) is None
    assert typed(service, "machine", "restart", "web_0", token=bot).exit_code == 0
    gone = typed(service, "token", "revoke", "bot", token=admin)
    assert gone.stdout == f"token {bot[3:11]} (bot) is revoked\n"
    assert "expired or revoked" in refused(typed(service, "machine", "list", token=bot))


def test_a_refusal_for_a_token_names_it_and_the_role_it_needs(service: Service) -> None:
    admin = made(typed(service, "token", "create", "alice", "--role", "admin"))
    viewer = made(typed(service, "token", "create", "v", "--role", "viewer", token=admin))
    line = refused(typed(service, "machine", "restart", "web_0", token=viewer))
    assert re.search("role tenant; token 'v' .*viewer$", line)
    line = refused(typed(service, "token", "revoke", "alice", token=admin))
    assert "last admin token" in line
    line = refused(typed(service, "token", "create", "x", "--role", "amdin", token=admin))
    assert "'amdin'; " in line
    assert line.endswith(", ".join(role.value for role in Role))


def test_json_output_has_the_token_and_its_properties(service: Service) -> None:
    result = typed(service, "token", "create", "alice", "--role", "admin", "--json")
    shown = json.loads(result.stdout)
    assert SECRET.fullmatch(shown["token"])
    assert (shown["name"], shown["role"], shown["state"]) == ("alice", "admin", "valid")
    done = typed(service, "token", "revoke", "alice", "--force", "--json", token=shown["token"])
    assert json.loads(done.stdout)["state"] == "revoked"


def test_a_token_may_be_in_a_file_that_is_named(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(made(typed(service, "token", "create", "alice", "--role", "admin")) + "\n")
    file.chmod(0o600)
    assert typed(service, "machine", "list", FOREWARN_TOKEN_FILE=str(file)).exit_code == 0
    assert typed(service, "--token-file", str(file), "machine", "list").exit_code == 0


@pytest.mark.parametrize(
    ("mode", "text", "says"),
    [
        (0o644, None, "readable by all"),
        (0o600, "", "not contain a token"),
        (0o600, "two words", "not contain a token"),
        (0o600, "fw_" + "x" * 20_000, "not contain a token"),
        (0o600, "another secret", "not contain a token"),
    ],
)
def test_an_unusable_token_file_is_refused_without_repeating_its_content(
    service: Service, tmp_path: Path, mode: int, text: str | None, says: str
) -> None:
    file = tmp_path / "token"
    token = made(typed(service, "token", "create", "alice", "--role", "admin"))
    file.write_text(token if text is None else text)
    file.chmod(mode)
    line = refused(typed(service, "machine", "list", FOREWARN_TOKEN_FILE=str(file)))
    assert says in line
    assert token not in line
    assert not text or text not in line
    missing = typed(service, "machine", "list", FOREWARN_TOKEN_FILE=str(tmp_path / "none"))
    assert "No such file" in refused(missing)


def test_an_invalid_token_is_not_repeated(service: Service) -> None:
    typed(service, "token", "create", "alice", "--role", "admin")
    for wrong in ("hunter2\u00e9", "hunter2 hunter2", "hunter2\x01"):
        line = refused(typed(service, "machine", "list", token=wrong))
        assert "hunter2" not in line


def test_there_is_no_option_that_takes_a_token(service: Service) -> None:
    result = typed(service, "machine", "list", "--token", "fw_x")
    assert result.exit_code == 2
    assert "no such option" in result.output


def on_state(*words: str, state: Path) -> Result:
    return CliRunner().invoke(app, ["token", *words, "--state", str(state)])


def elsewhere(*words: str, state: Path) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own, as whoever has nothing to do with the service's."""
    argv = [*FOREWARN, "token", *words, "--state", str(state)]
    return run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)


def test_tokens_are_created_in_a_state_without_a_running_service(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    done = elsewhere("create", "alice", "--role", "admin", state=state)
    assert (done.returncode, bool(SECRET.fullmatch(done.stdout.strip()))) == (0, True)
    assert f"{state} was created" in done.stderr
    with Service(FLEET, sockets=True, state=state, real_time=True) as service:
        api = Api(service.control_url, done.stdout.strip())
        assert api.get("/v1/status").status == 200
        assert Api(service.control_url).get("/v1/status").status == 401
        (record,) = api.get("/v1/history?what=token-created").json()["records"]
        assert (record["by"], record["note"]) == ("operator", "alice (admin)")
        used = elsewhere("create", "bob", "--role", "admin", state=state)
        assert used.returncode == 1
        assert "in use" in used.stderr
        # To look is to take nothing from whoever runs it.
        assert "alice" in elsewhere("list", state=state).stdout
    listed = on_state("list", "--json", state=state)
    assert [one["name"] for one in json.loads(listed.stdout)] == ["alice"]
    assert json.loads(listed.stdout)[0]["last_used"]
    assert "last admin token" in on_state("revoke", "alice", state=state).stderr
    assert on_state("revoke", "alice", "--force", state=state).exit_code == 0


def test_creating_a_token_offline_does_not_count_as_serving(tmp_path: Path) -> None:
    """A token that is made offline must not look as if somebody had served until then."""
    state = tmp_path / "state.db"
    yesterday = to_datetime(guard.wall_us() - DAY)
    with Service(FLEET, state=state, start=yesterday) as service:
        service.document("web_0")
    assert on_state("create", "alice", "--role", "admin", state=state).exit_code == 0
    with Service(FLEET, state=state, real_time=True) as service:
        assert service._session.node.writer.now().lost >= DAY


@pytest.mark.parametrize("words", [("list",), ("revoke", "alice")])
def test_listing_tokens_does_not_create_a_missing_state(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = on_state(*words, state=tmp_path / "none.db")
    assert (done.exit_code, str(tmp_path / "none.db") in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_state_is_left_alone(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    state.write_bytes(b"something else entirely" * 100)
    done = on_state("create", "alice", "--role", "admin", state=state)
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
    assert state.read_bytes() == b"something else entirely" * 100


def served(tmp_path: Path, **settings: Any) -> Running:
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    config = tmp_path / "forewarn.toml"
    config.write_text("\n".join(['metadata = "127.0.0.1:0"', 'state = "state.db"', *lines]))
    argv = [*FOREWARN, "serve", "--config", str(config)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("FOREWARN_")}
    process = Forked(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**env, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    return Running(process, argv)


def test_serving_beyond_loopback_requires_tls_and_a_token(tmp_path: Path) -> None:
    plain = served(tmp_path, control="0.0.0.0:0")
    assert plain.wait() == 1
    assert "allow_plain_control" in "".join(plain.stderr)
    nobody = served(tmp_path, control="0.0.0.0:0", allow_plain_control=True)
    assert nobody.wait() == 1
    assert "--role admin --state" in "".join(nobody.stderr)
    token = on_state("create", "alice", "--role", "admin", state=tmp_path / "state.db")
    running = served(tmp_path, control="0.0.0.0:0", allow_plain_control=True)
    try:
        ready = json.loads(running.line().removeprefix("ready "))
        port = ready["control"].rpartition(":")[2]
        api = Api(f"http://127.0.0.1:{port}")
        assert api.get("/v1/status").status == 401
        api.token = token.stdout.strip()
        assert api.get("/v1/status").status == 200
    finally:
        running.stop()


def test_sending_a_token_unencrypted_is_a_warning(service: Service) -> None:
    api = api_with_token(service, "alice", Role.ADMIN)
    env = {"FOREWARN_TOKEN": api.token, "FOREWARN_URL": "http://192.0.2.1:1"}
    from forewarn.cli.credentials import address_of, sends_token_unencrypted

    with pytest.MonkeyPatch.context() as patch:
        for key, value in env.items():
            patch.setenv(key, value)
        assert sends_token_unencrypted(address_of("http://192.0.2.1:1"))
        assert not sends_token_unencrypted(address_of("https://192.0.2.1:1"))
        assert not sends_token_unencrypted(address_of(service.control_url))
        patch.delenv("FOREWARN_TOKEN")
        assert not sends_token_unencrypted(address_of("http://192.0.2.1:1"))
        assert api.token not in repr(address_of("x"))


def a_copy(tmp_path: Path) -> Path:
    """A copy that nobody has served yet: whoever takes it up says so in the log."""
    state, copy = tmp_path / "was.db", tmp_path / "copy.db"
    assert on_state("create", "alice", "--role", "admin", state=state).exit_code == 0
    done = CliRunner().invoke(app, ["backup", str(copy), "--state", str(state)])
    assert done.exit_code == 0, done.output
    return copy


def test_standard_output_has_the_token_alone(tmp_path: Path) -> None:
    done = elsewhere("create", "bob", "--role", "admin", state=a_copy(tmp_path))
    assert SECRET.fullmatch(done.stdout.rstrip("\n"))
    assert "is a copy" in done.stderr


def test_listing_tokens_changes_no_file(tmp_path: Path) -> None:
    copy = a_copy(tmp_path)
    before, there = copy.read_bytes(), sorted(tmp_path.iterdir())
    listed = on_state("list", "--json", state=copy)
    assert [one["name"] for one in json.loads(listed.stdout)] == ["alice"]
    assert copy.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == there


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away: run as root")
def test_files_created_by_root_belong_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 12_345, 12_345)
    done = on_state("create", "alice", "--role", "admin", state=tmp_path / "state.db")
    assert re.search(r"state\.db was created, .*state\.db\.lock", done.stderr)
    found = {path.name: path.stat().st_uid for path in tmp_path.iterdir()}
    assert found == dict.fromkeys(found, 12_345)
    assert {"state.db", "state.db.lock"} <= set(found)


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (("--label", ""), "label selector"),
        (("--label", "  "), "label selector"),
        (("--group", ""), "of a group"),
        (("--group", " "), "of a group"),
        (("--group", "web", "--label", ""), "label selector"),
    ],
)
def test_a_token_with_an_empty_limit_is_refused_not_made_unlimited(
    service: Service, tmp_path: Path, limit: tuple[str, ...], says: str
) -> None:
    admin = made(typed(service, "token", "create", "alice", "--role", "admin"))
    words = ("token", "create", "bot", "--role", "operator", *limit)
    assert says in refused(typed(service, *words, token=admin))
    state = tmp_path / "other.db"
    on_state("create", "alice", "--role", "admin", state=state)
    assert says in on_state("create", "bot", "--role", "operator", *limit, state=state).stderr
    wrong: list[dict[str, Any]] = [{"label": ""}, {"label": " "}, {"groups": []}, {"groups": [""]}]
    for body in wrong:
        answer = Api(service.control_url, admin).post(
            "/v1/tokens", {"name": "bot", "role": "operator", **body}
        )
        assert answer.status == 400, body
    listed = json.loads(typed(service, "token", "list", "--json", token=admin).stdout)
    assert [one["name"] for one in listed] == ["alice"]


@pytest.mark.parametrize(
    ("ago", "level", "says"),
    [
        (10, "warning", "the last admin token "),
        (21, "error", "there is no "),
    ],
)
def test_the_service_starts_though_the_last_admin_token_expires(
    tmp_path: Path, ago: int, level: str, says: str
) -> None:
    state = tmp_path / "state.db"
    start = to_datetime(guard.wall_us() - ago * DAY)
    with Service(FLEET, sockets=True, state=state, start=start) as service:
        api_with_token(service, "alice", Role.ADMIN, expires_in=20 * DAY)
    running = served(tmp_path, control="0.0.0.0:0", allow_plain_control=True, log="json")
    try:
        ready = json.loads(running.line().removeprefix("ready "))
        port = ready["control"].rpartition(":")[2]
        assert Api(f"http://127.0.0.1:{port}").get("/v1/status").status == 401
    finally:
        running.stop()
    lines = [json.loads(line) for line in running.stderr if line.startswith("{")]
    (reported,) = (one for one in lines if "admin token" in str(one))
    assert reported["level"] == level
    assert reported["event"].startswith(says)
    assert "--role admin" in reported["run"]
