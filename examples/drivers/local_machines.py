#!/usr/bin/env python3
"""Carries events out on pretended machines of this computer: a machine is a process, and whatever
it has started. No root is needed, and what happens to it is as hard as on a real one:

    Freeze               all of it stands still for as long as the event says
    Reboot               all of it is gone in one moment (SIGKILL), and it is started again
    Preempt, Terminate   all of it is gone, for good

    driver = "command"
    [command]
    program = ["/usr/local/lib/forewarn/local_machines.py", "/run/fleet"]

The directory has one directory for each machine, as for local_processes.py beside this one:

    /run/fleet/web_0/pid      the number of the process that all others of it descend from
    /run/fleet/web_0/start    a program that becomes this process after a Reboot
"""

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from local_processes import (
    AGAIN,
    DONE,
    FAILED,
    FREEZE_SECONDS,
    HAPPENED,
    Records,
    process_of,
    say,
    state,
    until,
)

OFF_SECONDS = 1  # that a machine is off when it is rebooted


def main() -> int:
    fleet, verb = Path(sys.argv[1]), sys.argv[2]
    task = json.load(sys.stdin)
    machines = [fleet / machine["name"] for machine in task["machines"]]
    records = Records(fleet / "records", task)
    if verb == "check":
        return check(task, machines)
    if verb == "observe":
        return HAPPENED if records.has("over") else AGAIN  # doing each of them again does no harm
    carry = {"Freeze": freeze, "Reboot": reboot}.get(task["type"], end)
    return carry(task, machines, records)


def check(task: dict, machines: list[Path]) -> int:
    """Would it be done? Asked before anybody is told."""
    if task["type"] == "Redeploy":
        return say(FAILED, "there is no other computer to redeploy to")
    for machine in machines:
        if not (machine / "pid").exists():
            return say(FAILED, f"there is no {machine / 'pid'}")
        if task["type"] == "Reboot" and not os.access(machine / "start", os.X_OK):
            return say(FAILED, f"{machine / 'start'} is no program that could be started")
    return DONE


def freeze(task: dict, machines: list[Path], records: Records) -> int:
    left = (task["duration"] if task["duration"] >= 0 else FREEZE_SECONDS) - seconds_since(task)
    if left > 0:
        for machine in machines:
            stop(process_of(machine))
        say(AGAIN, f"{names(machines)}: frozen")
        return say(AGAIN, json.dumps({"after": left}))
    for machine in machines:
        tell(members(process_of(machine)), signal.SIGCONT)
    records.write("over")
    return say(DONE, f"{names(machines)}: thawed")


def reboot(_task: dict, machines: list[Path], records: Records) -> int:
    """Off, and on again a second later. Nothing waits meanwhile."""
    if not records.has("off"):
        for machine in machines:
            kill(process_of(machine))
        records.write("off")
        say(AGAIN, f"{names(machines)}: off")
        return say(AGAIN, json.dumps({"after": OFF_SECONDS}))
    for machine in machines:
        if not members(process_of(machine)):
            start(machine)
    records.write("over")
    return say(DONE, f"{names(machines)}: on")


def end(_task: dict, machines: list[Path], records: Records) -> int:
    """Its number goes, too: one day it may be another's."""
    for machine in machines:
        if (machine / "pid").exists():
            kill(process_of(machine))
            (machine / "pid").unlink()
    records.write("over")
    return say(DONE, f"{names(machines)}: gone")


# --- a machine is a process, whatever it has started, and whatever is in their sessions


def start(machine: Path) -> subprocess.Popen:
    """With files of its own: what is left running must not hold on to ours."""
    with (machine / "console").open("ab") as console:
        process = subprocess.Popen(
            [machine / "start"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
    (machine / "pid.new").write_text(f"{process.pid}\n")
    (machine / "pid.new").rename(machine / "pid")  # whoever looks finds one or the other
    return process


def members(leader: int) -> set[int]:
    """All of a machine's processes that are alive."""
    others = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := stat(int(path.name)):
            others[int(path.name)] = {int(fields[1]), int(fields[3])}  # its parent, its session
    found = {leader} & others.keys()
    while more := {pid for pid, near in others.items() if near & (found | {leader})} - found:
        found |= more
    return found


def stat(pid: int) -> list[str]:
    """Its fields in /proc, from its state on; none if it is dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [] if fields[0] in "ZX" else fields


def tell(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it has ended by itself


def stop(leader: int) -> set[int]:
    """Stops all of it, those too that are started meanwhile."""
    stopped: set[int] = set()
    while new := members(leader) - stopped:
        tell(new, signal.SIGSTOP)
        until(lambda new=new: all(state(pid) in ("T", "Z", "") for pid in new), f"machine {leader}")
        stopped |= new
    return stopped


def kill(leader: int) -> None:
    """First all of it is stopped, so that nobody sees another die."""
    stopped = stop(leader)
    tell(stopped, signal.SIGKILL)
    until(lambda: not any(stat(pid) for pid in stopped), f"machine {leader}")


def seconds_since(task: dict) -> float:
    gone = datetime.fromisoformat(task["now"]) - datetime.fromisoformat(task["started_at"])
    return gone.total_seconds()


def names(machines: list[Path]) -> str:
    return ", ".join(machine.name for machine in machines)


if __name__ == "__main__":
    sys.exit(main())
