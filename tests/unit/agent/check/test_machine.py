"""What `agent check` finds on a machine, piece by piece; the whole of it is test_agent_check's."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from pathlib import Path

import msgspec
import pytest

from forewarn.agent.check import machine
from forewarn.agent.check.check import findings
from forewarn.agent.config.address import InvalidListen, parse_listen
from forewarn.agent.config.model import Config
from forewarn.agent.state.store import StateStore
from forewarn.agent.system import durable
from forewarn.support.finding import Finding
from helpers.agent_model import BEGINNING, a_case, hook, order


def graded(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.grade, one.message) for one in found]


def test_all_problems_of_a_configuration_are_reported_with_their_place(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[agent]\nlisten = "here"\n[[rule]]\nhoks = []\napprove = "always"\n')
    found = list(findings(file))
    assert {one.grade for one in found} == {"problem"}
    places = ("agent.listen", "rule[0].hoks", "rule[0].approve")
    assert len(found) == len(places)
    for place in places:
        assert any(one.message.startswith(f"{file}: {place}: ") for one in found), place


def test_a_state_directory_is_tested_by_writing(tmp_path: Path) -> None:
    state = tmp_path / "new/state"
    assert graded(list(machine.check_state(state)))[0] == ("ok", f"{state} is writable")
    assert not state.exists()  # looking changes nothing
    (tmp_path / "file").touch()
    ((grade, says),) = graded(list(machine.check_state(tmp_path / "file")))
    assert grade == "problem"
    assert os.strerror(errno.ENOTDIR) in says


def test_a_state_directory_in_memory_or_open_to_others_or_in_use_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(machine, "MOUNTS", mounts)
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"30 22 0:30 / {tmp_path} rw,nosuid shared:5 - tmpfs tmpfs rw\n"
    )
    (state := tmp_path / "state").mkdir(mode=0o755)
    lock = durable.try_lock(state / "lock")
    assert lock is not None
    found = graded(list(machine.check_state(state)))
    os.close(lock)
    assert [grade for grade, _ in found] == ["ok", "note", "note", "note"]
    for word, (_, says) in zip(
        ("readable by others", "tmpfs", "is using it"), found[1:], strict=True
    ):
        assert word in says
    mounts.write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    state.chmod(0o700)
    assert [grade for grade, _ in graded(list(machine.check_state(state)))] == ["ok"]


def test_an_undo_that_was_given_up_is_a_problem_until_its_directory_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "file_system", lambda _: "ext4")  # wherever the test is run
    store = StateStore(tmp_path)
    case = a_case(hook("a"), hook("b"))
    for one in case.hooks:
        store.save(case)
        order(store, case, one, "prepare", 1)
    assert [grade for grade, _ in graded(list(machine.check_state(tmp_path)))] == ["ok", "note"]
    store.close(msgspec.structs.replace(case, closed=BEGINNING), given_up=["b"])
    store.release()
    ok, (grade, says) = graded(list(machine.check_state(tmp_path)))
    assert (ok[0], grade) == ("ok", "problem")
    assert re.search("hook b .*event E1", says)
    shutil.rmtree(tmp_path / "hooks" / case.id / "b")
    assert [grade for grade, _ in graded(list(machine.check_state(tmp_path)))] == ["ok"]


def test_a_missing_shared_directory_is_a_problem(tmp_path: Path) -> None:
    ((grade, says),) = graded(list(machine.check_shared(tmp_path / "away")))
    assert grade == "problem"
    assert str(tmp_path / "away") in says
    assert graded(list(machine.check_shared(tmp_path)))[0][0] == "ok"


def test_an_address_in_use_is_a_problem_unless_by_the_agent_itself(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config(state=tmp_path, listen=f"127.0.0.1:{taken.getsockname()[1]}")
        assert [one.grade for one in machine.check_listen(config)] == ["problem"]
        lock = durable.try_lock(tmp_path / "lock")
        assert lock is not None
        assert [one.grade for one in machine.check_listen(config)] == ["ok"]
        os.close(lock)
    assert [one.grade for one in machine.check_listen(config)] == ["ok"]
    path = Config(state=tmp_path, listen=str(tmp_path / "no/socket"))
    assert "RuntimeDirectory=" in next(iter(machine.check_listen(path))).message


@pytest.mark.parametrize(
    ("output", "right"),
    [
        ("127.0.0.1:9169", "127.0.0.1:9169"),
        ("localhost:0", "127.0.0.1:0"),
        ("[::1]:9169", "[::1]:9169"),
        ("/run/forewarn-agent/socket", "/run/forewarn-agent/socket"),
        ("0.0.0.0:9169", ""),
        ("192.0.2.1:9169", ""),
        ("9169", ""),
        ("127.0.0.1:99999", ""),
        ("example.org:80", ""),
        ("socket", ""),
    ],
)
def test_the_agent_listens_on_loopback_by_default(output: str, right: str) -> None:
    if right:
        assert str(parse_listen(output)) == right
        assert parse_listen(output).local
    else:
        with pytest.raises(InvalidListen):
            parse_listen(output)
    if output.startswith(("0.", "192.")):
        assert not parse_listen(output, anywhere=True).local


def test_a_program_must_exist_and_be_executable_and_protected(tmp_path: Path) -> None:
    program = tmp_path / "drain"
    assert "does not exist" in machine.program_problems(str(program))[0]
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    assert "cannot be run" in machine.program_problems(str(program))[0]
    program.chmod(0o755)
    assert machine.program_problems(str(program)) == []
    program.chmod(0o757)
    assert f"chmod o-w {program}" in machine.program_problems(str(program))[0]
    assert "PATH" in machine.program_problems("no-such-program-anywhere")[0]
    assert machine.program_problems("sh") == []
