#!/usr/bin/env python3
"""A batch job that can be interrupted: it adds up the numbers to a goal, slowly.

    job.py DIRECTORY GOAL     does it, from the checkpoint if there is one
    job.py --check FILE       is this a whole checkpoint?

SIGUSR1 asks for a checkpoint, SIGTERM ends it. While it runs it holds a lock on DIRECTORY/job.pid;
when it has finished there is DIRECTORY/result, and no checkpoint any more.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import sys
import time  # noqa: TID251 - stands for work that takes time
from pathlib import Path

STEP = 0.005  # seconds


def main() -> None:
    if sys.argv[1] == "--check":
        state = load(Path(sys.argv[2]))
        say(f"a whole checkpoint, at {state['next']}")
        return
    directory, goal = Path(sys.argv[1]), int(sys.argv[2])
    asked: list[int] = []
    ended: list[int] = []
    # Before anybody can know our number: a SIGUSR1 that nobody handles is the end of a process.
    signal.signal(signal.SIGUSR1, lambda number, _: asked.append(number))
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    with (directory / "job.pid").open("a+") as pid:
        only_one(pid)
        work(directory, goal, asked, ended)


def only_one(pid) -> None:
    try:
        fcntl.flock(pid, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("it runs already")
    pid.truncate(0)
    pid.write(f"{os.getpid()}\n")
    pid.flush()


def work(directory: Path, goal: int, asked: list[int], ended: list[int]) -> None:
    checkpoint = directory / "checkpoint.json"
    state = load(checkpoint) if checkpoint.exists() else {"next": 1, "sum": 0}
    say(f"goes on from {state['next']}")
    while state["next"] <= goal:
        state = {"next": state["next"] + 1, "sum": state["sum"] + state["next"]}
        say(f"at {state['next']}")
        time.sleep(STEP)
        if asked:
            asked.clear()
            save(checkpoint, state)
        if ended:
            return
    replace(directory / "result", str(state["sum"]))
    checkpoint.unlink(missing_ok=True)


def save(file: Path, state: dict[str, int]) -> None:
    replace(file, json.dumps({"sha256": digest(state), "state": state}))


def load(file: Path) -> dict[str, int]:
    try:
        whole = json.loads(file.read_text())
        if whole["sha256"] == digest(whole["state"]):
            return whole["state"]
    except (ValueError, LookupError, TypeError):
        pass
    sys.exit(f"{file} is no whole checkpoint")


def digest(state: dict[str, int]) -> str:
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def replace(file: Path, text: str) -> None:
    """Whoever reads it finds the old or the new, and after a power cut, too."""
    new = file.with_suffix(".new")
    with new.open("w") as writing:
        writing.write(text)
        writing.flush()
        os.fsync(writing.fileno())
    new.rename(file)
    directory = os.open(file.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
