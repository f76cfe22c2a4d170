"""`forewarn run`: a program in front of which nobody stands, as far as one can tell."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.testing import SAMPLE, Service
from forewarn.testing.enclosure import FakeTime, NoFakeTime, fake_time
from helpers.netns import needs_root, require
from helpers.process import Running
from helpers.waiting import LIMIT

WHO = (
    "curl --silent --header Metadata:true 'http://169.254.169.254/metadata/instance/compute/name"
    "?api-version=2021-02-01&format=text'"
)
# Says the time whenever it is asked, and that it can sleep.
CLOCK = """
import sys, time
for line in sys.stdin:
    before = time.monotonic()
    time.sleep(0.01)
    assert 0.01 <= time.monotonic() - before
    print(time.time(), flush=True)
"""
RUN = [sys.executable, "-P", "-m", "forewarn", "run"]
ENOUGH = 500  # looks at a clock until it has moved


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    needs_root()
    with Service(SAMPLE, sockets=True, default_machine="sql-2", arm=True) as service:
        yield service


@pytest.fixture
def start(service: Service) -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    env = {**os.environ, "FOREWARN_URL": service.control_url}
    with contextlib.ExitStack() as closing:

        def begin(*words: str, before: tuple[str, ...] = (), **details: Any) -> Any:
            details = {"env": env, "text": True, **details}
            process = subprocess.Popen([*before, *RUN, *words], **details)
            closing.enter_context(process)
            closing.callback(process.kill)
            return process

        yield begin


def _typed(service: Service, *words: str) -> Any:
    return CliRunner().invoke(app, ["run", "--url", service.control_url, *words])


def test_output_and_exit_code_of_the_program_are_passed_on(start: Callable[..., Any]) -> None:
    piped = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    script = f"cat; {WHO}; echo; {WHO} >&2; exit 7"
    process = start("--network", "none", "--", "sh", "-c", script, **piped)
    printed, complained = process.communicate("typed\n", timeout=LIMIT)
    assert printed == "typed\nsql-2\n"  # the machine that the service speaks as
    assert complained == "sql-2"
    assert process.returncode == 7


def test_signals_reach_the_program_and_its_death_is_reported_like_a_shell(
    start: Callable[..., Any],
) -> None:
    script = f"trap 'echo heard' USR1; {WHO}; echo; while :; do sleep 0.01; done"
    words = ["--machine", "web_1", "--network", "none", "--", "sh", "-c", script]
    process = start(*words, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "web_1\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "heard\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 128 + signal.SIGTERM


def test_ctrl_c_and_hangup_of_a_terminal_reach_the_program_once(
    start: Callable[..., Any],
) -> None:
    ours, theirs = pty.openpty()
    script = """if True:
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGUSR1})
        os.write(1, b"up")
        signal.sigwait({signal.SIGINT})
        os.write(1, b"interrupted")
        signal.sigwait({signal.SIGUSR1})
        os.write(1, b"again." if signal.sigpending() else b"once.")
        while True:
            signal.pause()
    """
    words = ["--network", "none", "--", sys.executable, "-I", "-S", "-c", script]
    tty = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = start(*words, **tty, before=("setsid", "--ctty"))  # the first of its session
    os.close(theirs)
    _until(ours, b"up")
    os.write(ours, b"\x03")
    _until(ours, b"interrupted")
    process.send_signal(signal.SIGUSR1)  # passed on after another one, if there were one
    assert _until(ours, b".").endswith(b"once.")
    os.close(ours)
    assert process.wait(LIMIT) == 128 + signal.SIGHUP


def _until(fd: int, wanted: bytes) -> bytes:
    """What is on a terminal until this is."""
    heard = b""
    while wanted not in heard:
        assert select.select([fd], [], [], LIMIT)[0], heard
        heard += os.read(fd, 1000)
    return heard


def test_a_killed_run_leaves_no_process_or_namespace(start: Callable[..., Any]) -> None:
    script = "setsid sleep 600 & echo $! $$; readlink /proc/self/ns/net; exec sleep 600"
    process = start("--", "sh", "-c", script, stdout=subprocess.PIPE)
    inside = [int(pid) for pid in process.stdout.readline().split()]
    namespace = process.stdout.readline().strip()
    keepers = _children(process.pid) - set(inside)
    around = {pid for keeper in keepers for pid in _children(keeper)}
    watched = [os.pidfd_open(pid) for pid in {*inside, *keepers, *around}]
    assert len(watched) >= 4  # two programs, the keeper, the anchor, and perhaps pasta
    process.kill()
    for pidfd in watched:
        assert select.select([pidfd], [], [], 60)[0]
        os.close(pidfd)
    left = [str(link) for link in Path("/proc").glob("[0-9]*/ns/net") if _leads(link) == namespace]
    assert left == []


def _children(pid: int) -> set[int]:
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def _leads(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


@pytest.fixture(scope="module")
def faketime() -> Path:
    try:
        return fake_time.find_library()
    except NoFakeTime:
        require(None, "libfaketime (apt-get install libfaketime)")
        raise


@pytest.mark.usefixtures("faketime")
def test_the_clock_of_the_program_follows_the_service(
    service: Service, start: Callable[..., Any]
) -> None:
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    program = [sys.executable, "-I", "-S", "-c", CLOCK]
    process = start("--network", "none", "--fake-time", "--", *program, **piped)

    def shown() -> float:
        process.stdin.write("?\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    def service_time() -> float:
        return service.clock.now.timestamp()

    assert shown() == service_time()
    service.clock.advance("15m")
    for _ in range(ENOUGH):
        if shown() == service_time():
            break
    assert shown() == service_time()
    process.stdin.close()
    assert process.wait(LIMIT) == 0


@pytest.mark.usefixtures("faketime")
def test_a_clock_that_is_set_is_seen_at_once_by_every_process() -> None:
    at = datetime(2027, 1, 15, 8, tzinfo=UTC)
    with FakeTime(int(at.timestamp() * 1_000_000)) as fake:
        env = fake.environment({"PATH": os.environ["PATH"], "TZ": "Europe/Berlin"})
        argv = [sys.executable, "-I", "-S", "-u", "-c", CLOCK]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        running = Running(process, argv)
        stdin = running.process.stdin
        assert stdin is not None
        for seconds in (0, 0.25, 900):
            fake.set(int((at.timestamp() + seconds) * 1_000_000))
            stdin.write("?\n")
            stdin.flush()
            shown = float(running.line())
            assert shown == pytest.approx(at.timestamp() + seconds, rel=0, abs=1e-6)
            assert shown >= at.timestamp() + seconds
        date = subprocess.run(
            ["date", "+%H:%M:%S"], env=env, capture_output=True, text=True, check=True
        )
        assert date.stdout == "09:15:00\n"
        stdin.close()
        assert running.wait() == 0
        assert fake.notes == ()


@pytest.mark.usefixtures("faketime")
def test_a_clock_is_set_for_every_user_whatever_our_umask_and_tmpdir_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    odd = tmp_path / "with a space"
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    before = os.umask(0o077)
    try:
        with FakeTime(1_800_000_000_000_000) as fake:
            fake.set(1_800_000_001_000_000)
            env = fake.environment({"PATH": os.environ["PATH"]})
            files = [Path(env["FAKETIME_TIMESTAMP_FILE"]), *map(Path, env["LD_PRELOAD"].split(":"))]
            assert all(file.stat().st_mode & stat.S_IROTH for file in files)
            sleep = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(0.01)"]
            subprocess.run(sleep, env=env, check=True)
            date = subprocess.run(["date", "+%s"], env=env, capture_output=True, check=True)
            assert (date.stdout, fake.notes) == (b"1800000001\n", ())
    finally:
        os.umask(before)


@pytest.mark.usefixtures("faketime")
def test_a_clock_that_is_already_faked_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKETIME", "@2000-01-01 00:00:00")
    monkeypatch.setenv("FAKETIME_SHARED", "/faketime_sem_gone /faketime_shm_gone")
    with FakeTime(1_800_000_000_000_000) as fake:
        env = fake.environment()
        date = subprocess.run(["date", "+%s"], env=env, capture_output=True, text=True, check=True)
        assert (date.stdout, fake.notes) == ("1800000000\n", ())


@pytest.mark.usefixtures("faketime")
def test_an_old_libfaketime_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without a compiler
    monkeypatch.setattr(FakeTime, "_sleep_works", lambda _: False)
    with FakeTime(0) as fake:
        assert "Python's time.sleep" in fake.notes[0]


def test_a_program_that_cannot_be_run_has_the_exit_codes_of_a_shell(service: Service) -> None:
    found = _typed(service, "--machine", "no-such", "--", "true")
    assert found.exit_code == 125
    assert "no machine 'no-such'" in found.stderr
    found = CliRunner().invoke(app, ["run", "--url", "http://127.0.0.1:1", "--", "true"])
    assert found.exit_code == 125
    with Service(SAMPLE, sockets=True, real_time=True) as real:
        found = _typed(real, "--fake-time", "--", "true")
        assert found.exit_code == 125
        assert "start it with --clock virtual" in found.stderr


def test_without_a_namespace_the_program_gets_the_url_of_the_endpoint(
    service: Service, start: Callable[..., Any], tmp_path: Path
) -> None:
    words = ["--no-netns", "--machine", "web_2", "--"]
    script = "echo $FOREWARN_METADATA; exec no-such-program"
    process = start(*words, "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    printed, _ = process.communicate(timeout=LIMIT)
    assert printed.strip() == service.url("web_2")
    assert process.returncode == 127
    # Makes an exec fail as one does in a directory of PATH that may not be searched.
    (tmp_path / "no-such-program").mkdir()
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = start(
        "--url", service.control_url, *words, "no-such-program", env=env, stderr=subprocess.PIPE
    )
    assert process.communicate(timeout=LIMIT)[1].startswith("forewarn: no-such-program: ")
    assert process.returncode == 127


# Logs in with the machine's identity and lists machines, at the public cloud that it has built in.
CLOUD_PROGRAM = """
import json, urllib.request
def get(url, **headers):
    asked = urllib.request.Request(url, headers=headers)
    return json.load(urllib.request.urlopen(asked))
imds = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
token = get(imds + "&resource=https://management.azure.com/", Metadata="true")["access_token"]
machines = (
    "https://management.azure.com/subscriptions/00000000-0000-0000-0000-000000000000"
    "/providers/Microsoft.Compute/virtualMachines?api-version=2024-07-01"
)
print(*sorted(m["name"] for m in get(machines, Authorization=f"Bearer {token}")["value"]))
tenant = "https://login.microsoftonline.com/organizations/v2.0/.well-known/openid-configuration"
print(get(tenant)["token_endpoint"])
"""


def test_a_program_that_has_the_public_cloud_built_in_reaches_the_service(
    start: Callable[..., Any],
) -> None:
    before = Path("/etc/hosts").read_text()
    words = ("--arm", "--network", "none", "--", sys.executable, "-c", CLOUD_PROGRAM)
    process = start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    machines, login = out.splitlines()
    assert machines == "sql-0 sql-1 sql-2"  # of its own group
    assert login == "https://login.microsoftonline.com/organizations/oauth2/v2.0/token"
    assert Path("/etc/hosts").read_text() == before


def test_without_the_api_for_azures_sdks_there_is_no_cloud_to_take_the_place_of() -> None:
    needs_root()
    with Service(SAMPLE, sockets=True) as service:
        refused = _typed(service, "--arm", "--", "true")
    assert (refused.exit_code, "dev --arm" in refused.output) == (125, True)
    assert _typed(service, "--arm", "--no-netns", "--", "true").exit_code == 2
