#!/usr/bin/env python3
"""A hook for the agent: a batch job writes a checkpoint before its machine is disturbed.

prepare: asks the job for a checkpoint (SIGUSR1), waits until there is a new, whole one, and stops
the job (SIGTERM). Through a Freeze, which keeps memory, the job is left running.
undo: starts the job again, if it does not run; it goes on from its checkpoint.

The variables it reads, and what it asks of a job, are in README.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time  # noqa: TID251 - a program of a user's own, not a part of forewarn
from pathlib import Path

SECONDS = 60.0  # to take if the agent sets no limit
MARGIN = 1.0  # seconds of the time left that are not used
STOPPING = 5.0  # seconds of it that a job has for SIGTERM; then it is killed
POLL = 0.02  # seconds between two looks
KEEPS_MEMORY = ("Freeze",)  # whatever else there is, or will be, is taken to lose it


class Trouble(Exception):
    pass


def main() -> None:
    stage = needed("FOREWARN_STAGE")
    if stage == "prepare":
        prepare()
    elif stage == "undo":
        undo()
    else:
        say(f"nothing to do when an event has {stage}")


def prepare() -> None:
    if os.environ.get("FOREWARN_MINE") == "false":
        return say("the event is not about this machine")
    job = running()
    if kept() is None:
        keep({"running": job is not None})
    if job is None:
        return say("the job does not run")
    with job:
        if not take_checkpoint(job):
            return say(f"job {job.pid} has ended by itself")
        if os.environ["FOREWARN_EVENT_TYPE"] in KEEPS_MEMORY:
            return say(f"job {job.pid} is left running: this event keeps memory")
        stop(job)
    return say(f"job {job.pid} is stopped")


def undo() -> None:
    found = kept()
    if not found or not found["running"]:
        say("no job ran before")
    elif running():
        say("the job runs")
    elif not CHECKPOINT.exists():
        say(f"there is no {CHECKPOINT}: the job has finished")
    else:
        check()
        start()
    forget()


# --- the job


class Job:
    """By a handle that means this very process, also if another gets its number meanwhile."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended; whoever waits will see
            signal.pidfd_send_signal(self._handle, number)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def running() -> Job | None:
    """The job holds a lock as long as it lives, so a number that is left over misleads nobody."""
    while locked():
        try:
            return Job(int(LOCK.read_text()))
        except (ValueError, ProcessLookupError):
            time.sleep(POLL)  # it has only just begun, or ended
            if left() < 0:
                raise Trouble(f"{LOCK} is locked, but has no number of a process in it") from None
    return None


def locked() -> bool:
    try:
        with LOCK.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def take_checkpoint(job: Job) -> bool:
    """Whether there is one; there is none if the job has come to its end instead."""
    before = version(CHECKPOINT)
    run(ASK) if ASK else job.send(signal.SIGUSR1)
    say(f"job {job.pid} is asked for a checkpoint")
    while version(CHECKPOINT) in (before, None):
        if not locked():
            return False
        if left() < STOPPING:
            raise Trouble(f"job {job.pid} wrote no new {CHECKPOINT} in time; it is left running")
        time.sleep(POLL)
    check()
    return True


def check() -> None:
    if CHECK:
        return say(f"{CHECKPOINT}: {run([*CHECK, str(CHECKPOINT)])}")
    return say(f"{CHECKPOINT} is there, {CHECKPOINT.stat().st_size} bytes")


def stop(job: Job) -> None:
    if STOP:
        run(STOP)
    else:
        job.send(signal.SIGTERM)
    patience = time.monotonic() + min(STOPPING, left())
    while locked():
        if time.monotonic() > patience and STOP:
            raise Trouble(f"{shlex.join(STOP)} did not stop job {job.pid}")
        if time.monotonic() > patience:
            say(f"job {job.pid} does not heed SIGTERM: it is killed")
            job.send(signal.SIGKILL)
            patience += STOPPING
        time.sleep(POLL)


def start() -> None:
    before = version(LOCK)
    with LOG.open("ab") as log:
        job = subprocess.Popen(
            START, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    # To look for the lock is to take it for a moment: not before the job has it, and changed it.
    while version(LOCK) == before or not locked():
        if job.poll():
            raise Trouble(f"{shlex.join(START)} ended with status {job.returncode}; see {LOG}")
        if left() < 0:
            raise Trouble(f"{shlex.join(START)} was started, but does not lock {LOCK}")
        time.sleep(POLL)
    say("the job is started again")


def run(words: list[str]) -> str:
    ended = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=max(left(), POLL),
    )
    if ended.returncode != 0:
        raise Trouble(f"{shlex.join(words)}: {ended.stdout.strip()}")
    return ended.stdout.strip()


def version(file: Path) -> tuple[int, int] | None:
    try:
        there = file.stat()
    except FileNotFoundError:
        return None
    return there.st_ino, there.st_mtime_ns


# --- what was found, kept from prepare to undo


def record() -> Path:
    return Path(needed("FOREWARN_STATE")) / "found.json"


def kept() -> dict[str, bool] | None:
    try:
        return json.loads(record().read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise Trouble(f"{record()} is not as it was written") from None


def keep(found: dict[str, bool]) -> None:
    new = record().with_suffix(".new")
    with new.open("w") as file:
        json.dump(found, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(record())
    settle(record().parent)


def settle(directory: Path) -> None:
    """What was renamed in it is so after a power cut, too."""
    handle = os.open(directory, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def forget() -> None:
    record().unlink(missing_ok=True)


# --- small things


def left() -> float:
    return DEADLINE - time.monotonic()


def needed(name: str) -> str:
    if not os.environ.get(name):
        raise Trouble(f"{name} is not set; README.md and docs/applications/hooks.md say what it is")
    return os.environ[name]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        limit = float(os.environ.get("FOREWARN_SECONDS_LEFT") or SECONDS)
        DEADLINE = time.monotonic() + limit - MARGIN
        LOCK = Path(needed("JOB_LOCK"))
        CHECKPOINT = Path(needed("JOB_CHECKPOINT"))
        START = shlex.split(needed("JOB_START"))
        ASK, STOP, CHECK = (
            shlex.split(os.environ.get(name, "")) for name in ("JOB_ASK", "JOB_STOP", "JOB_CHECK")
        )
        LOG = Path(os.environ.get("JOB_LOG") or LOCK.with_suffix(".log"))
        main()
    except (Trouble, OSError, ValueError, subprocess.TimeoutExpired) as trouble:
        sys.exit(f"checkpoint: {trouble}")
