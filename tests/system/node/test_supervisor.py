"""A service of several processes and whoever looks after it: what it is told of, by what whoever is
started later goes, and what it is made of."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import forewarn
from forewarn.node.daemon import process_main
from forewarn.node.processes.child import ALIVE, UNHEALTHY
from helpers.certificates import Authority
from helpers.notify_socket import NotifySocket
from helpers.polls import until
from helpers.process import Running
from helpers.serve_process import FLEET, ServeProcess, environment, running_service, write_settings
from helpers.token_api import Api
from helpers.worker_processes import NEVER_LONGER, _children

SOURCE = Path(forewarn.__file__).parent


def named(service: Running, name: str) -> int:
    """The process that is called so; 0: there is none."""
    for child in _children(service.process.pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/cmdline").read_bytes().endswith(f"\0{name}\0".encode()):
                return child
    return 0


def replaced(service: Running, name: str) -> None:
    """It is killed, and another takes its place."""
    before = named(service, name)
    os.kill(before, signal.SIGKILL)
    until(lambda: named(service, name) not in (0, before), NEVER_LONGER)


@contextlib.contextmanager
def started(directory: Path, settings: Path, python: Sequence[str], **more: Any) -> Iterator[Any]:
    """`forewarn serve` by this interpreter, from this directory; not ready yet."""
    argv = [*python, "-m", "forewarn", "serve", "--config", str(settings)]
    env = environment(directory) | more.pop("env", {})
    running = Running(
        subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **more
        ),
        argv,
    )
    try:
        yield running
    finally:
        running.stop()


def test_after_a_reload_a_control_process_that_is_replaced_is_as_it_was(tmp_path: Path) -> None:
    """Of what needs a restart, the old; also where the new would only do together."""
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1")
    tls = f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
    settings = write_settings(tmp_path, "workers = 1\n" + tls)
    manager = NotifySocket(f"@forewarn-supervised-{os.getpid()}")
    with (
        manager,
        running_service(tmp_path, settings, env={"NOTIFY_SOCKET": manager.address}) as service,
    ):
        api = Api(service.control, tls=authority.trusted())
        assert service.control.startswith("https://")
        assert len(api.get("/v1/machines").json()) == 2
        manager.until("READY")
        text = settings.read_text().replace(tls, "").replace("workers = 1", "workers = 2")
        text = text.replace("state/forewarn.db", "state/other.db")
        text = text.replace('control = "127.0.0.1:0"', 'control = "127.0.0.1:1"')
        settings.write_text(
            text + 'throttle = 1\ndriver = "command"\n[command]\nprogram = ["true"]\n'
        )
        service.running.process.send_signal(signal.SIGHUP)
        manager.until("RELOADING")
        manager.until("READY")
        for name in ("control", "worker 0"):
            replaced(service.running, name)
        assert len(api.get("/v1/machines").json()) == 2
        with pytest.raises(urllib.error.HTTPError, match="429"):
            [service.poll() for _ in range(5_000)]  # what was taken over stays so, too
        assert service.running.stop() == 0
    assert not (tmp_path / "state" / "other.db").exists()
    log = [json.loads(line) for line in service.running.stderr if line.startswith("{")]
    died = [line["process"] for line in log if line["event"].startswith("a process has ended")]
    assert died == ["control", "worker 0"]


def test_whoever_reloads_hears_that_it_is_over_when_it_is_and_how_things_stand(
    tmp_path: Path,
) -> None:
    settings = write_settings(tmp_path, "workers = 1\n")
    manager = NotifySocket(f"@forewarn-reloads-{os.getpid()}")
    with (
        manager,
        running_service(tmp_path, settings, env={"NOTIFY_SOCKET": manager.address}) as service,
    ):
        says = manager.until("READY")["STATUS"]
        assert says.startswith("1 worker; 2 machines, 0 active events; guests at http://127.0.0.1:")
        fleet = FLEET + "      - {name: web-2, update_domain: 2, addresses: [127.0.0.3]}\n"
        settings.with_name("fleet.yaml").write_text(fleet)
        settings.write_text(settings.read_text() + "throttle = 1\n")
        service.running.process.send_signal(signal.SIGHUP)
        manager.until("RELOADING")
        assert manager.until("READY")["STATUS"].startswith("1 worker; 3 machines, ")
        with pytest.raises(urllib.error.HTTPError, match="429"):
            [service.poll() for _ in range(20)]  # the worker has heard of it, too


def test_what_control_cannot_use_no_worker_takes_over(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, "workers = 1\n")
    manager = NotifySocket(f"@forewarn-refused-{os.getpid()}")
    with (
        manager,
        running_service(tmp_path, settings, env={"NOTIFY_SOCKET": manager.address}) as service,
    ):
        manager.until("READY")
        settings.with_name("fleet.yaml").write_text("groups: nonsense\n")
        settings.write_text(settings.read_text() + "throttle = 1\n")
        service.running.process.send_signal(signal.SIGHUP)
        manager.until("RELOADING")
        manager.until("READY")
        for _ in range(20):
            service.poll()


def test_the_manager_hears_signs_of_life_for_as_long_as_control_gives_any(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, "workers = 1\n")
    manager = NotifySocket(f"@forewarn-lives-{os.getpid()}")
    env = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "600000"}
    with manager, running_service(tmp_path, settings, env=env) as service:
        manager.until("READY")
        manager.until("WATCHDOG")
        replaced(service.running, "control")  # which is no reason to replace everything
        manager.drain()
        manager.until("WATCHDOG")
        service.wait_for("/v1/machines/web-0", name="web-0")


def test_a_process_that_is_not_well_says_so_and_gives_no_sign_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[str, object]] = []
    monkeypatch.setattr(process_main, "_send", lambda *message: sent.append(message))
    heartbeat = process_main.Heartbeat()
    heartbeat.send()
    heartbeat.status = lambda: "3 machines"
    heartbeat.send()
    heartbeat.problem = lambda: "scheduler: it does not run"
    heartbeat.send()
    assert sent == [(ALIVE, ""), (ALIVE, "3 machines"), (UNHEALTHY, "scheduler: it does not run")]


def test_a_signal_to_reload_is_not_lost_and_kills_nobody_while_the_supervisor_starts(
    tmp_path: Path,
) -> None:
    settings = write_settings(tmp_path, "workers = 1\n")
    with started(tmp_path, settings, [sys.executable]) as running:
        line = Path(f"/proc/{running.process.pid}/cmdline")
        while b"forewarn.node.daemon.supervisor_main" not in line.read_bytes():
            assert running.process.poll() is None
        running.process.send_signal(signal.SIGHUP)  # it has just begun to import
        assert running.line(60).startswith("ready ")
        until(lambda: "reloaded" in "".join(running.stderr), NEVER_LONGER)


@pytest.mark.parametrize("how", ["-P", "-I"])
def test_nothing_is_run_that_lies_in_the_working_directory(tmp_path: Path, how: str) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    for module in ("json", "structlog", "msgspec", "uvloop"):
        evil.joinpath(f"{module}.py").write_text(
            f"open({str(tmp_path / 'run')!r}, 'a').write('{module}')\nraise SystemExit(66)\n"
        )
    env = {"PYTHONPATH": str(evil)} if how == "-I" else {}
    settings = write_settings(tmp_path, "workers = 1\n")
    with started(tmp_path, settings, [sys.executable, how], cwd=evil, env=env) as running:
        urls = json.loads(running.line(60).removeprefix("ready "))
        assert ServeProcess(running, urls).poll()["Events"] == []
    assert not (tmp_path / "run").exists()


def test_when_another_version_was_installed_the_whole_service_is_to_be_started_anew(
    tmp_path: Path,
) -> None:
    """Rather than that a process of the one is refused by those of the other, for ever."""
    shutil.copytree(SOURCE, tmp_path / "lib" / "forewarn", ignore=shutil.ignore_patterns("*.pyc"))
    settings = write_settings(tmp_path, "workers = 1\n")
    python, env = [sys.executable, "-P"], {"PYTHONPATH": str(tmp_path / "lib")}
    with started(tmp_path, settings, python, env=env) as running:
        process = ServeProcess(running, json.loads(running.line(60).removeprefix("ready ")))
        init = tmp_path / "lib" / "forewarn" / "__init__.py"
        text, count = re.subn('__version__ = ".+"', '__version__ = "99.0"', init.read_text())
        assert count == 1
        init.write_text(text)
        assert process.poll()["Events"] == []  # what runs goes on
        os.kill(named(running, "worker 0"), signal.SIGKILL)
        assert running.wait(NEVER_LONGER) == 1
        assert '"installed":"99.0"' in "".join(running.stderr)
    with started(tmp_path, settings, python, env=env) as running:
        process = ServeProcess(running, json.loads(running.line(60).removeprefix("ready ")))
        assert process.poll()["Events"] == []
