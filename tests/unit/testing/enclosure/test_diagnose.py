"""What an enclosure finds out about the machine that it is made on."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import struct
import sys
from pathlib import Path

import pytest

from forewarn.support import system
from forewarn.testing.enclosure import diagnose, fake_time, loopback, program

HEAD = "  sl  local_address rem_address   st\n"


def test_listeners_on_loopback_are_found() -> None:
    with contextlib.ExitStack() as closing:
        one, wide, other = (
            closing.enter_context(socket.create_server((host, 0))).getsockname()
            for host in ("127.0.0.1", "", "127.0.0.77")
        )
        found = loopback.listening()
    assert {one, ("127.0.0.1", wide[1]), other} <= set(found)
    assert [host for host, _ in found if not host.startswith("127.") and host != "::1"] == []


@pytest.mark.skipif(sys.byteorder != "little", reason="written on a little-endian machine")
def test_connections_and_other_addresses_are_not_listeners_on_loopback(tmp_path: Path) -> None:
    (tmp_path / "tcp").write_text(
        HEAD
        + "   0: 0100007F:1538 00000000:0000 0A\n"
        + "   1: 0100007F:1539 0100007F:9999 01\n"  # a connection
        + "   2: 020002C0:153A 00000000:0000 0A\n"  # 192.0.2.2
        + "   3: 3500007F:0035 00000000:0000 0A\n"
    )
    (tmp_path / "tcp6").write_text(
        HEAD
        + "   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A\n"
        + "   1: 00000000000000000000000001000000:1F91 00000000000000000000000000000000:0000 0A\n"
        + "   2: 0000000000000000FFFF00000100007F:1F92 00000000000000000000000000000000:0000 0A\n"
        + "   3: 0000000000000000FFFF0000020002C0:1F93 00000000000000000000000000000000:0000 0A\n"
    )
    assert set(loopback.listening(tmp_path)) == {
        ("127.0.0.1", 5432),
        ("127.0.0.53", 53),
        ("::1", 8080),
        ("127.0.0.1", 8080),
        ("::1", 8081),
        ("127.0.0.1", 8082),  # IPv4 on a socket of IPv6
    }


def test_only_name_servers_on_loopback_are_found(tmp_path: Path) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text(
        "# one\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver x\noptions a\n"
    )
    assert loopback.name_servers(conf) == [("127.0.0.53", 53)]
    assert loopback.name_servers(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("sysctl", "value", "says"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        ("user/max_net_namespaces", "0", "sysctl user.max_net_namespaces=10000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_a_switch_that_forbids_namespaces_is_named(
    tmp_path: Path, sysctl: str, value: str, says: str
) -> None:
    (tmp_path / sysctl).parent.mkdir()
    (tmp_path / sysctl).write_text(f"{value}\n")
    assert says in diagnose.explain(OSError(errno.EPERM, ""), tmp_path, tmp_path)


def test_the_explanation_in_a_container_names_the_missing_capability(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    assert "--cap-add SYS_ADMIN" in diagnose.explain(OSError(errno.EPERM, ""), tmp_path, tmp_path)


def test_without_a_known_reason_the_error_of_the_kernel_is_reported(tmp_path: Path) -> None:
    explanation = diagnose.explain(OSError(errno.EPERM, ""), tmp_path, tmp_path)
    assert os.strerror(errno.EPERM) in explanation
    assert "as root" in explanation


def test_other_systems_are_referred_to_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert diagnose.platform_problem() == ""
    monkeypatch.setattr(system, "ON_LINUX", False)
    monkeypatch.setattr(sys, "platform", "darwin")
    problem = diagnose.platform_problem()
    assert re.search("Linux 5.3.*macOS.*container", problem)


def test_a_missing_library_is_reported_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fake_time, "_DIRECTORIES", (str(tmp_path),))
    with pytest.raises(fake_time.NoFakeTime, match="apt-get install libfaketime"):
        fake_time.find_library()
    monkeypatch.setenv("FAKETIME_LIB", str(tmp_path / "none.so"))
    with pytest.raises(fake_time.NoFakeTime, match=r"none.so.*no such file"):
        fake_time.find_library()


def test_an_ordinary_program_and_a_script_can_have_their_clock_moved() -> None:
    assert program.fake_time_problem("sh") is None
    assert program.fake_time_problem(str(shutil.which("ldd"))) is None  # a script


@pytest.mark.parametrize(("kinds", "says"), [([1], "statically"), ([3, 4], "in Go")])
def test_a_program_whose_clock_cannot_be_moved_is_known_by_its_file(
    tmp_path: Path, kinds: list[int], says: str
) -> None:
    path = tmp_path / "program"
    path.write_bytes(_elf(kinds))
    path.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(f"#!{path}\n")
    script.chmod(0o755)
    assert says in str(program.fake_time_problem(str(path)))
    assert says in str(program.fake_time_problem(str(script)))


def test_a_file_that_is_not_a_program_has_no_problem_with_its_clock(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no")
    path.chmod(0o755)
    assert program.fake_time_problem(str(path)) is None
    assert program.fake_time_problem("no-such-program") is None


def _elf(kinds: list[int]) -> bytes:
    """As much of a 64-bit file as is read, with these segments; all have Go's note in them."""
    note = struct.pack("<III", 4, 0, 4) + b"Go\0\0"
    at = 64 + 56 * len(kinds)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, len(kinds), 0, 0, 0)
    segments = [struct.pack("<IIQQQQQQ", k, 0, at, 0, 0, len(note), len(note), 1) for k in kinds]
    return head + b"".join(segments) + note
