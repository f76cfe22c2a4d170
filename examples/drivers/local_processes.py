#!/usr/bin/env python3
"""Carries events out on processes of this computer: a machine is a process, or a cgroup of them.

    driver = "command"
    [command]
    program = ["/usr/local/lib/forewarn/local_processes.py", "/run/fleet"]

The directory has one directory for each machine:

    /run/fleet/web_0/pid      the number of its process
    /run/fleet/web_0/cgroup   the path of its cgroup (v2, or v1's freezer), if it has one: then
                              all of it is frozen, else the process alone, by SIGSTOP
    /run/fleet/web_0/start    a program that becomes the machine's process after a Reboot

and, written by this program, `records`: what was begun, and what is over, for which ticket and
which step of which rollout.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

DONE, AGAIN, FAILED, HAPPENED, UNKNOWN = 0, 10, 20, 30, 40
FREEZE_SECONDS = 5  # if the event does not say
PATIENCE = 10.0  # seconds to freeze, or to stop, before it counts as failed


def main() -> int:
    fleet, verb = Path(sys.argv[1]), sys.argv[2]
    task = json.load(sys.stdin)
    machines = [fleet / machine["name"] for machine in task["machines"]]
    records = Records(fleet / "records", task)
    if verb == "check":
        return check(task, machines)
    if verb == "observe":
        return observe(task, records)
    return freeze(task, machines, records) if is_freeze(task) else restart(machines, records)


def check(task: dict, machines: list[Path]) -> int:
    """Would it be done? Asked before anybody is told."""
    if task["type"] not in ("Freeze", "Reboot"):
        return say(FAILED, f"a {task['type']} of local processes is not possible")
    for machine in machines:
        if not (machine / "pid").exists():
            return say(FAILED, f"there is no {machine / 'pid'}")
        if task["type"] == "Reboot" and not os.access(machine / "start", os.X_OK):
            return say(FAILED, f"{machine / 'start'} is no program that could be started")
    return DONE


def observe(task: dict, records: "Records") -> int:
    """What became of an earlier attempt? Asked first after a crash, of the service or of ours."""
    if records.has("over"):
        return HAPPENED
    if not records.has("begun"):
        return AGAIN
    if is_freeze(task):
        return AGAIN  # whatever is frozen stays so until it is thawed: going on does no harm
    return say(UNKNOWN, "a restart was begun; whether it came to its end is not known")


def freeze(task: dict, machines: list[Path], records: "Records") -> int:
    """Freeze, and ask to be called again when it is time to go on. Nothing waits meanwhile."""
    records.write("begun")
    seconds = task["duration"] if task["duration"] >= 0 else FREEZE_SECONDS
    gone = datetime.fromisoformat(task["now"]) - datetime.fromisoformat(task["started_at"])
    left = seconds - gone.total_seconds()
    try:
        for machine in machines:
            set_frozen(machine, left > 0)
    except OSError as error:
        for machine in machines:
            with contextlib.suppress(OSError):
                set_frozen(machine, False)
        return say(FAILED, str(error))
    if left > 0:
        say(AGAIN, "frozen")
        return say(AGAIN, json.dumps({"after": left}))
    records.write("over")
    return say(DONE, "thawed")


def set_frozen(machine: Path, frozen: bool) -> None:
    """Returns when it really is, or is not."""
    if not (machine / "cgroup").exists():
        pid = process_of(machine)
        os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)
        until(lambda: (state(pid) == "T") is frozen, f"process {pid}")
        return
    cgroup = Path((machine / "cgroup").read_text().strip())
    if (cgroup / "cgroup.freeze").exists():
        (cgroup / "cgroup.freeze").write_text("1" if frozen else "0")
        wanted = f"frozen {int(frozen)}"
        until(lambda: wanted in (cgroup / "cgroup.events").read_text(), f"cgroup {cgroup}")
    else:
        wanted = "FROZEN" if frozen else "THAWED"
        (cgroup / "freezer.state").write_text(wanted)
        until(lambda: wanted in (cgroup / "freezer.state").read_text(), f"cgroup {cgroup}")


def restart(machines: list[Path], records: "Records") -> int:
    records.write("begun")
    for machine in machines:
        pid = process_of(machine)
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(pid, number)
                until(lambda pid=pid: state(pid) in ("", "Z"), f"process {pid}")
                break
            except ProcessLookupError:
                break
            except TimeoutError:
                continue
        # With files of its own: what is left running must not hold on to ours.
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        started = subprocess.Popen([machine / "start"], start_new_session=True, **quiet)
        (machine / "pid").write_text(f"{started.pid}\n")
        say(DONE, f"{machine.name}: process {pid} has become {started.pid}")
    records.write("over")
    return DONE


class Records:
    """What was begun and what is over, on disk before anything follows from it."""

    def __init__(self, directory: Path, task: dict) -> None:
        directory.mkdir(exist_ok=True)
        self.base = directory / task["event"]
        self.reason = {name: task[name] for name in ("ticket", "rollout", "step") if task[name]}

    def has(self, what: str) -> bool:
        return self.base.with_suffix(f".{what}").exists()

    def write(self, what: str) -> None:
        with self.base.with_suffix(f".{what}").open("w") as file:
            json.dump(self.reason, file)
            file.flush()
            os.fsync(file.fileno())


def is_freeze(task: dict) -> bool:
    return task["type"] == "Freeze"


def process_of(machine: Path) -> int:
    return int((machine / "pid").read_text())


def state(pid: int) -> str:
    """The letter that the system has for it: T is stopped, Z is dead but not buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def until(true, what: str) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if true():
            return
        pause.wait(0.01)
    raise TimeoutError(f"{what} did not follow within {PATIENCE:g} s")


def say(code: int, line: str) -> int:
    sys.stdout.write(f"{line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
