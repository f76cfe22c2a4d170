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

from forewarn.node import child as child_module
from forewarn.node.child import Child

# What it does stands in its spec; every life leaves a line in a file.
PUPPET = """
import json, os, signal, sys, time
spec = json.loads(sys.stdin.read())
with open(spec["log"], "a") as log:
    life = [sys.argv[1], os.getpid(), spec["settings"], os.getppid() == spec["parent"]]
    log.write(json.dumps(life) + "\\n")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(0))
signal.signal(signal.SIGHUP, lambda *_: print("settings " + json.dumps({"new": True}), flush=True))
does = spec["does"]
if does == "fail":
    sys.exit(3)
print("noise")
print("ready " + json.dumps({"said": sys.argv[1]}), flush=True)
while does != "stubborn":
    if does != "silent":
        print("alive", flush=True)
    time.sleep(0.02)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
while True:
    time.sleep(1)
"""


# A supervisor in a process of its own, since it wants the signals for itself.
SUPERVISE = """
import json, socket, sys
from forewarn.node import supervisor
from forewarn.node.child import Child
said = json.loads(sys.argv[1])
for name, value in said["limits"].items():
    setattr(supervisor, name, value)

def tell(what, **about):
    print(json.dumps(["told", what, about]), flush=True)

children = [Child(name, spec, program=("-c", said["puppet"])) for name, spec in said["children"]]
fds = [socket.create_server(("127.0.0.1", 0)).detach()]
ready = lambda said: print(json.dumps(["ready", said]), flush=True)
sys.exit(supervisor.Supervisor(children, fds, tell, ready, look_every=0.05).run())
"""


class Stage:
    def __init__(self, tmp_path: Path) -> None:
        self.log = tmp_path / "lives"
        self.log.touch()
        self.process: subprocess.Popen[str] | None = None

    def run(self, limits: dict[str, float] | None = None, **does: str) -> None:
        """One process for each name, that does what is said."""
        children = [
            (name.replace("_", " "), {"log": str(self.log), "does": what, "settings": {}})
            for name, what in does.items()
        ]
        said = {"children": children, "puppet": PUPPET, "limits": limits or {}}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISE, json.dumps(said)], stdout=subprocess.PIPE, text=True
        )

    def next(self, kind: str) -> list[Any]:
        """The next thing of this kind that it says."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: list[Any] = json.loads(line)
            if message[0] == kind:
                return message
        raise AssertionError("it says no more")

    def lives(self, name: str | None = None) -> list[list[Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if name in (None, line[0])]

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
        assert what == "a process has died and is started again"
        assert (about["process"], about["why"]) == (name, "it was killed (SIGKILL)")
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
    stage.run({"HUNG": 0.5}, control="live", worker_0="silent")
    stage.next("ready")
    assert stage.next("told")[1:] == [
        "a process gives no sign of life and is killed",
        {"process": "worker 0"},
    ]
    stage.until(lambda: len(stage.lives("worker 0")) > 1)
    assert len(stage.lives("control")) == 1
    assert stage.end() == 0


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
        assert child.reap() == "it ended with status 0"
        pauses.append(child.pause)
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] == child_module.RESTART_MOST
