"""The supervisor, with processes that do as they are told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forewarn.node.processes import child as child_module
from forewarn.node.processes.child import Child

# What it does stands in its spec; every life leaves a line in a file.
PUPPET = """
import json, os, signal, sys, time
spec = json.loads(sys.stdin.read())
def life_number(spec):
    with open(spec["log"]) as log:
        return sum(json.loads(line)[0] == sys.argv[1] for line in log)
with open(spec["log"], "a") as log:
    life = [sys.argv[1], os.getpid(), spec["settings"], os.getppid() == spec["parent"]]
    log.write(json.dumps(life) + "\\n")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(0))
does = spec["does"]
def reload(*_):
    if does == "lost":
        os._exit(4)
    if does == "deaf":
        return
    with open(spec["log"] + ".read", "a") as log:
        log.write(sys.argv[1] + "\\n")
    if sys.argv[1] == "control" and does != "refuse":
        print("settings " + json.dumps({"new": True}))
    print("reloaded " + json.dumps(does == "refuse"), flush=True)
signal.signal(signal.SIGHUP, reload)
if does == "fail":
    sys.exit(3)
print("noise")
while does == "never" or (does == "once" and life_number(spec) > 1):
    time.sleep(0.02)
for _ in range(60 if does == "slow" else 0):
    print('alive ""', flush=True)
    time.sleep(0.02)
print("ready " + json.dumps({"said": sys.argv[1]}), flush=True)
while does != "stubborn":
    if does == "unhealthy":
        print('unhealthy "scheduler: it does not run"', flush=True)
    elif does != "silent":
        print('alive "fine"', flush=True)
    time.sleep(0.02)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
while True:
    time.sleep(1)
"""


# A supervisor in a process of its own, since it wants the signals for itself.
SUPERVISE = """
import json, socket, sys
from pathlib import Path
from forewarn.node.processes import reload_all, supervisor
from forewarn.node.processes.child import Child
said = json.loads(sys.argv[1])
for name, value in said["limits"].items():
    module = reload_all if hasattr(reload_all, name) else supervisor
    assert hasattr(module, name)
    setattr(module, name, value)

def tell(what, **about):
    print(json.dumps(["told", what, about]), flush=True)

children = [Child(name, spec, program=("-c", said["puppet"])) for name, spec in said["children"]]
fds = [socket.create_server(("127.0.0.1", 0)).detach()]
ready = lambda said: print(json.dumps(["ready", said]), flush=True)
notes = {f"on_{name}": lambda name=name: print(json.dumps([name]), flush=True)
         for name in ("alive", "reloading", "reloaded")}
installed = Path(said["installed"])
made = supervisor.Supervisor(
    children, fds, tell, ready, check_every=0.05, **notes,
    other_version=lambda: installed.read_text() if installed.exists() else "",
)
sys.exit(made.run())
"""


PATIENCE = 60.0  # seconds after which it is not waited for any longer


class Stage:
    def __init__(self, tmp_path: Path) -> None:
        self.log = tmp_path / "lives"
        self.log.touch()
        self.installed = tmp_path / "installed"  # which version, if it is another
        self.process: subprocess.Popen[str] | None = None
        self.heard: list[str] = []  # the kinds of all that it said

    def run(self, limits: dict[str, float] | None = None, **does: str) -> None:
        """One process for each name, that does what is said."""
        children = [
            (name.replace("_", " "), {"log": str(self.log), "does": what, "settings": {}})
            for name, what in does.items()
        ]
        said = {"children": children, "puppet": PUPPET, "limits": limits or {}}
        said["installed"] = str(self.installed)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISE, json.dumps(said)], stdout=subprocess.PIPE, text=True
        )
        self._patience = threading.Timer(PATIENCE, self.process.kill)
        self._patience.start()

    def next(self, kind: str) -> list[Any]:
        """The next thing of this kind that it says."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: list[Any] = json.loads(line)
            self.heard.append(message[0])
            if message[0] == kind:
                return message
        raise AssertionError("it says no more")

    def lives(self, name: str | None = None) -> list[list[Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if name in (None, line[0])]

    def readers(self) -> list[str]:
        """Who has read the settings anew, in this order."""
        read = Path(f"{self.log}.read")
        return read.read_text().splitlines() if read.exists() else []

    def until(self, says: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(2_000):
            if says():
                return
            pause.wait(0.01)
        raise AssertionError("it never came to that")

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> int:
        self.send(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        assert self.process is not None
        return self.process.wait(20)

    def close(self) -> None:
        if self.process is not None:
            self._patience.cancel()
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
        for _, pid, _, _ in self.lives():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.close()


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_it_is_ready_when_all_are_and_says_what_control_says(stage: Stage) -> None:
    stage.run(control="live", worker_0="live", worker_1="live")
    assert stage.next("ready") == ["ready", {"said": "control"}]
    assert {name for name, *_ in stage.lives()} == {"control", "worker 0", "worker 1"}
    assert all(right_parent for *_, right_parent in stage.lives())
    assert stage.end() == 0
    assert all(gone(pid) for _, pid, _, _ in stage.lives())


def test_whoever_dies_is_started_again_and_it_is_told_why(stage: Stage) -> None:
    stage.run(control="live", worker_0="live")
    stage.next("ready")
    for n, name in ((1, "worker 0"), (1, "control"), (2, "worker 0")):
        os.kill(stage.lives(name)[-1][1], signal.SIGKILL)
        _, what, about = stage.next("told")
        assert what == "a process has ended and is started again"
        assert (about["process"], about["why"]) == (name, "killed by SIGKILL")
        wanted = n + 1
        stage.until(partial(lambda name, n: len(stage.lives(name)) == n, name, wanted))
    assert stage.end() == 0


def test_a_start_that_fails_ends_everything(stage: Stage) -> None:
    stage.run(control="fail", worker_0="live")
    assert stage.ended() == 1
    assert all(gone(pid) for _, pid, _, _ in stage.lives())


def test_settings_that_were_read_anew_are_those_of_later_lives(stage: Stage) -> None:
    stage.run(control="live", worker_0="live")
    stage.next("ready")
    stage.send(signal.SIGHUP)  # of which all are told

    def renewed() -> bool:
        *_, settings, _ = stage.lives("worker 0")[-1]
        if settings != {"new": True}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stage.lives("worker 0")[-1][1], signal.SIGKILL)
        return bool(settings == {"new": True})

    stage.until(renewed)
    assert stage.end() == 0


def test_a_process_that_gives_no_sign_of_life_is_replaced(stage: Stage) -> None:
    stage.run({"HUNG_AFTER": 0.5}, control="live", worker_0="silent")
    stage.next("ready")
    _, what, about = stage.next("told")
    assert what == "a process gives no sign of life and is killed"
    assert about["process"] == "worker 0"
    assert about["why"].startswith("silent for ")
    stage.until(lambda: len(stage.lives("worker 0")) > 1)
    assert len(stage.lives("control")) == 1
    assert stage.end() == 0


def test_one_that_lives_but_is_not_well_is_replaced_and_it_is_told_what_was_wrong(
    stage: Stage,
) -> None:
    stage.run({"HUNG_AFTER": 0.5}, control="unhealthy", worker_0="live")
    stage.next("ready")
    _, what, about = stage.next("told")
    assert what == "a process gives no sign of life and is killed"
    assert about == {"process": "control", "why": "scheduler: it does not run"}
    stage.until(lambda: len(stage.lives("control")) > 1)
    assert len(stage.lives("worker 0")) == 1


def test_when_all_stood_still_together_nobody_is_killed_for_it(stage: Stage) -> None:
    stage.run({"HUNG_AFTER": 0.5}, control="live", worker_0="live")
    stage.next("ready")
    assert stage.process is not None
    processes = [stage.process.pid, *(pid for _, pid, _, _ in stage.lives())]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    threading.Event().wait(1.0)  # twice what would be too long
    for pid in processes:
        os.kill(pid, signal.SIGCONT)
    for _ in range(5):
        stage.next("alive")
    assert "told" not in stage.heard
    assert len(stage.lives()) == 2
    assert stage.end() == 0


def test_a_start_that_hangs_is_given_up(stage: Stage) -> None:
    stage.run({"HUNG_AFTER_STARTING": 0.5}, control="never", worker_0="live")
    _, what, about = stage.next("told")
    assert what == "a process gives no sign of life and is killed"
    assert about["process"] == "control"
    assert stage.ended() == 1


def test_one_that_hangs_when_it_is_started_again_is_replaced(stage: Stage) -> None:
    stage.run({"HUNG_AFTER_STARTING": 0.5}, control="once", worker_0="live")
    stage.next("ready")
    os.kill(stage.lives("control")[-1][1], signal.SIGKILL)
    stage.until(lambda: len(stage.lives("control")) > 2)
    assert stage.end() == 0


def test_a_start_that_takes_long_but_gives_signs_of_life_is_waited_for(stage: Stage) -> None:
    stage.run(
        {"HUNG_AFTER_STARTING": 0.5, "CONTROL_AWAY_AT_MOST": 0.5}, control="slow", worker_0="live"
    )
    stage.next("ready")
    assert "told" not in stage.heard
    assert len(stage.lives("control")) == 1
    assert stage.end() == 0


def test_the_manager_hears_of_it_while_control_is_replaced_but_not_if_it_stays_away(
    stage: Stage,
) -> None:
    stage.run({"CONTROL_AWAY_AT_MOST": 1.0}, control="once", worker_0="live")
    stage.next("ready")
    os.kill(stage.lives("control")[-1][1], signal.SIGKILL)
    assert stage.next("told")[1] == "a process has ended and is started again"
    stage.next("alive")
    stage.next("alive")
    _, what, about = stage.next("told")
    assert what == "watchdog messages to the service manager are suspended"
    assert about["why"].startswith("the control process has been unavailable for ")
    before = len(stage.heard)
    for _ in range(2):  # it does not get ready, and is killed for it, again and again
        while stage.next("told")[1] != "a process has ended and is started again":
            pass
    assert "alive" not in stage.heard[before:]
    assert len(stage.lives("worker 0")) == 1  # it answers guests all the while
    assert stage.end() == 0


def test_all_read_their_settings_anew_control_first_and_only_then_it_is_over(stage: Stage) -> None:
    stage.run(control="live", worker_0="live", worker_1="live")
    stage.next("ready")
    for n in (1, 2):
        stage.send(signal.SIGHUP)
        stage.next("reloading")
        stage.next("reloaded")
        assert len(stage.readers()) == 3 * n
        assert stage.readers()[-3] == "control"
        assert set(stage.readers()[-2:]) == {"worker 0", "worker 1"}
    assert stage.end() == 0


def test_what_control_refuses_no_worker_takes_over(stage: Stage) -> None:
    stage.run(control="refuse", worker_0="live")
    stage.next("ready")
    stage.send(signal.SIGHUP)
    stage.next("reloaded")
    assert stage.readers() == ["control"]
    os.kill(stage.lives("worker 0")[-1][1], signal.SIGKILL)
    stage.until(lambda: len(stage.lives("worker 0")) == 2)
    assert stage.lives("worker 0")[-1][2] == {}  # as before
    assert stage.end() == 0


@pytest.mark.parametrize("does", ["lost", "deaf"])
def test_whoever_says_nothing_of_its_settings_is_not_waited_for_for_ever(
    stage: Stage, does: str
) -> None:
    stage.run({"RELOAD_WITHIN": 0.5}, control=does, worker_0="live")
    stage.next("ready")
    stage.send(signal.SIGHUP)
    stage.next("reloading")
    stage.next("reloaded")
    assert stage.end() == 0


def test_with_another_version_installed_it_ends_rather_than_mix_the_two(stage: Stage) -> None:
    stage.run(control="live", worker_0="live", worker_1="live")
    stage.next("ready")
    stage.installed.write_text("9.9.9")  # which alone changes nothing
    stage.next("alive")
    os.kill(stage.lives("worker 0")[-1][1], signal.SIGKILL)
    assert stage.next("told")[1] == "a process has ended and is started again"
    _, what, about = stage.next("told")
    assert what.startswith("another version was installed")
    assert about == {"process": "worker 0", "installed": "9.9.9"}
    assert stage.ended() == 1  # whoever started it starts the new one
    assert len(stage.lives()) == 3
    assert all(gone(pid) for _, pid, _, _ in stage.lives())


def test_whoever_does_not_want_to_end_is_killed(stage: Stage) -> None:
    stage.run({"STOP_WITHIN": 0.3}, control="live", worker_0="stubborn")
    stage.next("ready")
    assert stage.end() == 0
    assert all(gone(pid) for _, pid, _, _ in stage.lives())


def test_who_dies_again_and_again_is_started_less_and_less_often() -> None:
    child = Child("worker 0", {}, program=("-c", "pass"))
    pauses = []
    for _ in range(6):
        child.start()
        assert child.reap() == "exited with status 0"
        pauses.append(child.back_off)
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] == child_module.RESTART_MOST
