#!/usr/bin/env python3
"""A batch job on a spot machine: it works through its units, one after the other, and keeps what
it has come to in a directory that outlives the machine.

    job.py DIRECTORY [--deaf]      --deaf: it does not listen, as most jobs do not
"""

import hashlib
import json
import os
import sys
import threading
import time  # noqa: TID251 - a program of a user's own, not a part of forewarn
from pathlib import Path

from forewarn.client import ChangeKind, Client

UNITS = 100_000
UNIT_SECONDS = 0.02
SAVE_EVERY = 60.0  # seconds; saving costs, and a machine may also die without notice
FATAL = ("Preempt", "Terminate", "Redeploy", "Reboot")  # what memory does not survive


class Job:
    def __init__(self, directory: Path) -> None:
        self.checkpoint = directory / "checkpoint.json"
        self.ledger = (directory / "ledger").open("a", buffering=1)
        self.on = os.environ["MACHINE"]
        self.units, self.value = 0, ""
        if self.checkpoint.exists():
            self.units, self.value = json.loads(self.checkpoint.read_text())
            say(f"goes on after unit {self.units}")
        self.may_work, self.at_rest = threading.Event(), threading.Event()
        self.may_work.set()

    def run(self) -> None:
        save_at = time.monotonic() + SAVE_EVERY
        while self.units < UNITS:
            if not self.may_work.is_set():
                self.save()
                self.at_rest.set()
                self.may_work.wait()
            self.work()
            if time.monotonic() >= save_at:
                self.save()
                save_at = time.monotonic() + SAVE_EVERY
        self.save()
        say(f"all {UNITS} units are done")

    def work(self) -> None:
        """One unit. Each builds on the one before, so that none can be left out."""
        time.sleep(UNIT_SECONDS)
        self.units += 1
        self.value = hashlib.sha256(f"{self.value} {self.units}".encode()).hexdigest()
        self.ledger.write(f"{self.units} {self.on} {time.monotonic():.3f}\n")

    def save(self) -> None:
        """Whole or not at all, and on the disk when this returns."""
        new = self.checkpoint.with_suffix(".new")
        with new.open("w") as file:
            json.dump([self.units, self.value], file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self.checkpoint)

    def rest(self) -> None:
        """Finish the unit, save, and do nothing more; returns when that is so."""
        self.at_rest.clear()
        self.may_work.clear()
        self.at_rest.wait()

    def go_on(self) -> None:
        self.may_work.set()


def listen(job: Job) -> None:
    """What is done before the machine goes is here: all of it, and nothing else is."""
    client = Client()
    me = client.identity()
    coming: set[str] = set()  # the ids of events for which the job rests
    say("listens")
    for change in client.watch():
        event = change.event
        if event.type not in FATAL or not event.affects(me):
            continue
        if change.kind is ChangeKind.APPEARED:
            left = event.seconds_left(client.now())
            if not coming:
                job.rest()
            coming.add(event.id)
            client.approve(event)
            say(f"{event.type} in {left or 0:.0f} s: saved after unit {job.units}, approved")
        elif change.kind in (ChangeKind.WITHDRAWN, ChangeKind.FINISHED):
            coming.discard(event.id)
            if not coming:
                say("still here: goes on")
                job.go_on()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    job = Job(Path(sys.argv[1]))
    if "--deaf" not in sys.argv:
        threading.Thread(target=listen, args=(job,), daemon=True).start()
    job.run()
